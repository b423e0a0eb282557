// The page of all nodes: it asks the hub again and again while it is seen, and draws what it is told.

import { byID, make, number, count, moment, clock } from "./dom.js";
import { HeatView, measures, part, silent, ago } from "./heat.js";
import { Tables } from "./tables.js";

const shortest = 2_000;
const slowly = 30_000; // incidents and owners
const windows = [[1, "1 hour"], [6, "6 hours"], [24, "24 hours"], [168, "7 days"]];
const orders = { name: "name", hot: "most first", cold: "least first", unwell: "unwell first", cpus: "CPUs" };

let fleet; // the last answer
let selected;
let heard = 0;
const query = byID("query");
const heat = new HeatView(select);
const tables = new Tables(ask, (name) => select(name, true));

function select(name, go) {
  selected = name;
  draw();
  const hash = name === undefined ? location.pathname : `#node=${encodeURIComponent(name)}`;
  history.replaceState(null, "", hash);
  if (go) byID("nodes").scrollIntoView({ block: "start" });
}

function listed() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const list = fleet.nodes.filter((n) => {
    const text = [n.name, n.mode, n.version, n.wrong, ...(n.problems || [])].join(" ").toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const key = heat.measure === "all" ? "used" : heat.measure;
  const known = (n) => (silent(n) && !n.measured ? undefined : part(n, key));
  const by = {
    hot: (a, b) => (known(b) ?? -1) - (known(a) ?? -1),
    cold: (a, b) => (known(a) ?? 1e9) - (known(b) ?? 1e9),
    unwell: (a, b) => trouble(b) - trouble(a),
    cpus: (a, b) => b.cpus - a.cpus,
  }[byID("order").value];
  return by ? list.sort(by) : list;
}

const trouble = (n) => (silent(n) ? 2 : n.problems?.length ? 1 : 0);

function draw() {
  if (!fleet) return;
  const list = listed();
  heat.show(list, fleet.now, selected);
  const s = fleet.sums;
  const parts = [list.length < s.nodes ? `${list.length} of ${count(s.nodes, "node")}` : count(s.nodes, "node")];
  if (s.silent) parts.push(`${s.silent} did not answer`);
  if (s.unwell) parts.push(`${s.unwell} with problems`);
  byID("size").textContent = parts.join(", ");
  byID("sums").replaceChildren(...[["CPUs", s.cpus], ...measures.map(([key, name]) => [name, number(s[key], 0)]), ["owned and idle", number(s.idle, 0)]]
    .map(([name, v]) => make("div", {}, make("dt", {}, name), make("dd", {}, v))));
  const prom = fleet.prometheus;
  byID("version").textContent = `quietcore ${fleet.version}, ` + (prom?.nodes ? `Prometheus is asked every ${ago(fleet.every)}, for ${count(prom.nodes, "node")}` : `each node is asked every ${ago(fleet.every)}`);
  const notes = [];
  if (fleet.problem) notes.push(`No node can be asked; what is shown is what was known last. ${fleet.problem}`);
  else if (!fleet.rounds) notes.push("The nodes are being asked for the first time.");
  if (prom?.problem) notes.push(`Prometheus does not say what CPUs are used for; each node is asked itself. ${prom.problem}`);
  else if (prom && fleet.rounds && prom.nodes < s.nodes) notes.push(`Prometheus knows nothing new of ${count(s.nodes - prom.nodes, "node")}, which ${s.nodes - prom.nodes === 1 ? "is" : "are"} asked instead.`);
  byID("notes").replaceChildren(...notes.map((text) => make("p", {}, text)));
  details();
}

function details() {
  const node = fleet.nodes.find((n) => n.name === selected);
  const text = make("div", {}, node ? about(node) : nothing());
  if (text.innerHTML !== byID("details").firstChild?.innerHTML) byID("details").replaceChildren(text);
}

function nothing() {
  if (selected !== undefined) return [make("h3", {}, selected), make("p", {}, "is not known any more")];
  const bad = fleet.nodes.filter((n) => trouble(n) > 0).sort((a, b) => trouble(b) - trouble(a));
  const most = 12;
  return [
    make("h3", {}, "All nodes"),
    make("p", { className: "hint" }, "Point at a node, or select one with a click or with Enter."),
    bad.length > 0 && make("h4", {}, "Not well"),
    bad.slice(0, most).map((n) => make("p", {}, tables.nodeLink(n.name), " ", n.wrong || n.problems?.[0] || "never answered")),
    bad.length > most && make("p", { className: "hint" }, `and ${bad.length - most} more; "unwell first" has them in front`),
  ];
}

const when = (ms) => `${moment(ms)}, ${ago(fleet.now - ms)} ago`;

function about(n) {
  const amount = (key) => (n[key] === null ? "not known" : `${number(n[key], 1)} of ${n.cpus} CPUs, ${part(n, key)} %`);
  const rows = !n.heard && !n.measured ? [] : [
    ...measures.map(([key, name]) => [name, amount(key)]),
    ["owners", n.heard ? n.owners + (n.idle === null ? "" : `, ${number(n.idle, 1)} of their CPUs idle`) : undefined],
    ["containers", n.heard ? n.containers : undefined], ["waiting pods", n.waiting || undefined], ["capped", n.capped || undefined],
    ["mode", n.mode], ["version", n.version], ["as of", n.heard ? when(n.heard) : undefined], ["by Prometheus", n.measured ? `CPUs, ${when(n.measured)}` : undefined],
  ];
  return [
    make("h3", {}, n.name),
    silent(n) && make("p", { className: "capped" }, n.heard ? "It did not answer the last time; this is as it was." : "It never answered."),
    n.wrong && make("p", {}, n.wrong),
    make("dl", {}, rows.filter(([, v]) => v !== undefined && v !== "").map(([k, v]) => [make("dt", {}, k), make("dd", {}, v)])),
    n.problems?.length > 0 && make("h4", {}, "Problems"),
    (n.problems || []).map((p) => make("p", {}, p)),
    make("h4", {}, "More of it"),
    make("p", { className: "hint" }, `kubectl quietcore map --draw --node ${n.name}`),
    n.pod && make("p", { className: "hint" }, `its own page: kubectl port-forward -n ${fleet.namespace} pod/${n.pod} 9465`),
  ];
}

function link(live) {
  const text = live ? "live" : `no connection since ${clock(heard || Date.now())}; what is shown is as of then. Trying again …`;
  if (byID("link").textContent !== text) byID("link").textContent = text;
  byID("link").classList.toggle("lost", !live);
  document.body.classList.toggle("stale", !live);
}

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 300));
  return answer.json();
}

