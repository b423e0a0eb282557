// The model of the node, and queries on it.

// A CPU is drawn by its pool; meaning is why it is there, where it has no owner to say so.
export const words = {
  lse: { tag: "!", name: "LSE, exclusive" },
  lsr: { tag: "*", name: "LSR, exclusive" },
  exclusive: { tag: "@", name: "exclusive", meaning: "a pod owns it" },
  kubelet: { tag: "%", name: "kubelet's static policy", meaning: "kubelet's static policy gave it to a container" },
  system: { tag: "+", name: "SYSTEM", meaning: "it is for pods of class SYSTEM" },
  shared: { tag: "·", name: "shared pool", meaning: "it is in the shared pool, for every pod without CPUs of its own" },
  be: { tag: "~", name: "best effort only", meaning: "only best effort runs here" },
  reserved: { tag: "=", name: "reserved", meaning: "it is reserved by the configuration or by kubelet, and never given to an owner" },
  withheld: { tag: "x", name: "withheld (kept idle)", meaning: "it is kept idle until the pod ends that wants its core for itself" },
  isolated: { tag: "|", name: "isolated by the kernel", meaning: "the kernel keeps it out of scheduling (isolcpus); it is in no pool" },
  offline: { tag: "–", name: "offline", meaning: "it is switched off" },
  unknown: { tag: "?", name: "unknown" },
};

export const poolOf = (mark) => (mark && words[mark.pool] ? mark.pool : "unknown");

// parseList reads the kernel's list of CPUs, such as 0-3,8.
export function parseList(text) {
  const set = new Set();
  for (const range of (text || "").split(",")) {
    if (range === "") continue;
    const [from, to = from] = range.split("-").map(Number);
    for (let cpu = from; cpu <= to && set.size <= 8192; cpu++) set.add(cpu);
  }
  return set;
}

// ownerTag is A … Z, AA …
export function ownerTag(index) {
  let tag = "";
  for (let i = index; i >= 0; i = Math.floor(i / 26) - 1) tag = String.fromCharCode(65 + (i % 26)) + tag;
  return tag;
}

const mostSamples = { fine: 360, coarse: 720, changes: 200 };

export class Model {
  constructor() {
    this.machine = undefined;
    this.node = undefined;
    this.marks = new Map(); // by CPU
    this.owners = [];
    this.pools = {};
    this.places = new Map(); // by CPU
    this.containers = [];
    this.pods = new Map();
    this.more = 0;
    this.samples = {};
    this.load = []; // by CPU, in percent
    this.incidents = { incidents: [], kept: 0 };
    this.series = [];
    this.fine = [];
    this.coarse = [];
    this.changes = [];
  }

  take(part, value) {
    switch (part) {
      case "machine":
        this.machine = value;
        this.place();
        break;
      case "node":
        this.node = value;
        break;
      case "cpus":
        this.marks = new Map(value.cpus.map((m) => [m.id, m]));
        this.owners = value.owners;
        this.pools = value.pools;
        break;
      case "containers":
        this.containers = value.containers;
        this.more = value.more || 0;
        this.pods = new Map();
        for (const c of this.containers) {
          const key = podKey(c);
          if (!this.pods.has(key)) this.pods.set(key, []);
          this.pods.get(key).push(c);
        }
        break;
      case "samples":
        this.samples = value.samples || {};
        break;
      case "load":
        this.load = value.busy;
        break;
      case "incidents":
        this.incidents = value;
        break;
      case "history":
        this.series = value.series;
        this.fine = join(this.fine, value.fine.points, mostSamples.fine);
        this.coarse = join(this.coarse, value.coarse.points, mostSamples.coarse);
        this.happened(value.changes);
        break;
      case "points":
        this.fine = join(this.fine, value.fine || [], mostSamples.fine);
        this.coarse = join(this.coarse, value.coarse || [], mostSamples.coarse);
        break;
      case "changes":
        this.happened(value);
        break;
    }
  }

  place() {
    this.places = new Map();
    for (const s of this.machine.sockets)
      for (const n of s.nodes)
        for (const l of n.l3s)
          for (const c of l.cores) for (const cpu of c.cpus) this.places.set(cpu, { socket: s.id, node: n.id, l3: l.id, core: c.id, siblings: c.cpus.filter((o) => o !== cpu) });
  }

  happened(list) {
    const known = new Set(this.changes.map((c) => JSON.stringify(c)));
    this.changes = [...this.changes, ...(list || []).filter((c) => !known.has(JSON.stringify(c)))].sort((a, b) => a.at - b.at).slice(-mostSamples.changes);
  }

  // cpusOf is where a container may run: its own list, else its pool's.
  cpusOf(c) {
    return c.cpus || this.pools[c.pool] || "";
  }

  // busy is a CPU's load in percent, undefined where it is not known.
  busy(cpu) {
    return this.load[cpu] >= 0 ? this.load[cpu] : undefined;
  }

  // running are the containers that may use a CPU, the busiest first.
  running(cpu) {
    const lists = new Map();
    const on = (text) => {
      if (!lists.has(text)) lists.set(text, parseList(text).has(cpu));
      return lists.get(text);
    };
    const use = (c) => this.samples[c.id]?.windowUsage ?? -1;
    return this.containers.filter((c) => on(this.cpusOf(c))).sort((a, b) => use(b) - use(a));
  }

  // because explains a CPU's state: its owner's reason, else the meaning of its pool.
  because(mark) {
    const owner = mark?.owner === undefined ? undefined : this.owners[mark.owner];
    if (!owner) return words[poolOf(mark)].meaning;
    if (owner.claim) return `it is the claim's until kubelet gives the claim back${owner.pod ? "" : "; no container of its pod runs at the moment"}`;
    const own = this.pods.get(podKey(owner))?.find((c) => !owner.container || c.container === owner.container);
    return own?.why || "it is the pod's own until the pod ends; no container of it runs at the moment";
  }

  // search finds pods whose namespace, name or container holds every word.
  search(text) {
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (wanted.length === 0) return [];
    const found = [];
    const fits = (name) => wanted.every((w) => name.toLowerCase().includes(w));
    for (const [key, list] of this.pods) if (list.some((c) => fits(key + "/" + c.container + " " + (c.workload || "")))) found.push(key);
    for (const o of this.owners) {
      const key = podKey(o);
      if (!found.includes(key) && (o.claim || !this.pods.has(key)) && fits(key + " " + (o.claim || ""))) found.push(key);
    }
    return found;
  }

  cpusOfPod(key) {
    const set = new Set();
    for (const c of this.pods.get(key) || []) for (const cpu of parseList(this.cpusOf(c))) set.add(cpu);
    for (const o of this.owners) if (podKey(o) === key) for (const cpu of parseList(o.cpus)) set.add(cpu);
    return set;
  }
}

// podKey names a pod, or a claim of which no pod runs.
export const podKey = (c) => c.namespace + "/" + (c.pod || "claim " + c.claim);

// ownerName is the pod, or the container or the claim of it that has CPUs of its own.
export const ownerName = (o) => podKey(o) + (o.container ? "/" + o.container : o.claim && o.pod ? ` by claim ${o.claim}` : "");

// join continues a line. Points of the previous daemon stay; a clock that was set back continues from there.
function join(old, fresh, most) {
  if (fresh.length === 0) return old;
  const from = fresh[0][0];
  return [...old.filter((p) => p[0] < from), ...fresh].slice(-most);
}
