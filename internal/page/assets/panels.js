// The panels next to the drawing: details of the selection, incidents, containers, changes.

import { byID, make, number, moment, count, until } from "./dom.js";
import { words, poolOf, podKey, ownerName } from "./model.js";
import { Chart, columns, line } from "./charts.js";

const mostListed = 12;

export class Panels {
  constructor(model, select) {
    this.model = model;
    this.select = select;
    this.details = byID("details");
    this.opened = undefined; // the incident that is shown
    this.curves = new Map(); // of the selected pod's containers, by id
    this.sparks = []; // their charts
    this.shown = undefined; // what the details say
  }

  podLink(key, text = key) {
    return make("button", { type: "button", className: "as-link", on: { click: () => this.select({ kind: "pod", key }) } }, text);
  }

  cpuLink(id) {
    return make("button", { type: "button", className: "as-link", on: { click: () => this.select({ kind: "cpu", id }) } }, `CPU ${id}`);
  }

  // show draws the details of what is selected.
  show(what) {
    const text = what ? this[what.kind](what) : this.nothing();
    const fresh = make("div", {}, text);
    if (fresh.innerHTML === this.shown) return; // the same: screen readers need not hear it again
    this.shown = fresh.innerHTML;
    for (const chart of this.sparks) chart.end();
    this.details.replaceChildren(fresh);
    this.sparks = [...fresh.querySelectorAll(".spark")].map((place) => this.spark(place));
  }

  // spark draws the CPI of one container over time.
  spark(place) {
    const points = this.curves.get(place.dataset.container).map((s) => [s.t, s.cpi]);
    const range = [points[0][0], Math.max(points.at(-1)[0], points[0][0] + 60)];
    const chart = new Chart(place, { series: [line(1)], height: 96, range: () => range });
    chart.set(columns(points, [1], 600, 60));
    return chart;
  }

  nothing() {
    const { node, pools, owners, containers } = this.model;
    return [
      make("h3", {}, "Who has which CPU, and why"),
      make("p", { className: "hint" }, "Point at a CPU, or select one with a click or with Enter. Search finds pods."),
      node && list([
        ["shared pool", pools.shared || "none"], ["best effort", pools.be || "none"], ["exclusive", pools.exclusive || "none"], ["reserved", pools.reserved || "none"],
        ["withheld", pools.withheld], ["SYSTEM", pools.system],
        ["owners", owners.length], ["containers", containers.length + (this.model.more || 0)], ["not where decided", node.unpinned || undefined],
      ]),
      owners.length > 0 && make("h4", {}, "Pods with CPUs of their own"),
      owners.slice(0, 40).map((o) => make("p", {}, this.podLink(podKey(o)), `${ownerName(o).slice(podKey(o).length)} ${o.cpus}`)),
      owners.length > 40 && make("p", { className: "hint" }, `and ${owners.length - 40} more; search finds them`),
    ];
  }

  cpu({ id }) {
    const place = this.model.places.get(id);
    if (!place) return [make("h3", {}, `CPU ${id}`), make("p", {}, "is not there any more")];
    const mark = this.model.marks.get(id);
    const pool = poolOf(mark);
    const owner = mark?.owner === undefined ? undefined : this.model.owners[mark.owner];
    const running = this.model.running(id);
    return [
      make("h3", {}, `CPU ${id}: ${words[pool].name}`),
      list([
        ["place", `socket ${place.socket}, NUMA node ${place.node}, L3 ${place.l3}, core ${place.core}`],
        ["same core", place.siblings.length ? place.siblings.map((s) => [this.cpuLink(s), " "]) : "no other thread"],
        [pool === "withheld" ? "kept idle for" : "owner", owner && this.podLink(podKey(owner), ownerName(owner))],
        ["why", this.model.because(mark)],
        ["best effort", mark?.be === "in" ? "may run here" : mark?.be === "off" ? "is kept off it for now: it gives way to production, or spares a victim" : "never runs here"],
      ]),
      make("h4", {}, running.length ? `May run here (${running.length})` : "No container may run here"),
      running.slice(0, mostListed).map((c) => make("p", {}, this.podLink(podKey(c), `${podKey(c)}/${c.container}`), ` ${c.class}`, this.inShort(c))),
      running.length > mostListed && make("p", { className: "hint" }, `and ${running.length - mostListed} more`),
    ];
  }

  inShort(c) {
    const s = this.model.samples[c.id];
    let text = "";
    if (s && s.windowUsage !== null && s.windowUsage !== undefined) text += `, uses ${number(s.windowUsage)} CPUs`;
    if (s && s.cpi) text += `, CPI ${number(s.cpi)}`;
    if (c.capMilli) text += `, capped at ${c.capMilli}m${until(c.capUntil)}`;
    return text;
  }

