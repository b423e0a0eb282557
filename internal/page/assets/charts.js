// Charts over time, which uPlot draws: in the page's colours, as wide as their place, and with what the pointer asks about.
/* global uPlot */

import { clock } from "./dom.js";

const setting = matchMedia("(prefers-color-scheme: dark)");
const dashes = [undefined, [7, 3], [2, 3], [9, 3, 2, 3], [4, 5]]; // as in style.css
const wholes = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
const none = () => null;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// line is a series of steps in the n-th colour, area one that is filled down to 0.
export const line = (n) => ({ stroke: () => colour(`--s${n}`), dash: dashes[n - 1], width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } });
export const area = () => ({ fill: () => colour("--hatch") + "8c", width: 0, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } });

export class Chart {
  // series are those of line and area. range returns the first and the last time, in seconds; drawn is called with the
  // chart after each time that it is drawn; pointed(time) with what is pointed at, undefined: nothing.
  constructor(place, { series, range, height, whole, drawn, pointed }) {
    const axis = { stroke: () => colour("--soft"), font: `11px ${getComputedStyle(place).fontFamily}`, ticks: { show: false } };
    this.place = place;
    this.plot = new uPlot({
      width: Math.max(1, place.clientWidth), height, padding: [10, 20, 0, 0], legend: { show: false },
      series: [{}, ...series],
      scales: { x: { range }, y: { range: (_, least, most) => [0, Math.max(1, most ?? 0) * 1.08] } },
      axes: [
        { ...axis, size: 22, grid: { show: false }, values: (_, times) => times.map((t) => clock(t * 1000).slice(0, 5)) },
        { ...axis, size: 44, space: 24, grid: { stroke: () => colour("--line"), width: 1 }, ...(whole && { incrs: wholes }) },
      ],
      cursor: { y: false, points: { show: false }, bind: { mousedown: none, mouseup: none, click: none, dblclick: none, mousemove: none, mouseleave: none, mouseenter: none } },
      hooks: { draw: [() => drawn?.(this)] },
    }, [range(), ...series.map(() => [null, null])], place);
    this.over = this.plot.over;
    this.over.addEventListener("pointermove", (e) => pointed?.(this.plot.posToVal(e.clientX - this.over.getBoundingClientRect().left, "x")));
    this.over.addEventListener("pointerleave", () => pointed?.(undefined));
    this.recolour = () => this.plot.redraw(false);
    setting.addEventListener("change", this.recolour);
    this.resized = new ResizeObserver(() => {
      if (place.clientWidth > 0 && place.clientWidth !== this.plot.width) this.plot.setSize({ width: place.clientWidth, height });
    });
    this.resized.observe(place);
  }

  // at is where a time is, in pixels from the left of what is drawn.
  at(time) {
    return this.plot.valToPos(time, "x");
  }

  // point has a line at a time; undefined: none.
  point(time) {
    this.plot.setCursor({ left: time === undefined ? -10 : this.at(time), top: 0 }, false);
  }

  set(data) {
    this.plot.setData(data);
  }

  // end lets go of everything that would keep it.
  end() {
    setting.removeEventListener("change", this.recolour);
    this.resized.disconnect();
    this.plot.destroy();
  }
}

// columns are points as uPlot takes them: times, then the values at each index. The last value before more than gap
// seconds without a point is held for hold seconds, and nothing is known from there on.
export function columns(points, indexes, gap, hold) {
  const out = [[], ...indexes.map(() => [])];
  const add = (time, value) => {
    out[0].push(time);
    indexes.forEach((index, n) => out[n + 1].push(value(index)));
  };
  points.forEach((p, n) => {
    const value = (index) => p[index] ?? null;
    add(p[0], value);
    if (n < points.length - 1 && points[n + 1][0] - p[0] > gap) {
      add(p[0] + hold, value);
      add(p[0] + hold + 0.001, none);
    }
  });
  return out;
}
