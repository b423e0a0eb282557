// The report of the last day: what it was like, and what enforcing would have changed. `quietcore report` says the same.

import { byID, make, number } from "./dom.js";

const every = 300_000; // it is of hours
const mostBy = 3;

const amount = (v) => (v === undefined || v === null ? "–" : number(v, 1));
const whole = (v) => number(v, 0);

export class Report {
  constructor() {
    this.asked = 0;
  }

  // load fetches it, unless that was done lately.
  async load() {
    if (Date.now() - this.asked < every) return;
    this.asked = Date.now();
    try {
      const answer = await fetch("/api/report");
      if (answer.ok) this.show(await answer.json());
      else if (answer.status !== 404) this.say((await answer.text()).slice(0, 300)); // 404: this daemon keeps none
    } catch {
      this.asked = 0; // the connection is gone; the stream says so, and it is asked for with the next one
    }
  }

  say(text) {
    byID("report").hidden = false;
    byID("report-text").replaceChildren(make("p", { className: "hint" }, text));
  }

  show(r) {
    byID("report").hidden = false;
    const enforced = r.enforcedMinutes > 0 && r.enforcedMinutes === r.lookedMinutes;
    byID("report-seen").textContent = `mode ${r.mode}, seen ${spell(r.lookedMinutes)}` + (r.enforcedMinutes > 0 ? `, enforced for ${spell(r.enforcedMinutes)}` : "");
    byID("report-text").replaceChildren(
      ...(r.missing || []).map((text) => make("p", { className: "hint" }, `not known: ${text}`)),
      ...[this.cpus(r.cpus, enforced), this.shared(r.shared || []), this.disturbed(r.disturbed || []), this.idle(r.idle || []), this.costs(r.costs || [], enforced)].flat().filter(Boolean),
      ...(r.more ? [make("p", { className: "hint" }, `${r.more} more lines: quietcore report --limit 0`)] : []));
  }

  cpus(c, enforced) {
    return table(["CPUs on average", c.online > 0 ? `n:of ${amount(c.online)}` : "n:not known"], [
      [enforced ? "owned by pods" : "owned by pods, if enforced", c.owned], ["requested by production", c.requested], ["used by production", c.production],
      ["used by best effort", c.batch], ["used by the rest of the node", c.outside], ["idle of those allocated", c.idle], ["could be lent", c.lendable],
    ].map(([what, v]) => [what, c.online > 0 ? amount(v) : "–"]));
  }

  shared(list) {
    if (list.length === 0) return make("p", {}, "No pod that asks for CPUs of its own was seen to share cores.");
    return table(["Pod", "Shared cores with", "n:Minutes", "n:CPUs", "n:Minutes apart if enforced"],
      list.map((s) => [s.pod, s.with, whole(s.minutes), amount(s.cpus), s.partedMinutes > 0 ? whole(s.partedMinutes) : "–"]));
  }

  disturbed(list) {
    if (list.length === 0) return make("p", {}, "Nobody was seen to be disturbed.");
    const by = (b) => `${b.job} (${whole(b.minutes)} min${b.verdicts === 0 ? ", suspected" : ""})`;
    return table(["Disturbed", "n:Incidents", "n:Minutes", "By"], list.map((d) => [d.job, String(d.incidents), whole(d.minutes), (d.by || []).slice(0, mostBy).map(by).join(", ") || "–"]));
  }

  idle(list) {
    if (list.length === 0) return undefined;
    return table(["Left idle by", "Class", "n:Owns", "n:Allocated", "n:Used", "n:Idle CPU-hours"], list.map((p) => [p.pod, p.class, amount(p.owned), amount(p.allocated), amount(p.used), amount(p.idleCPUHours)]));
  }

  costs(list, enforced) {
    const head = enforced ? "Enforcing costs" : "Enforcing would cost";
    if (list.length === 0) return make("p", {}, `${head} nobody anything that was seen.`);
    return table([head, "n:Minutes", "n:CPU-minutes", "Why"], list.map((c) => [c.who, whole(c.minutes), c.cpuMinutes > 0 ? amount(c.cpuMinutes) : "–", c.why]));
  }
}

// table has columns of numbers where a head begins with "n:".
function table(head, rows) {
  const look = head.map((h) => (h.startsWith("n:") ? "n" : undefined));
  return make("div", { className: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, head.map((h, i) => make("th", { scope: "col", className: look[i] }, h.replace(/^n:/, ""))))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((text, i) => make("td", { className: look[i] }, text)))))));
}

// spell is a length of time, as 23h14m.
function spell(minutes) {
  const whole = Math.round(minutes);
  if (whole < 1) return "less than a minute";
  const [h, m] = [Math.floor(whole / 60), whole % 60];
  return (h ? `${h}h` : "") + (m ? `${m}m` : "");
}
