// The tables: who hurt whom, incidents, and owners that idle.

import { byID, make, number, count, moment } from "./dom.js";

// table fills one with a head and rows of cells; a cell is a text, or [class, text].
function table(id, head, rows, none) {
  const cell = (tag, c, more = {}) => {
    const [look, text] = Array.isArray(c) ? c : [undefined, c];
    return make(tag, { className: look, ...more }, text);
  };
  if (rows.length === 0) {
    byID(id).replaceChildren(make("tbody", {}, make("tr", {}, make("td", { className: "hint" }, none))));
    return;
  }
  byID(id).replaceChildren(
    make("thead", {}, make("tr", {}, head.map((h) => cell("th", h, { scope: "col" })))),
    make("tbody", {}, rows.map((r) => make("tr", {}, r.map((c) => cell("td", c))))));
}

const n = (text) => ["n", text];
const time = (ms) => ["short", ms ? moment(ms) : "–"];

export class Tables {
  // ask(what) is called with a victim that was chosen, node(name) with a node.
  constructor(ask, node) {
    this.ask = ask;
    this.node = node;
  }

  jobLink(job) {
    return make("button", { type: "button", className: "as-link", on: { click: () => this.ask({ victim: job }) } }, job);
  }

  nodeLink(name) {
    return make("button", { type: "button", className: "as-link", on: { click: () => this.node(name) } }, name);
  }

  showIncidents(v, asked) {
    const parts = [v.all > v.incidents.length ? `the newest ${v.incidents.length} of ${v.all}` : count(v.all, "incident"), `of ${count(v.nodes, "node")}`];
    if (v.off) parts.push(`${v.off} more detect none`);
    if (v.unread) parts.push(`${v.unread} more could not be read`);
    if (v.cut) parts.push(`older ones of ${count(v.cut, "node")} are not kept here: kubectl quietcore incidents`);
    byID("incident-count").textContent = parts.join(", ");
    byID("hurt-title").textContent = asked.antagonist && !asked.victim ? `Whom ${asked.antagonist} hurt most` : `Who hurt ${asked.victim || "others"} most`;
    table("hurt", ["Job", n("Incidents"), n("Excess CPI"), n("Score"), n("Helped"), "Last"],
      v.hurt.ranks.map((r) => [["wide", r.name], n(r.incidents), n(number(r.excess)), n(number(r.meanScore)), n(r.helped), time(Date.parse(r.last))]),
      v.hurt.unexplained ? `Nobody could be blamed for ${count(v.hurt.unexplained, "incident")}.` : "Nobody was blamed in this window.");
    table("disturbed", ["Job", n("Incidents"), n("Nodes"), n("Excess CPI"), "Blamed most often", "Last"],
      v.disturbed.map((d) => [["wide", this.jobLink(d.job)], n(d.incidents), n(d.nodes), n(number(d.excess)), ["wide", d.worst ? `${d.worst} (${d.blamed})` : "–"], time(d.last)]),
      "No job was disturbed in this window.");
    table("incident-list", ["When", "Node", "Victim", n("CPI"), n("Normal"), "Resource", "Verdict", "Antagonist", "Result", "ID"],
      v.incidents.map((i) => [time(i.at), ["short", this.nodeLink(i.node)], ["wide", i.victim], n(number(i.cpi)), n(i.mean ? number(i.mean) : "–"), i.resource || "–", i.verdict,
        ["wide", (i.antagonist || "–") + (i.others ? ` and ${i.others} more` : "")], i.active ? "in force" : i.result || "–", ["short", i.id]]),
      "No incident in this window.");
    byID("jobs").replaceChildren(...v.jobs.map((job) => make("option", { value: job })));
  }

  showOwners(v) {
    byID("owner-count").textContent = v.all > v.owners.length ? `the first ${v.owners.length} of ${v.all}` : count(v.all, "pod");
    table("owner-list", ["Pod", "Node", n("CPUs"), n("Uses now"), n("Idle CPUs"), n("CPU-days idle"), n("Watched")],
      v.owners.map((o) => [["wide", o.name], ["short", this.nodeLink(o.node)], n(o.cpus), n(number(o.used)), n(o.watched ? number(o.left) : "–"), n(number(o.days)), n(o.watched >= 48 ? `${number(o.watched / 24, 1)} d` : `${number(o.watched, 1)} h`)]),
      "No pod has CPUs of its own.");
    table("namespace-list", ["Namespace", n("Pods"), n("CPUs"), n("Idle CPUs"), n("CPU-days idle")],
      v.namespaces.map((s) => [["wide", s.name], n(s.owners), n(s.cpus), n(number(s.left)), n(number(s.days))]),
      "No namespace has such a pod.");
  }
}
