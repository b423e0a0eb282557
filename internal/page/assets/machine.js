// The drawing of the machine: a button for each CPU, nested in its core, L3, NUMA node and socket.

import { byID, make, count } from "./dom.js";
import { words, poolOf, ownerTag, ownerName, podKey } from "./model.js";

const colours = 8;
const denseFrom = 96;
const mostNamed = 3;
const apart = 25; // points from the middle load from where on a large machine has a number
const signs = { in: "~", off: "×", never: "-" }; // whether best effort runs on a CPU
const meanings = { in: "best effort may run there too", off: "best effort is kept off for now", never: "best effort never runs there" };

export class MachineView {
  constructor(model, select) {
    this.model = model;
    this.select = select;
    this.map = byID("map");
    this.tip = byID("tip");
    this.buttons = new Map();
    this.order = [];
    this.at = undefined; // the CPU that Tab leads to
    this.hits = undefined; // a Set: what is searched for or selected
    this.byLoad = false; // else by owner
    byID("by-owner").addEventListener("click", () => this.choose(false));
    byID("by-load").addEventListener("click", () => this.choose(true));
    this.map.addEventListener("click", (e) => {
      const cpu = cpuOf(e.target);
      if (cpu !== undefined) {
        this.reach(cpu);
        this.select({ kind: "cpu", id: cpu });
      }
    });
    this.map.addEventListener("pointerover", (e) => this.hover(e));
    this.map.addEventListener("pointerleave", () => this.hideTip());
    this.map.addEventListener("focusin", (e) => {
      const cpu = cpuOf(e.target);
      if (cpu !== undefined && e.target.matches(":focus-visible")) this.showTip(cpu, this.buttons.get(cpu));
    });
    this.map.addEventListener("focusout", () => this.hideTip());
    this.map.addEventListener("keydown", (e) => this.key(e));
    this.narrow = matchMedia("(max-width: 900px)"); // as in style.css
    addEventListener("scroll", () => (this.narrow.matches ? this.aside() : this.hideTip()), { passive: true });
  }

  // build redraws the machine, when CPUs go online or offline.
  build() {
    const held = cpuOf(document.activeElement);
    this.buttons = new Map();
    this.order = [];
    const m = this.model.machine;
    const cpus = [...this.model.places.keys()];
    this.dense = cpus.length >= denseFrom;
    this.map.classList.toggle("dense", this.dense);
    const box = (name, title, children) => make("div", { className: name }, make("h3", { className: "place" }, title), children);
    this.map.replaceChildren(
      ...m.sockets.map((s) =>
        box("socket", `socket ${s.id}`, make("div", { className: "nodes" }, s.nodes.map((n) =>
          box("numa", `NUMA node ${n.id}${memory(n.memoryBytes)}`, make("div", { className: "l3s" }, n.l3s.map((l) =>
            box("l3", `L3 ${l.id}`, this.cores(l.cores))))))))));
    if (m.memoryOnly?.length) this.map.append(make("p", { className: "hint" }, `memory only: NUMA ${m.memoryOnly.map((n) => "node " + n).join(", ")}`));
    const sum = (f) => m.sockets.reduce((n, s) => n + f(s), 0);
    const l3s = new Set(), nodes = new Set();
    for (const place of this.model.places.values()) l3s.add(place.l3), nodes.add(place.node);
    const cores = sum((s) => s.nodes.reduce((n, o) => n + o.l3s.reduce((k, l) => k + l.cores.length, 0), 0));
    byID("size").textContent = [count(m.sockets.length, "socket"), count(nodes.size, "NUMA node"), `${l3s.size} L3`, count(cores, "core"), count(cpus.length, "CPU")].join(" · ");
    this.reach(this.buttons.has(this.at) ? this.at : this.order[0]);
    this.buttons.get(held)?.focus();
    this.paint();
  }

  // Cores are laid out about twice as wide as high.
  cores(list) {
    const box = make("div", { className: "cores" }, list.map((c) => this.core(c)));
    box.style.setProperty("--columns", list.length <= 4 ? list.length : Math.max(4, Math.ceil(Math.sqrt(list.length * 1.5))));
    return box;
  }

