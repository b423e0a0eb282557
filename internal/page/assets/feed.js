// The connection to the daemon: everything once, then changes. It lasts as long as the page. A lost daemon is retried with
// growing pauses of up to half a minute.

const parts = ["machine", "node", "cpus", "containers", "samples", "incidents", "load"];
const silence = 40_000; // the daemon says something every 15 s
const longest = 30_000;
// A hidden page closes its connection after this long: a browser has six per host, and another page may need one.
const unseen = 60_000;

export class Feed {
  // take(part, value) is called for every part that arrives, link(live, since) when the connection is made or lost.
  constructor(take, link) {
    this.take = take;
    this.link = link;
    this.heard = Date.now();
    this.tries = 0;
    this.live = undefined;
    setInterval(() => this.watch(), 5_000);
    document.addEventListener("visibilitychange", () => this.seen());
    this.open();
  }

  open() {
    this.paused = false;
    this.source?.close();
    clearTimeout(this.again);
    this.again = undefined;
    this.heard = Date.now();
    const source = (this.source = new EventSource("/api/stream"));
    for (const part of [...parts, "points", "changes", "now"]) {
      source.addEventListener(part, (e) => {
        if (source !== this.source) return;
        this.heard = Date.now();
        let value;
        try {
          value = JSON.parse(e.data);
        } catch {
          return; // cut off in the middle: the next connection brings it whole
        }
        if (part === "now") this.settled(value);
        else this.take(part, value);
      });
    }
    source.addEventListener("error", () => {
      if (source === this.source) this.lost();
    });
  }

  settled(ms) {
    this.tries = 0;
    const first = !this.live;
    this.live = true;
    this.link(true, ms);
    if (first) this.catchUp();
  }

  // catchUp fetches the timeline, which the stream only continues.
  async catchUp() {
    try {
      const answer = await fetch("/api/history");
      if (answer.ok) this.take("history", await answer.json());
    } catch {
      // The stream will notice too.
    }
  }

  lost() {
    if (this.live !== false) this.link(false, this.heard);
    this.live = false;
    this.source.close();
    if (this.again !== undefined) return;
    const wait = Math.min(longest, 500 * 2 ** this.tries) * (0.5 + Math.random() / 2);
    this.tries = Math.min(this.tries + 1, 10);
    this.again = setTimeout(() => this.open(), wait);
  }

  seen() {
    clearTimeout(this.leaving);
    if (document.hidden) this.leaving = setTimeout(() => this.pause(), unseen);
    else if (this.paused) this.open();
  }

  pause() {
    this.paused = true;
    this.live = undefined;
    this.source.close();
    clearTimeout(this.again);
    this.again = undefined;
  }

  watch() {
    if (!this.paused && this.again === undefined && Date.now() - this.heard > silence) this.lost();
  }
}
