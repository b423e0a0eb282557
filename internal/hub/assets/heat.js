// The heat map: a button for each node, with a cell for each measure, shaded and numbered by its part of the node's CPUs.

import { byID, make, number, count, moment } from "./dom.js";

export const measures = [
  ["used", "used", "by containers, and where lending measures it by the whole node"],
  ["exclusive", "exclusive", "owned by one pod or claim"],
  ["lent", "lent", "offered to batch pods"],
  ["withheld", "suppressed", "that best effort is kept off"],
];
const namedUpTo = 48;

// part is a measure's share of the node's CPUs in percent, undefined where it is not known.
export function part(node, key) {
  const v = node[key];
  return v === null || v === undefined || !node.cpus ? undefined : Math.round((100 * v) / node.cpus);
}

export const silent = (node) => Boolean(node.wrong) || !node.heard;

function level(p) {
  if (p === undefined) return "unknown";
  return "h" + (p <= 0 ? 0 : p < 15 ? 1 : p < 40 ? 2 : p < 65 ? 3 : p < 90 ? 4 : 5);
}

export function ago(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

export class HeatView {
  constructor(select) {
    this.select = select;
    this.map = byID("map");
    this.tip = byID("tip");
    this.tiles = new Map(); // by name: { button, cells, text }
    this.nodes = new Map();
    this.order = [];
    this.measure = "all";
    this.map.addEventListener("click", (e) => this.choose(nameOf(e.target)));
    this.map.addEventListener("pointerover", (e) => this.hover(nameOf(e.target)));
    this.map.addEventListener("pointerleave", () => this.hideTip());
    this.map.addEventListener("focusin", (e) => e.target.matches(":focus-visible") && this.hover(nameOf(e.target)));
    this.map.addEventListener("focusout", () => this.hideTip());
    this.map.addEventListener("keydown", (e) => this.key(e));
    addEventListener("scroll", () => this.hideTip(), { passive: true });
    this.legend();
  }

  shown() {
    return this.measure === "all" ? measures : measures.filter(([key]) => key === this.measure);
  }

  // show draws these nodes in this order, and touches only what changed.
  show(list, now, selected) {
    this.now = now;
    this.nodes = new Map(list.map((n) => [n.name, n]));
    const look = `${this.measure === "all" ? "" : "one"} ${list.length <= namedUpTo ? "named" : ""}`.trim();
    if (this.map.className !== look) this.map.className = look;
    for (const [name, tile] of this.tiles) {
      if (this.nodes.has(name)) continue;
      tile.button.remove();
      this.tiles.delete(name);
    }
    const order = list.map((n) => n.name);
    const buttons = list.map((n) => this.paint(n, selected));
    if (order.length !== this.order.length || order.some((name, i) => name !== this.order[i])) {
      const held = nameOf(document.activeElement);
      this.map.replaceChildren(...buttons);
      this.tiles.get(held)?.button.focus();
    }
    this.order = order;
    this.reach(this.tiles.has(this.at) ? this.at : order[0]);
  }

  paint(node, selected) {
    let tile = this.tiles.get(node.name);
    if (!tile) {
      tile = { button: make("button", { type: "button", "data-node": node.name, tabindex: -1 }) };
      this.tiles.set(node.name, tile);
    }
    const gone = silent(node);
    const cells = this.shown().map(([key]) => {
      const p = gone && !node.measured ? undefined : part(node, key);
      return [key, level(p), p === undefined ? "–" : String(p)];
    });
    const named = this.map.classList.contains("named");
    const text = JSON.stringify([cells, gone, named, node.problems?.length > 0, selected === node.name, this.label(node)]);
    if (tile.text === text) return tile.button;
    tile.text = text;
    tile.button.setAttribute("class", "tile" + (gone ? " silent" : node.problems?.length ? " unwell" : ""));
    tile.button.setAttribute("aria-pressed", String(selected === node.name));
    tile.button.setAttribute("aria-label", this.label(node));
    tile.button.replaceChildren(
      ...(named ? [make("span", { className: "name" }, node.name)] : []),
      ...cells.map(([key, heat, p]) => make("span", { className: `cell ${key} ${heat}` }, p)));
    return tile.button;
  }

  label(node) {
    if (silent(node) && !node.measured) return `${node.name}: no answer`;
    const said = measures.map(([key, name]) => [name, part(node, key)]).filter(([, p]) => p !== undefined);
    return `${node.name}: ${silent(node) ? "no answer, by Prometheus " : ""}${count(node.cpus, "CPU")}${said.map(([name, p]) => `, ${p} % ${name}`).join("")}${node.problems?.length ? ", has problems" : ""}`;
  }

  legend() {
    const sample = (key, heat, text) => make("span", { className: `cell ${key} ${heat}`, "aria-hidden": "true" }, text);
    byID("legend").replaceChildren(
      ...this.shown().map(([key, name, what]) => make("li", { title: what }, sample(key, "h1", "9"), sample(key, "h3", "50"), sample(key, "h5", "99"), `${name}, % of the node's CPUs`)),
      make("li", {}, make("span", { className: "tile unwell", "aria-hidden": "true" }), "has problems"),
      make("li", {}, make("span", { className: "tile silent", "aria-hidden": "true" }), "did not answer"),
      make("li", {}, "–", " not known"));
  }

  reach(name) {
    this.tiles.get(this.at)?.button.setAttribute("tabindex", "-1");
    this.at = name;
    this.tiles.get(name)?.button.setAttribute("tabindex", "0");
  }

  choose(name) {
    if (name === undefined) return;
    this.reach(name);
    this.select(name);
  }

  key(e) {
    const from = nameOf(e.target);
    if (from === undefined || e.ctrlKey || e.altKey || e.metaKey) return;
    const i = this.order.indexOf(from);
    const row = this.columns();
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, ArrowDown: i + row, ArrowUp: i - row, Home: 0, End: this.order.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const name = this.order[to];
    if (name === undefined) return;
    this.reach(name);
    this.tiles.get(name).button.focus();
  }

  // columns is how many tiles the first row has.
  columns() {
    const top = this.tiles.get(this.order[0]).button.offsetTop;
    const n = this.order.findIndex((name) => this.tiles.get(name).button.offsetTop > top);
    return n < 0 ? this.order.length : n;
  }

  hover(name) {
    const node = this.nodes.get(name);
    if (!node) {
      this.hideTip();
      return;
    }
    const lines = [`${node.name}: ${node.cpus ? count(node.cpus, "CPU") : "never answered"}`];
    if (silent(node)) {
      if (node.wrong) lines.push(node.wrong);
      if (node.heard) lines.push(`it answered last at ${moment(node.heard)}, ${ago(this.now - node.heard)} ago`);
    } else {
      lines.push(measures.filter(([key]) => node[key] !== null).map(([key, word]) => `${word} ${number(node[key], 1)}`).join(", "));
      lines.push(...(node.problems || []).slice(0, 3));
    }
    this.tip.replaceChildren(...lines.map((l) => make("p", {}, l)));
    this.tip.hidden = false;
    const r = this.tiles.get(name).button.getBoundingClientRect();
    const size = this.tip.getBoundingClientRect();
    const top = r.bottom + 8 + size.height > innerHeight ? r.top - size.height - 8 : r.bottom + 8;
    this.tip.style.left = Math.max(4, Math.min(r.left, innerWidth - size.width - 4)) + "px";
    this.tip.style.top = Math.max(4, top) + "px";
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

function nameOf(element) {
  return element?.closest?.("#map [data-node]")?.dataset.node;
}