  core(c) {
    const title = c.efficiency ? `efficiency core ${c.id}` : `core ${c.id}`;
    return make("div", { className: "core" + (c.efficiency ? " efficiency" : ""), role: "group", "aria-label": title }, c.cpus.map((id) => {
      const button = make("button", { type: "button", className: "cpu", "data-cpu": id, tabindex: -1, "aria-pressed": "false" }, make("span", { className: "tag" }), make("span", { className: "id" }, id));
      this.buttons.set(id, button);
      this.order.push(id);
      return button;
    }));
  }

  // choose has the cells show load or owner.
  choose(byLoad) {
    this.byLoad = byLoad;
    set(byID("by-owner"), "aria-pressed", String(!byLoad));
    set(byID("by-load"), "aria-pressed", String(byLoad));
    this.paint();
  }

  // loaded takes over new loads. There is no switch where the daemon knows none.
  loaded() {
    byID("shows").hidden = false;
    if (this.byLoad) this.paint();
  }

  // paint updates every CPU's appearance, and touches only what changed.
  paint() {
    const used = new Set();
    this.norm = this.usual();
    for (const [id, button] of this.buttons) {
      const mark = this.model.marks.get(id);
      const pool = poolOf(mark);
      const owned = mark?.owner !== undefined;
      used.add(pool);
      const { look, tag, sign } = this.byLoad ? this.load(id, pool) : this.belongs(mark, pool);
      const parts = ["cpu", look];
      if (owned) parts.push("owned", "owner-" + (mark.owner % colours));
      if (this.hits) parts.push(this.hits.has(id) ? "hit" : "dim");
      set(button, "aria-label", this.label(id));
      set(button, "aria-pressed", String(this.selected === id));
      if (button.firstChild.textContent !== tag) button.firstChild.textContent = tag;
      if (sign) parts.push("marked");
      set(button, "class", parts.join(" "));
      const there = button.querySelector(".mark");
      if (there?.textContent !== (sign || undefined)) {
        there?.remove();
        if (sign) button.append(make("span", { className: "mark", "aria-hidden": "true" }, sign));
      }
    }
    this.legend(used);
  }

  // usual is what a large machine does not mark, since most CPUs have it: in each pool where best effort runs, which
  // pool without owners is the largest, and the load in the middle. A small machine marks everything.
  usual() {
    const norm = { be: new Map(), pool: undefined, load: undefined };
    if (!this.dense) return norm;
    const pools = new Map();
    for (const mark of this.model.marks.values()) {
      const pool = poolOf(mark);
      if (!pools.has(pool)) pools.set(pool, { free: 0, in: 0, never: 0, off: 0 });
      pools.get(pool)[mark.be || "never"]++;
      if (mark.owner === undefined) pools.get(pool).free++;
    }
    let most = 0;
    for (const [pool, { free, ...be }] of pools) {
      norm.be.set(pool, Object.keys(be).reduce((best, one) => (be[one] > be[best] ? one : best)));
      if (free > most) [most, norm.pool] = [free, pool];
    }
    const loads = this.loads().sort((a, b) => a - b);
    norm.load = loads[Math.floor(loads.length / 2)];
    return norm;
  }

  loads() {
    return [...this.buttons.keys()].map((id) => this.model.busy(id)).filter((busy) => busy !== undefined);
  }

  // belongs is how a CPU is drawn by its owner.
  belongs(mark, pool) {
    const owned = mark?.owner !== undefined && pool !== "withheld";
    const tag = owned ? ownerTag(mark.owner) : pool === this.norm.pool ? "" : words[pool].tag;
    return { look: pool, tag, sign: this.sign(mark, pool, owned) };
  }

  // sign says where best effort runs: on a large machine where that is not as on the rest of the pool, else where it
  // runs on an owner's CPU or is kept off one.
  sign(mark, pool, owned) {
    const be = mark?.be || "never";
    if (this.dense) return be === this.norm.be.get(pool) ? "" : signs[be];
    return be === "off" || (be === "in" && owned) ? signs[be] : "";
  }

