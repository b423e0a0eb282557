// The timeline: what the pools, the CPI and the caps were over an hour or a day.

import { byID, make, draw, number, clock, moment } from "./dom.js";

const figures = [
  { title: "Pools, CPUs", lines: ["shared", "be", "exclusive", "withheld", "off"], areas: ["off"], rare: ["off", "withheld"], whole: true },
  { title: "Used and lent, CPUs", lines: ["production", "batch", "offer"], without: "not measured: suppression and lending are off" },
  { title: "CPI, cycles per instruction", lines: ["cpi", "cpiBatch"], without: "not counted" },
  { title: "Capped containers", lines: ["capped"], whole: true },
];
const size = { width: 640, height: 150, left: 40, right: 10, top: 10, bottom: 20 };

export class Timeline {
  // open(id) shows an incident.
  constructor(model, open) {
    this.model = model;
    this.open = open;
    this.seconds = 3600;
    this.cursor = undefined; // a time in seconds that is asked about
    this.drawn = [];
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

  paint() {
    const points = this.points();
    const index = new Map(this.model.series.map((s, i) => [s.key, i + 1]));
    const names = new Map(this.model.series.map((s) => [s.key, s.name]));
    const held = document.activeElement?.closest?.("#charts svg")?.dataset.chart;
    this.drawn = figures.map((f, i) => this.figure(f, i, points, index, names));
    byID("charts").replaceChildren(...this.drawn.map((d) => d.element));
    if (held !== undefined) byID("charts").querySelector(`svg[data-chart="${Number(held)}"]`)?.focus();
    this.cross();
  }

  figure(f, n, points, index, names) {
    // A rare series that is 0 throughout only hides others.
    const shown = (p, line) => p[index.get(line)] !== null && (p[index.get(line)] !== 0 || !f.rare?.includes(line));
    const known = f.lines.filter((line) => index.has(line) && points.some((p) => shown(p, line)));
    const area = (line) => f.areas?.includes(line);
    const key = (line) => draw("svg", { className: "key", viewBox: "0 0 30 10", "aria-hidden": "true" },
      area(line) ? draw("rect", { width: 30, height: 10, className: "area" }) : draw("line", { x1: 0, x2: 30, y1: 5, y2: 5, className: `line c${f.lines.indexOf(line) + 1}` }));
    const values = make("b", {}, f.title);
    const caption = make("figcaption", {}, values, known.map((line) => make("span", {}, key(line), " ", names.get(line))));
    let why = "";
    if (known.length === 0) {
      why = points.length === 0 ? "the first point comes within ten seconds" : f.without || "nothing is known yet";
      if (f.lines[0] === "cpi" && this.model.node?.cpi.why) why += ": " + this.model.node.cpi.why;
      caption.append(make("span", { className: "hint" }, why));
    }
    const top = Math.max(1, ...points.flatMap((p) => known.map((line) => p[index.get(line)] ?? 0)));
    const scale = nice(top, f.whole ? 1 : 0);
    const x = (t) => size.left + ((t - this.range[0]) / this.seconds) * (size.width - size.left - size.right);
    const y = (v) => size.height - size.bottom - (v / scale.top) * (size.height - size.top - size.bottom);
    const svg = draw("svg", { viewBox: `0 0 ${size.width} ${size.height}`, tabindex: 0, role: "img", "data-chart": n, "aria-label": `${f.title}; left and right arrow keys move over time` });
    for (let v = 0; v <= scale.top + 1e-9; v += scale.step)
      svg.append(draw("line", { className: "grid", x1: size.left, x2: size.width - size.right, y1: y(v), y2: y(v) }), draw("text", { x: size.left - 5, y: y(v) + 4, "text-anchor": "end" }, v.toFixed(scale.digits)));
    for (const t of ticks(this.range)) svg.append(draw("text", { x: x(t), y: size.height - 6, "text-anchor": x(t) > size.width - 24 ? "end" : "middle" }, clock(t * 1000).slice(0, 5)));
    const gap = this.seconds > 3600 ? 300 : 35;
    for (const line of known.filter(area)) svg.append(draw("path", { className: "area", d: under(points, index.get(line), x, y, gap) }));
    for (const line of known.filter((l) => !area(l))) svg.append(draw("path", { className: `line c${f.lines.indexOf(line) + 1}`, d: path(points, index.get(line), x, y, gap) }));
    for (const m of this.marks(f)) if (m.t >= this.range[0] && m.t <= this.range[1]) svg.append(this.mark(m, x(m.t)));
    const cross = draw("line", { className: "cross", y1: size.top, y2: size.height - size.bottom, visibility: "hidden" });
    svg.append(cross);
    svg.addEventListener("pointermove", (e) => {
      const r = svg.getBoundingClientRect();
      const at = ((e.clientX - r.left) / r.width) * size.width;
      this.point(this.range[0] + ((at - size.left) / (size.width - size.left - size.right)) * this.seconds);
    });
    svg.addEventListener("pointerleave", () => this.point(undefined));
    svg.addEventListener("blur", () => this.point(undefined));
    svg.addEventListener("keydown", (e) => this.key(e));
    return { element: make("figure", { className: "chart" }, caption, svg), cross, x };
  }

  // marks are incidents above CPI, and caps above the capped.
  marks(f) {
    if (f.lines[0] === "cpi") return this.model.incidents.incidents.map((i) => ({ t: Date.parse(i.at) / 1000, id: i.id, text: `${moment(Date.parse(i.at))}: ${i.victim}, CPI ${number(i.cpi)}` }));
    if (f.lines[0] === "capped") return this.model.changes.filter((c) => c.kind === "cap").map((c) => ({ t: c.at / 1000, text: `${moment(c.at)}: ${c.who} ${c.text}` }));
    return [];
  }

  // mark is a triangle that tells what happened; one of an incident opens it. By keyboard the list of incidents does.
  mark(m, x) {
    const open = m.id === undefined ? {} : { "data-incident": m.id, on: { click: () => this.open(m.id) } };
    return draw("path", { className: m.id === undefined ? "happened" : "happened opens", d: `M${x - 5} ${size.top - 9}h10l-5 9z`, ...open }, draw("title", {}, m.text));
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
    for (const d of this.drawn) {
      d.cross.setAttribute("visibility", p ? "visible" : "hidden");
      if (p) for (const end of ["x1", "x2"]) d.cross.setAttribute(end, d.x(p[0]));
    }
    byID("moment").textContent = p ? moment(p[0] * 1000) + " — " + this.model.series.map((s, i) => [s.name, p[i + 1]]).filter(([, v]) => v !== null).map(([n, v]) => `${n} ${round(v)}`).join(", ") : "";
  }
}

// path is a line of steps, broken where nothing was known for long.
export function path(points, i, x, y, gap) {
  let d = "", before;
  for (const p of points) {
    if (p[i] === null || p[i] === undefined) {
      before = undefined;
      continue;
    }
    const [px, py] = [x(p[0]).toFixed(1), y(p[i]).toFixed(1)];
    d += before !== undefined && p[0] - before <= gap ? `H${px}V${py}` : `M${px} ${py}h1`;
    before = p[0];
  }
  return d;
}

// under is the area between a line of steps and 0.
export function under(points, i, x, y, gap) {
  let d = "";
  points.forEach((p, n) => {
    const next = points[n + 1];
    if (!p[i]) return;
    const width = next && next[0] - p[0] <= gap ? x(next[0]) - x(p[0]) : 1;
    d += `M${x(p[0]).toFixed(1)} ${y(0).toFixed(1)}V${y(p[i]).toFixed(1)}h${width.toFixed(1)}V${y(0).toFixed(1)}z`;
  });
  return d;
}

function nearest(points, t) {
  let best = 0;
  points.forEach((p, i) => {
    if (Math.abs(p[0] - t) < Math.abs(points[best][0] - t)) best = i;
  });
  return best;
}

// nice is a scale from 0 with round steps, none of them below least.
export function nice(top, least = 0) {
  const rough = Math.max(top / 4, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
  return { step, top: Math.ceil(top / step - 1e-9) * step, digits: step >= 1 ? 0 : Math.ceil(-Math.log10(step) - 1e-9) };
}

const round = (v) => (Number.isInteger(v) ? String(v) : number(v, Math.abs(v) < 10 ? 2 : 1));

function ticks([from, to]) {
  const step = to - from > 7200 ? 4 * 3600 : 900;
  const zone = new Date(to * 1000).getTimezoneOffset() * 60;
  const list = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) list.push(t);
  return list;
}
