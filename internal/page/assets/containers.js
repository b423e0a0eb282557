// The list of containers, the busiest first. Only the rows that are seen are made, so that 5,000 cost what 30 do.

import { byID, make, number, until } from "./dom.js";
import { podKey } from "./model.js";

const beyond = 8; // rows that are made above and below what is seen
const near = 200; // rows: so far from what is seen the row with the focus stays
const guess = 28; // a row's height in pixels, until one is measured
const columns = [["name", "Container"], ["class", "Class"], ["pool", "Pool"], ["cpus", "CPUs"], ["use", "Uses", "n"], ["cpi", "CPI", "n"], ["quota", "Quota", "n"], ["why", "Why"]];

export class Containers {
  constructor(model, select) {
    this.model = model;
    this.select = select;
    this.list = [];
    this.rows = new Map(); // the rows that are made, by container
    this.height = guess;
    this.table = byID("container-list");
    this.window = this.table.parentElement;
    const head = columns.map(([key, title, look]) => make("th", { scope: "col", className: look, "aria-sort": key === "use" ? "descending" : undefined }, title));
    this.above = make("tr", { "aria-hidden": "true" }, make("td", { className: "space", colspan: columns.length }));
    this.below = make("tr", { "aria-hidden": "true" }, make("td", { className: "space", colspan: columns.length }));
    this.body = make("tbody", {}, this.above, this.below);
    this.table.replaceChildren(make("colgroup", {}, columns.map(([key]) => make("col", { className: "of-" + key }))), make("thead", {}, make("tr", { "aria-rowindex": 1 }, head)), this.body);
    this.window.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("focusin", () => this.draw()); // keys come faster than frames
    new ResizeObserver(() => this.draw()).observe(this.window);
  }

  // show lists the containers, or only those of the pods that were found.
  show(found) {
    const { containers, samples, more } = this.model;
    const list = (found ? containers.filter((c) => found.has(podKey(c))) : containers).map((c) => ({ c, use: samples[c.id]?.windowUsage ?? -1, name: `${podKey(c)}/${c.container}` }));
    const place = this.places();
    this.list = list.sort((a, b) => place(a) - place(b) || b.use - a.use || (a.name < b.name ? -1 : 1));
    const total = containers.length + more;
    byID("container-count").textContent = (list.length === total ? String(total) : `${list.length} of ${total}`) + (list.length > 1 ? ", the busiest first" : "");
    this.table.setAttribute("aria-rowcount", this.list.length + 1);
    this.draw();
  }

  // places keeps the order while somebody is in the list with the keyboard: what was there stays, what is new comes last.
  places() {
    if (!this.body.querySelector(":focus-visible")) return () => 0;
    const places = new Map(this.list.map(({ c }, i) => [c.id, i]));
    return ({ c }) => places.get(c.id) ?? places.size;
  }

  // draw makes the rows that are seen. Rows that stay are the same elements, so that a focus stays in them.
  draw() {
    const n = this.list.length;
    const top = this.window.scrollTop;
    const held = document.activeElement?.closest?.("tr");
    let [from, to] = [Math.floor(top / this.height), Math.ceil((top + this.window.clientHeight) / this.height)];
    const at = this.body.contains(held) ? held.getAttribute("aria-rowindex") - 2 : from;
    if (Math.abs(at - from) < near) [from, to] = [Math.min(from, at), Math.max(to, at + 1)]; // Tab goes on from there
    const first = Math.max(0, Math.min(from, n) - beyond);
    const last = Math.min(n, to + beyond);
    const before = this.rows;
    this.rows = new Map();
    for (let i = first; i < last; i++) {
      const id = this.list[i].c.id;
      const row = before.get(id) || this.row(this.list[i]);
      before.delete(id);
      this.rows.set(id, row);
      this.fill(row, this.list[i], i);
    }
    for (const row of before.values()) row.remove();
    let place = this.above.nextSibling;
    for (const row of this.rows.values()) {
      if (row === place) place = place.nextSibling;
      else this.body.insertBefore(row, place);
    }
    if (held && held !== document.activeElement?.closest?.("tr") && held.isConnected) held.querySelector("button")?.focus({ preventScroll: true });
    space(this.above, first * this.height);
    space(this.below, (n - last) * this.height);
    this.measure();
  }

  // measure takes a row's height as it is drawn: fonts differ, and browsers enlarge.
  measure() {
    const row = this.rows.values().next().value;
    const height = row?.getBoundingClientRect().height;
    if (!height || Math.abs(height - this.height) < 0.01) return;
    this.height = height;
    this.draw();
  }

  row({ c, name }) {
    const link = make("button", { type: "button", className: "as-link", title: name, on: { click: () => this.select({ kind: "pod", key: podKey(c) }) } }, name);
    return make("tr", {}, make("td", {}, link), columns.slice(1).map(([, , look]) => make("td", { className: look })));
  }

  // fill writes what a row shows, where it changed.
  fill(row, { c, use }, i) {
    set(row, "aria-rowindex", i + 2);
    const quota = c.capMilli ? `${c.capMilli}m capped${until(c.capUntil)}` : c.quotaMilli < 0 ? "none" : `${c.quotaMilli}m`;
    const texts = [c.class, c.pool, this.model.cpusOf(c), use < 0 ? "–" : number(use), number(this.model.samples[c.id]?.cpi), quota, c.why];
    texts.forEach((text, n) => {
      const cell = row.children[n + 1];
      if (cell.textContent === text) return;
      cell.textContent = text;
      if (["cpus", "quota", "why"].includes(columns[n + 1][0])) cell.title = text; // it may be cut
    });
    row.children[columns.findIndex(([key]) => key === "quota")].classList.toggle("capped", c.capMilli > 0);
  }
}

function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function space(row, height) {
  const text = height + "px";
  if (row.firstChild.style.height !== text) row.firstChild.style.height = text;
  row.hidden = height === 0;
}