  // load is how a CPU is drawn by its load: full up to it, with the number.
  load(id, pool) {
    const busy = this.model.busy(id);
    if (pool === "offline") return { look: pool, tag: words[pool].tag };
    const height = (busy ?? 0) + "%";
    const style = this.buttons.get(id).style;
    if (style.getPropertyValue("--load") !== height) style.setProperty("--load", height);
    const usual = this.norm.load !== undefined && Math.abs(busy - this.norm.load) < apart;
    return { look: "load", tag: usual ? "" : String(busy ?? "?") };
  }

  label(id) {
    const mark = this.model.marks.get(id);
    const pool = words[poolOf(mark)].name;
    const owner = this.owner(mark);
    return `CPU ${id}: ${pool}${owner ? ", " + ownerName(owner) : ""}${mark?.be === "off" ? ", best effort kept off" : ""}${this.byLoad ? this.inWords(id) : ""}`;
  }

  inWords(id) {
    const busy = this.model.busy(id);
    return busy === undefined ? "" : `, ${busy} % busy`;
  }

  owner(mark) {
    return mark?.owner === undefined ? undefined : this.model.owners[mark.owner];
  }

  legend(used) {
    const items = this.byLoad ? this.loadLegend() : this.ownerLegend(used);
    const text = JSON.stringify(items);
    if (text === this.legendText) return;
    this.legendText = text;
    byID("legend").replaceChildren(...items.map(([look, tag, name]) => make("li", {}, make("span", { className: "cpu " + look, "aria-hidden": "true" }, make("span", { className: "tag" }, tag)), name)));
  }

  loadLegend() {
    const loads = this.loads();
    if (loads.length === 0) return [["load", "?", "the load is known in some seconds"]];
    const mean = loads.reduce((sum, busy) => sum + busy, 0) / loads.length;
    const items = [["load half", "50", `percent of the last seconds in which the CPU was busy; ${mean.toFixed(0)} % on average`]];
    if (this.norm.load !== undefined) items.push(["load", "", `no number: less than ${apart} from ${this.norm.load} %, the load in the middle`]);
    if (this.model.owners.length) items.push(["owned owner-1", "", "a bar: it has an owner"]);
    return items;
  }

  ownerLegend(used) {
    const items = Object.keys(words).filter((w) => used.has(w)).map((w) => [w, w === this.norm.pool ? "" : words[w].tag, words[w].name + this.size(w) + this.rule(w)]);
    if (this.model.owners.length) items.push(["", "A", "a letter and a bar: whose it is"]);
    const seen = new Set([...this.model.marks.values()].map((m) => this.belongs(m, poolOf(m)).sign));
    for (const [be, sign] of Object.entries(signs)) if (seen.has(sign)) items.push(["", sign, `in a corner: ${meanings[be]}${this.dense ? ", unlike on the rest" : ""}`]);
    return items;
  }

  // rule says what a pool's CPUs without a sign have in common.
  rule(pool) {
    const be = this.norm.be.get(pool);
    const owned = ["lse", "lsr", "exclusive", "kubelet"].includes(pool);
    return be === "off" || (be === "in" && owned) ? `, ${meanings[be]}` : "";
  }

  size(pool) {
    let n = 0;
    for (const m of this.model.marks.values()) if (poolOf(m) === pool) n++;
    return ` (${n})`;
  }

  // show highlights the selection or the search results; undefined: none.
  show(hits, selected) {
    this.hits = hits;
    this.selected = selected;
    this.paint();
  }

  reach(cpu) {
    if (cpu === undefined) return;
    this.buttons.get(this.at)?.setAttribute("tabindex", "-1");
    this.at = cpu;
    this.buttons.get(cpu)?.setAttribute("tabindex", "0");
  }

  focus() {
    this.buttons.get(this.at)?.focus();
  }

