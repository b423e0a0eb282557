// Elements made of values. Text is never parsed as markup; the page's policy forbids it.

export const byID = (id) => document.getElementById(id);

export function make(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function draw(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") for (const [event, f] of Object.entries(value)) element.addEventListener(event, f);
    else element.setAttribute(key === "className" ? "class" : key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== "").map((c) => (c instanceof Node ? c : String(c))));
  return element;
}

export const number = (v, digits = 2) => (v === undefined || v === null || !Number.isFinite(v) ? "–" : v.toFixed(digits));

export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export function moment(ms) {
  const d = new Date(ms);
  const today = new Date().toDateString() === d.toDateString();
  return (today ? "" : d.toLocaleDateString([], { month: "short", day: "numeric" }) + " ") + clock(ms);
}

export const until = (ms) => (ms ? ` until ${moment(ms)}` : "");

export function count(n, one) {
  return `${n} ${one}${n === 1 ? "" : "s"}`;
}