  pod({ key }) {
    const containers = this.model.pods.get(key) || [];
    const owners = this.model.owners.filter((o) => podKey(o) === key), owner = owners[0];
    const each = (of) => owners.filter(of).map((o) => (o.container ? o.container + " " : o.claim ? `claim ${o.claim} ` : "") + of(o)).join(", ");
    if (containers.length === 0 && !owner) return [make("h3", {}, key), make("p", {}, "is not on this node any more")];
    return [
      make("h3", {}, key),
      list([
        ["made by", containers[0]?.workload], ["owns CPUs", each((o) => o.cpus)], ["withheld for it", each((o) => o.withheld)],
        ["chosen by", owner?.byKubelet && "kubelet's static policy"],
      ]),
      containers.length === 0 && make("p", {}, owner.claim ? "No container of its pod runs at the moment; the CPUs are the claim's until kubelet gives it back." : "No container of it runs at the moment; the CPUs are its own until the pod ends."),
      containers.map((c) => this.container(c)),
    ];
  }

  container(c) {
    const s = this.model.samples[c.id] || {};
    const cpi = this.model.node?.cpi || {};
    const curve = this.curves.get(c.id);
    return [
      make("h4", {}, c.container),
      list([
        ["why", c.why],
        ["class", `${c.class}, pool ${c.pool}`],
        ["CPUs", this.model.cpusOf(c)],
        ["memory", c.mems && `NUMA nodes ${c.mems}`],
        ["quota", c.capMilli ? make("span", { className: "capped" }, `${c.capMilli}m, capped${until(c.capUntil)} to quiet it for others`) : c.quotaMilli < 0 ? "none" : `${c.quotaMilli}m`],
        ["lent CPUs", c.batchMilli && `${c.batchMilli}m requested`],
        ["uses", s.windowUsage !== undefined && s.windowUsage !== null ? `${number(s.windowUsage)} CPUs in the last window` : undefined],
        ["CPI", s.cpi ? number(s.cpi) : s.why || (cpi.counting ? "not in the last window" : cpi.why || "not counted")],
        ["LLC misses", s.mpki === undefined || s.mpki === null ? undefined : `${number(s.mpki)} per thousand instructions`],
        ["waits", s.wait === undefined || s.wait === null ? undefined : `${number(s.wait * 100, 1)} % of the time for a CPU`],
      ]),
      curve && curve.length > 1 && make("div", { className: "spark", role: "img", "aria-label": "CPI over time", "data-container": c.id, "data-points": curve.length, "data-until": curve.at(-1).t }),
    ];
  }

  // load fetches the CPI over time of the selected pod's first containers.
  async load(what) {
    const curves = new Map();
    if (what?.kind !== "pod") {
      this.curves = curves;
      return false;
    }
    for (const c of (this.model.pods.get(what.key) || []).slice(0, 4)) {
      try {
        const answer = await fetch(`/api/containers/${encodeURIComponent(c.id)}/samples`);
        if (answer.ok) curves.set(c.id, (await answer.json()).samples.filter((s) => s.cpi !== null));
      } catch {
        return false; // the connection is gone; the stream says so
      }
    }
    this.curves = curves;
    return curves.size > 0;
  }

  showIncidents() {
    const { incidents, kept, why } = this.model.incidents;
    byID("incident-count").textContent = why ? "" : kept > incidents.length ? `the last ${incidents.length} of ${kept}` : count(kept, "incident");
    if (why || incidents.length === 0) {
      byID("incident-list").replaceChildren(make("tbody", {}, make("tr", {}, make("td", { className: "hint" }, why || "No incident so far, or none could be detected."))));
      return;
    }
    const head = ["When", "Victim", "CPI", "Normal", "Resource", "Verdict", "Antagonist", "Result"];
    byID("incident-list").replaceChildren(
      make("thead", {}, make("tr", {}, head.map((h, i) => make("th", { scope: "col", className: i === 2 || i === 3 ? "n" : undefined }, h)))),
      make("tbody", {}, incidents.map((i) => make("tr", { className: i.id === this.opened ? "chosen" : undefined },
        make("td", {}, make("button", { type: "button", className: "as-link", "data-incident": i.id, on: { click: () => this.openIncident(i.id) } }, moment(Date.parse(i.at)))),
        make("td", { className: "wide" }, i.victim),
        make("td", { className: "n" }, number(i.cpi)),
        make("td", { className: "n" }, i.mean ? number(i.mean) : "–"),
        make("td", {}, i.resource || "–"),
        make("td", {}, i.verdict),
        make("td", { className: "wide" }, (i.antagonist || "–") + (i.others ? ` and ${i.others} more` : "")),
        make("td", {}, i.active ? "in force" : i.result || "–")))));
  }