  key(e) {
    const from = cpuOf(e.target);
    if (from === undefined || e.ctrlKey || e.altKey || e.metaKey) return;
    const i = this.order.indexOf(from);
    let to;
    if (e.key === "ArrowRight") to = this.order[i + 1];
    else if (e.key === "ArrowLeft") to = this.order[i - 1];
    else if (e.key === "Home") to = this.order[0];
    else if (e.key === "End") to = this.order.at(-1);
    else if (e.key === "ArrowDown") to = this.nextRow(from, 1);
    else if (e.key === "ArrowUp") to = this.nextRow(from, -1);
    else return;
    e.preventDefault();
    if (to === undefined) return;
    this.reach(to);
    this.buttons.get(to).focus();
  }

  // nextRow is the nearest CPU of the next row, by its position on the screen.
  nextRow(from, direction) {
    const middle = (r) => [(r.left + r.right) / 2, (r.top + r.bottom) / 2];
    const here = this.buttons.get(from).getBoundingClientRect();
    const [x, y] = middle(here);
    let best, least = Infinity;
    for (const [id, b] of this.buttons) {
      const [bx, by] = middle(b.getBoundingClientRect());
      const down = (by - y) * direction;
      if (down < here.height / 2) continue;
      const far = down * 4 + Math.abs(bx - x);
      if (far < least) [best, least] = [id, far];
    }
    return best;
  }

  hover(e) {
    const cpu = cpuOf(e.target);
    if (cpu === undefined || e.pointerType === "touch") this.hideTip(); // a finger selects: the details say more
    else this.showTip(cpu, this.buttons.get(cpu));
  }

  showTip(cpu, button) {
    const mark = this.model.marks.get(cpu);
    const owner = this.owner(mark);
    const place = this.model.places.get(cpu);
    const lines = [`CPU ${cpu}: ${words[poolOf(mark)].name}`, `socket ${place.socket}, NUMA node ${place.node}, L3 ${place.l3}, core ${place.core}`];
    if (owner) lines[0] += `, ${poolOf(mark) === "withheld" ? "for " : ""}${ownerName(owner)}`;
    lines[0] += this.inWords(cpu);
    const why = this.model.because(mark);
    if (why) lines.push(why);
    if (!owner) lines.push(this.mayRun(cpu));
    if (mark?.be === "off") lines.push("best effort is kept off it for now");
    this.tip.replaceChildren(...lines.map((l) => make("p", {}, l)));
    this.tip.hidden = false;
    if (this.narrow.matches) {
      this.aside();
      return;
    }
    const r = button.getBoundingClientRect();
    const size = this.tip.getBoundingClientRect();
    const top = r.bottom + 8 + size.height > innerHeight ? r.top - size.height - 8 : r.bottom + 8;
    this.tip.style.left = Math.max(4, Math.min(r.left, innerWidth - size.width - 4)) + "px";
    this.tip.style.top = Math.max(4, top) + "px";
  }

  // aside puts the tooltip above or below the map, where there is more room: the map is never as high as the window.
  aside() {
    const map = this.map.getBoundingClientRect();
    const { height } = this.tip.getBoundingClientRect();
    const below = innerHeight - map.bottom >= map.top;
    this.tip.style.left = "8px";
    this.tip.style.top = Math.max(0, Math.min(below ? map.bottom + 4 : map.top - height - 4, innerHeight - height)) + "px";
  }

  // mayRun lists the containers that may use a CPU without an owner, the busiest first.
  mayRun(cpu) {
    const running = this.model.running(cpu);
    if (running.length === 0) return "nobody may run here";
    const more = running.length - mostNamed;
    return `may run here: ${running.slice(0, mostNamed).map((c) => `${podKey(c)}/${c.container}`).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

function cpuOf(element) {
  const text = element?.closest?.("#map [data-cpu]")?.dataset.cpu;
  return text === undefined ? undefined : Number(text);
}

function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function memory(bytes) {
  if (!bytes) return "";
  const gib = bytes / 2 ** 30;
  return gib >= 1024 ? `, ${(gib / 1024).toFixed(1)} TiB` : `, ${gib >= 10 ? gib.toFixed(0) : gib.toFixed(1)} GiB`;
}