async function refresh() {
  try {
    const now = await get("/api/fleet");
    if (fleet && fleet.assets !== now.assets && sessionStorage.getItem("renewed") !== now.assets) {
      sessionStorage.setItem("renewed", now.assets);
      location.reload();
    }
    const first = !fleet;
    fleet = now;
    if (first) offer(now.window);
    heard = Date.now();
    draw();
    link(true);
    if (first) requestAnimationFrame(() => setTimeout(() => document.body.setAttribute("data-drawn", Math.round(performance.now()))));
  } catch {
    link(false);
  }
}

// offer puts the windows for which the hub keeps incidents into the form.
function offer(most) {
  const list = windows.filter(([hours]) => hours <= most);
  byID("hours").replaceChildren(...list.map(([value, text]) => make("option", { value, selected: value === 24 }, text)));
  incidents();
}

// asked is what the form asks for; an answer to an older one is dropped.
const asked = () => ({ victim: byID("victim").value.trim(), antagonist: byID("antagonist").value.trim(), hours: byID("hours").value, by: byID("by").value });

let turn = 0;
async function incidents() {
  const mine = ++turn, q = asked();
  try {
    const v = await get("/api/incidents?" + new URLSearchParams(q));
    if (mine === turn) tables.showIncidents(v, q);
  } catch (e) {
    if (mine === turn) byID("incident-count").textContent = `no answer: ${e.message}`;
  }
}

async function owners() {
  try {
    tables.showOwners(await get("/api/owners"));
  } catch (e) {
    byID("owner-count").textContent = `no answer: ${e.message}`;
  }
}

function ask(q) {
  byID("victim").value = q.victim || "";
  byID("antagonist").value = q.antagonist || "";
  incidents();
  byID("incidents").scrollIntoView({ block: "start" });
}

function again(wait, f) {
  const turn = async () => {
    if (!document.hidden) await f();
    setTimeout(turn, wait());
  };
  turn();
  document.addEventListener("visibilitychange", () => !document.hidden && f());
}

byID("measures").replaceChildren(...[["all", "all four"], ...measures].map(([key, name]) => make("button", { type: "button", "data-measure": key, "aria-pressed": String(key === "all"), on: { click: () => measure(key) } }, name)));
byID("order").replaceChildren(...Object.entries(orders).map(([value, text]) => make("option", { value }, text)));

function measure(key) {
  heat.measure = key;
  for (const b of byID("measures").children) b.setAttribute("aria-pressed", String(b.dataset.measure === key));
  heat.legend();
  draw();
}

byID("order").addEventListener("change", draw);
query.addEventListener("input", draw);
byID("search").addEventListener("submit", (e) => e.preventDefault());
byID("ask").addEventListener("submit", (e) => e.preventDefault());
byID("ask").addEventListener("change", incidents);
addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  if (e.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) {
    e.preventDefault();
    query.focus();
    query.select();
  } else if (e.key === "Escape") {
    if (selected !== undefined) select(undefined);
    else if (query.value) {
      query.value = "";
      draw();
    }
  }
});

const from = /^#node=(.+)$/.exec(location.hash);
if (from) {
  try {
    selected = decodeURIComponent(from[1]);
  } catch {
    selected = undefined; // not one of ours
  }
}

again(() => Math.max(shortest, (fleet?.every ?? 0) / 3), refresh);
again(() => slowly, () => Promise.all([incidents(), owners()]));