  async openIncident(id) {
    this.opened = id;
    this.showIncidents();
    const place = byID("incident");
    let text;
    try {
      const answer = await fetch(`/api/incidents/${encodeURIComponent(id)}`);
      text = answer.ok ? this.incident(await answer.json()) : [make("p", {}, (await answer.text()).slice(0, 300))];
    } catch {
      text = [make("p", {}, "The daemon does not answer.")];
    }
    if (this.opened !== id) return;
    place.replaceChildren(...text);
    place.scrollIntoView({ block: "start" });
  }

  closeIncident() {
    if (this.opened === undefined) return false;
    this.opened = undefined;
    byID("incident").replaceChildren();
    this.showIncidents();
    return true;
  }

  incident(i) {
    const base = `/incidents/${encodeURIComponent(i.id)}`;
    const effect = i.before ? `${i.result}: CPI ${number(i.before)} ${i.arms[0]}, ${number(i.after)} ${i.arms[1]}` : i.result;
    return [
      make("h3", {}, `Incident of ${moment(Date.parse(i.at))}: ${i.victim}`),
      make("img", { src: base + ".svg", alt: `CPI of ${i.victim} and the use of its suspects over time`, width: 1000, height: 480 }),
      list([
        ["why", i.why], ["job", i.job], ["ran on CPUs", i.cpus], ["by claim", i.claims], ["CPI", `${number(i.cpi)}; normal is ${i.mean ? number(i.mean) : "not known"}, too much from ${number(i.threshold)} on`], ["resource", i.resource], ["verdict", i.verdict],
        ...i.actions.map((a) => ["done", `${{ idle: "only idle CPUs", narrow: "least memory bandwidth" }[a.kind] || a.kind}${a.milli ? ` at ${a.milli}m` : a.off ? ` off CPUs ${a.off}` : ""} of ${a.subject}, ${moment(Date.parse(a.from))} to ${moment(Date.parse(a.end))}${a.why ? ": " + a.why : ""}`]),
        ["effect", effect],
      ]),
      ...(i.beside ? [make("div", { className: "scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, ["Ran beside it", "On its", "CPUs", "Instructions/s", "Misses/s"].map((h, n) => make("th", { scope: "col", className: n > 1 ? "n" : undefined }, h)))),
        make("tbody", {}, i.beside.map((b) => make("tr", {}, make("td", { className: "wide" }, b.name), make("td", {}, b.where), make("td", { className: "n" }, number(b.cpus)),
          [b.instructions, b.misses].map((v) => make("td", { className: "n" }, v ? v.toPrecision(3) : "–")))))))] : []),
      i.suspects.length === 0
        ? make("p", {}, "No other container ran.")
        : make("div", { className: "scroll" }, make("table", {},
            make("thead", {}, make("tr", {}, ["Suspect", "Class", "Score", "Contrast", "Confidence", "Usage, CPUs", "Shares", ""].map((h, n) => make("th", { scope: "col", className: n > 1 && n < 6 ? "n" : undefined }, h)))),
            make("tbody", {}, i.suspects.map((s) => make("tr", {}, make("td", { className: "wide" }, s.name), make("td", {}, s.class),
              [s.score, s.contrast, s.confidence, s.usage].map((v) => make("td", { className: "n" }, number(v))), make("td", {}, s.shares), make("td", {}, [s.blamed && "antagonist", s.claims && `claim ${s.claims}`].filter(Boolean).join(", "))))))),
      make("p", {}, make("a", { href: base + ".html", target: "_blank", rel: "noopener" }, "as a page of its own"), " · ",
        make("button", { type: "button", className: "as-link", on: { click: () => this.closeIncident() } }, "close")),
    ];
  }

  showChanges() {
    const list = this.model.changes.toReversed().map((c) => make("li", {}, make("time", { datetime: new Date(c.at).toISOString() }, moment(c.at)), c.who ? `${c.who} ` : "", c.text));
    byID("change-list").replaceChildren(...(list.length ? list : [make("li", { className: "hint" }, "Nothing has changed since the daemon started.")]));
  }
}

function list(rows) {
  return make("dl", {}, rows.filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false && v !== 0).map(([name, v]) => [make("dt", {}, name), make("dd", {}, v)]));
}
