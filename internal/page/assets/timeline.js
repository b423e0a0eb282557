// The timeline: what the pools, the CPI and the caps were over an hour or a day.

import { byID, make, draw, number, moment } from "./dom.js";
import { Chart, area, columns, line } from "./charts.js";

const figures = [
  { title: "Pools, CPUs", lines: ["shared", "be", "exclusive", "withheld", "off"], areas: ["off"], rare: ["off", "withheld"], whole: true },
  { title: "Used and lent, CPUs", lines: ["production", "batch", "offer"], without: "not measured: suppression and lending are off" },
  { title: "CPI, cycles per instruction", lines: ["cpi", "cpiBatch"], without: "not counted" },
  { title: "Capped containers", lines: ["capped"], whole: true },
];
const height = 160;

export class Timeline {
  // open(id) shows an incident.
  constructor(model, open) {
    this.model = model;
    this.open = open;
    this.seconds = 3600;
    this.range = [Date.now() / 1000 - this.seconds, Date.now() / 1000];
    this.cursor = undefined; // a time in seconds that is asked about
    this.drawn = figures.map((f) => this.figure(f));
    byID("charts").replaceChildren(...this.drawn.map((d) => d.element));
    byID("hour").addEventListener("click", () => this.choose(3600));
    byID("day").addEventListener("click", () => this.choose(86400));
  }

  choose(seconds) {
    this.seconds = seconds;
    byID("hour").setAttribute("aria-pressed", String(seconds === 3600));
    byID("day").setAttribute("aria-pressed", String(seconds === 86400));
    this.paint();
  }

  points() {
    const { fine, coarse } = this.model;
    let list = fine;
    if (this.seconds > 3600) {
      const from = coarse.at(-1)?.[0] ?? -Infinity;
      list = [...coarse, ...fine.filter((p) => p[0] > from + 120)];
    }
    const end = list.at(-1)?.[0] ?? Date.now() / 1000;
    this.range = [end - this.seconds, end];
    return list.filter((p) => p[0] >= this.range[0]);
  }

  // figure is a chart with its caption, before anything is known.
  figure(f) {
    const place = make("div", { className: "plot", tabindex: 0, role: "img", "aria-label": `${f.title}; left and right arrow keys move over time`,
      on: { keydown: (e) => this.key(e), blur: () => this.point(undefined) } });
    const caption = make("figcaption");
    return { f, place, caption, element: make("figure", { className: "chart" }, caption, place), chart: undefined, lines: undefined };
  }

  paint() {
    const points = this.points();
    const index = new Map(this.model.series.map((s, i) => [s.key, i + 1]));
    for (const d of this.drawn) {
      // A rare series that is 0 throughout only hides others.
      const shown = (p, key) => p[index.get(key)] !== null && (p[index.get(key)] !== 0 || !d.f.rare?.includes(key));
      const known = d.f.lines.filter((key) => index.has(key) && points.some((p) => shown(p, key)));
      this.caption(d, known, points, index);
      this.chart(d, known);
      const indexes = known.map((key) => index.get(key));
      const day = this.seconds > 3600;
      d.chart.set(points.length ? columns(points, indexes, day ? 300 : 35, day ? 120 : 10) : [this.range, ...known.map(() => [null, null])]);
    }
    this.cross();
  }

  // chart makes the chart of these lines, unless it is there.
  chart(d, known) {
    const lines = known.join();
    if (d.lines === lines) return;
    d.chart?.end();
    d.lines = lines;
    const series = known.map((key) => (d.f.areas?.includes(key) ? area() : line(d.f.lines.indexOf(key) + 1)));
    d.chart = new Chart(d.place, { series, height, whole: d.f.whole, range: () => this.range, drawn: (chart) => this.mark(d.f, chart), pointed: (t) => this.point(t) });
  }

  caption(d, known, points, index) {
    const names = new Map(this.model.series.map((s) => [s.key, s.name]));
    const key = (k) => draw("svg", { className: "key", viewBox: "0 0 30 10", "aria-hidden": "true" },
      d.f.areas?.includes(k) ? draw("rect", { width: 30, height: 10, className: "area" }) : draw("line", { x1: 0, x2: 30, y1: 5, y2: 5, className: `line c${d.f.lines.indexOf(k) + 1}` }));
    const drawn = (k) => points.filter((p) => (p[index.get(k)] ?? null) !== null).length;
    let why = "";
    if (known.length === 0) {
      why = points.length === 0 ? "the first point comes within ten seconds" : d.f.without || "nothing is known yet";
      if (d.f.lines[0] === "cpi" && this.model.node?.cpi.why) why += ": " + this.model.node.cpi.why;
    }
    d.caption.replaceChildren(make("b", {}, d.f.title), ...known.map((k) => make("span", { "data-line": k, "data-points": drawn(k) }, key(k), " ", names.get(k))), ...(why ? [make("span", { className: "hint" }, why)] : []));
  }

  // marks are incidents above CPI, and caps above the capped.
  marks(f) {
    if (f.lines[0] === "cpi") return this.model.incidents.incidents.map((i) => ({ t: Date.parse(i.at) / 1000, id: i.id, text: `${moment(Date.parse(i.at))}: ${i.victim}, CPI ${number(i.cpi)}` }));
    if (f.lines[0] === "capped") return this.model.changes.filter((c) => c.kind === "cap").map((c) => ({ t: c.at / 1000, text: `${moment(c.at)}: ${c.who} ${c.text}` }));
    return [];
  }

  // mark draws triangles that tell what happened; one of an incident opens it. By keyboard the list of incidents does.
  mark(f, chart) {
    for (const old of chart.over.querySelectorAll(".happened")) old.remove();
    chart.over.append(...this.marks(f).filter((m) => m.t >= this.range[0] && m.t <= this.range[1]).map((m) => {
      const open = m.id === undefined ? {} : { "data-incident": m.id, on: { click: () => this.open(m.id) } };
      const element = draw("svg", { className: m.id === undefined ? "happened" : "happened opens", viewBox: "0 0 10 9", ...open }, draw("title", {}, m.text), draw("path", { d: "M0 0h10l-5 9z" }));
      element.style.left = `${chart.at(m.t) - 5}px`;
      return element;
    }));
  }

  key(e) {
    if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
    e.preventDefault();
    const points = this.points();
    if (points.length === 0) return;
    let i = this.cursor === undefined ? points.length : nearest(points, this.cursor);
    i = Math.max(0, Math.min(points.length - 1, i + (e.key === "ArrowLeft" ? -1 : 1)));
    this.point(points[i][0]);
  }

  point(t) {
    this.cursor = t;
    this.cross();
  }

  cross() {
    const points = this.cursor === undefined ? [] : this.points();
    const p = points[nearest(points, this.cursor)];
    for (const d of this.drawn) d.chart?.point(p?.[0]);
    byID("moment").textContent = p ? moment(p[0] * 1000) + " — " + this.model.series.map((s, i) => [s.name, p[i + 1]]).filter(([, v]) => v !== null).map(([n, v]) => `${n} ${round(v)}`).join(", ") : "";
  }
}

function nearest(points, t) {
  let best = 0;
  points.forEach((p, i) => {
    if (Math.abs(p[0] - t) < Math.abs(points[best][0] - t)) best = i;
  });
  return best;
}

const round = (v) => (Number.isInteger(v) ? String(v) : number(v, Math.abs(v) < 10 ? 2 : 1));
