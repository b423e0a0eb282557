// The page: the model (model.js) is fed by one connection (feed.js) and drawn by the views.

import { byID, make, clock, moment } from "./dom.js";
import { Model } from "./model.js";
import { Feed } from "./feed.js";
import { MachineView } from "./machine.js";
import { Timeline } from "./timeline.js";
import { Panels } from "./panels.js";
import { Containers } from "./containers.js";
import { Report } from "./report.js";

const model = new Model();
let selected; // { kind: "cpu", id } or { kind: "pod", key }
let found; // pods that are searched for, undefined without a search
let option = -1; // of the list below the search

const machine = new MachineView(model, select);
const panels = new Panels(model, select);
const containers = new Containers(model, select);
const report = new Report();
const timeline = new Timeline(model, (id) => panels.openIncident(id));
const query = byID("query");
const results = byID("found");
const mostResults = 50;

function select(what) {
  selected = what;
  mark();
  panels.show(selected);
  panels.load(what).then((more) => {
    if (more && selected === what) panels.show(selected);
  });
  const address = what === undefined ? location.pathname : `#${what.kind}=${encodeURIComponent(what.kind === "cpu" ? what.id : what.key)}`;
  history.replaceState(null, "", address);
}

// mark highlights the selection on the drawing, else the search results.
function mark() {
  let hits;
  if (selected?.kind === "pod") hits = model.cpusOfPod(selected.key);
  else if (found) {
    hits = new Set();
    for (const key of [...found].slice(0, mostResults)) for (const cpu of model.cpusOfPod(key)) hits.add(cpu);
  }
  machine.show(hits, selected?.kind === "cpu" ? selected.id : undefined);
}

function search() {
  const text = query.value.trim();
  found = text ? new Set(model.search(text)) : undefined;
  option = -1;
  listResults();
  mark();
  containers.show(found);
}

function listResults() {
  const list = found ? [...found] : [];
  results.replaceChildren(
    ...list.slice(0, mostResults).map((key, i) => make("li", { role: "option", id: "found-" + i, "data-pod": key, "aria-selected": String(i === option) }, key)),
    ...(list.length > mostResults ? [make("li", { className: "none" }, `and ${list.length - mostResults} more`)] : []),
    ...(found && list.length === 0 ? [make("li", { className: "none" }, "no pod on this node is called so")] : []));
  const open = found !== undefined && document.activeElement === query;
  results.hidden = !open;
  query.setAttribute("aria-expanded", String(open));
  if (option >= 0) query.setAttribute("aria-activedescendant", "found-" + option);
  else query.removeAttribute("aria-activedescendant");
  results.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
}

function choose(key) {
  results.hidden = true;
  query.setAttribute("aria-expanded", "false");
  select({ kind: "pod", key });
}

function letGo() {
  if (panels.closeIncident()) return;
  if (selected) {
    select(undefined);
    return;
  }
  query.value = "";
  search();
}

query.addEventListener("input", () => {
  if (selected?.kind === "pod") select(undefined);
  search();
});
query.addEventListener("focus", listResults);
query.addEventListener("blur", () => {
  results.hidden = true;
  query.setAttribute("aria-expanded", "false");
});
query.addEventListener("keydown", (e) => {
  const n = results.querySelectorAll("[data-pod]").length;
  if (e.key === "ArrowDown" || e.key === "ArrowUp") {
    e.preventDefault();
    if (n > 0) option = (option + (e.key === "ArrowDown" ? 1 : n) + (option < 0 && e.key === "ArrowUp" ? 1 : 0)) % n;
    listResults();
  } else if (e.key === "Enter") {
    e.preventDefault();
    const chosen = results.querySelectorAll("[data-pod]")[Math.max(option, 0)];
    if (chosen) choose(chosen.dataset.pod);
  } else if (e.key === "Escape") {
    e.preventDefault();
    e.stopPropagation();
    query.value = "";
    if (selected?.kind === "pod") select(undefined);
    search();
    query.blur();
    machine.focus();
  }
});
results.addEventListener("pointerdown", (e) => {
  e.preventDefault(); // the search keeps the focus until something is chosen
  const key = e.target.closest("[data-pod]")?.dataset.pod;
  if (key !== undefined) choose(key);
});
byID("search").addEventListener("submit", (e) => e.preventDefault());

addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  if (e.key === "/" && document.activeElement !== query) {
    e.preventDefault();
    query.focus();
    query.select();
  } else if (e.key === "Escape") letGo();
});

function fromAddress() {
  const [kind, value] = location.hash.slice(1).split("=");
  let text;
  try {
    text = decodeURIComponent(value || "");
  } catch {
    return; // not one of ours
  }
  if (kind === "cpu" && /^\d+$/.test(text)) select({ kind: "cpu", id: Number(text) });
  else if (kind === "pod" && text) select({ kind: "pod", key: text });
}
addEventListener("hashchange", fromAddress);

function notes() {
  const n = model.node;
  const list = [];
  if (!n.connected || !n.synchronised) list.push("The daemon is not connected to the runtime: what is shown is what was known last.");
  if (n.observe) list.push("The daemon observes: what is shown is what it would do. It writes nothing.");
  if (n.unpinned > 0) list.push(`${n.unpinned} ${n.unpinned === 1 ? "container runs" : "containers run"} elsewhere than decided; it is being repaired.`);
  if (n.cpi.why && n.cpi.mode !== "off") list.push("CPU performance: " + n.cpi.why);
  for (const text of [n.cpi.counted, n.cpi.judged]) if (text) list.push("CPU performance: " + text);
  byID("notes").replaceChildren(...list.map((text) => make("p", {}, text)));
  byID("node").textContent = n.name;
  document.title = n.name ? `quietcore ${n.name}` : "quietcore";
  byID("version").textContent = `quietcore ${n.version}, running since ${moment(n.started)}`;
}

// renewed reloads the page once if the daemon has a newer one; only once, since a proxy may keep serving the old one.
let tag;
function renewed() {
  const now = model.node.assets;
  if (tag === undefined) tag = now;
  if (tag === now || sessionStorage.getItem("renewed") === now) return;
  sessionStorage.setItem("renewed", now);
  location.reload();
}

// Parts that arrive together are drawn together, at most once a frame.
const stale = new Set();
let asked = false;
function later(part) {
  stale.add(part);
  if (asked) return;
  asked = true;
  const frame = document.hidden ? (f) => setTimeout(f, 1000) : requestAnimationFrame;
  frame(() => {
    asked = false;
    const parts = new Set(stale);
    stale.clear();
    refresh(parts);
  });
}

let begun = false;
function refresh(parts) {
  const any = (...list) => list.some((p) => parts.has(p));
  if (parts.has("node")) {
    notes();
    renewed();
  }
  if (parts.has("machine")) machine.build();
  if (parts.has("load")) machine.loaded();
  if (!begun && model.machine && model.marks.size) {
    begun = true;
    fromAddress();
  }
  if (any("cpus", "containers", "machine")) {
    if (found) found = new Set(model.search(query.value));
    mark();
  }
  if (any("containers", "samples", "cpus")) containers.show(found);
  if (any("containers", "samples", "cpus", "node", "machine")) keepingFocus(byID("details"), () => panels.show(selected));
  if (any("history", "points", "incidents", "changes", "node")) timeline.paint();
  if (parts.has("samples")) panels.load(selected).then((more) => more && panels.show(selected));
  if (parts.has("incidents")) keepingFocus(byID("incident-list"), () => panels.showIncidents());
  if (any("history", "changes")) panels.showChanges();
}

// keepingFocus redraws a panel and restores the focus to the same place in it.
function keepingFocus(panel, redraw) {
  const focusable = () => [...panel.querySelectorAll("button, a, [tabindex]")];
  const i = panel.contains(document.activeElement) ? focusable().indexOf(document.activeElement) : -1;
  const top = panel.scrollTop;
  redraw();
  panel.scrollTop = top;
  if (i >= 0) focusable()[i]?.focus();
}

panels.show(undefined);
new Feed(
  (part, value) => {
    model.take(part, value);
    later(part);
  },
  (live, ms) => {
    const link = byID("link");
    const text = live ? "live" : `no connection since ${clock(ms)}; what is shown is as of then. Trying again …`;
    if (link.textContent !== text) link.textContent = text;
    link.classList.toggle("lost", !live);
    document.body.classList.toggle("stale", !live);
    if (live) report.load();
  },
);
