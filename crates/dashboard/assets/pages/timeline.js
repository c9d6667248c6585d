// Holders of each lock since the page was opened.

import { h, keyed, setVars, span } from "../dom.js";
import { hue, place } from "../people.js";
import { store } from "../store.js";

/** Time span that a strip shows. */
const SHOWN_MS = 5 * 60 * 1000;

/** Maximum number of holds remembered per lock. */
const HOLDS_MAX = 200;

class Timelines {
  opened = Date.now();
  #holds = new Map();

  constructor() {
    store.listen((changed) => this.#note(changed));
    setInterval(() => this.#draw(), 1000);
  }

  /** Creates a strip that is updated. */
  strip(path) {
    const element = h("div", { class: "strip", "data-path": path, role: "img", title: "holders over the last five minutes", "aria-label": "holders over the last five minutes" });
    this.#paint(element);
    return element;
  }

  #note(changed) {
    const now = Date.now();
    for (const name of changed) {
      if (!name.startsWith("sight ")) continue;
      const sight = store.get(name);
      const path = name.slice(name.indexOf(" ", 6) + 1);
      if (sight && !sight.holders) continue;
      const holders = new Map((sight?.holders ?? []).map((one) => [one.path, one]));
      const holds = this.#holds.get(path) ?? [];
      for (const hold of holds) if (!hold.end && !holders.has(hold.node)) hold.end = now;
      for (const [node, one] of holders) {
        if (holds.some((hold) => hold.node === node && !hold.end)) continue;
        // The start of a hold that is older than the page is unknown.
        const isOld = now - this.opened < 3000 && holds.length === 0;
        holds.push({ node, owner: one.owner, name: place(one), start: isOld ? Math.max(one.since_ms, now - SHOWN_MS) : now });
      }
      this.#holds.set(path, holds.slice(-HOLDS_MAX));
    }
  }

  #draw() {
    if (document.visibilityState === "hidden") return;
    for (const element of document.querySelectorAll(".strip")) {
      const box = element.getBoundingClientRect();
      if (box.bottom > 0 && box.top < innerHeight) this.#paint(element);
    }
  }

  #paint(element) {
    const now = Date.now();
    const holds = (this.#holds.get(element.dataset.path) ?? []).filter((hold) => (hold.end ?? now) > now - SHOWN_MS);
    keyed(element, holds, (hold) => `${hold.node}@${hold.start}`, () => h("span", { class: "hold" }), (bar, hold) => {
      const start = Math.max(hold.start, now - SHOWN_MS);
      const left = 100 * (1 - (now - start) / SHOWN_MS);
      const width = (100 * ((hold.end ?? now) - start)) / SHOWN_MS;
      setVars(bar, { left: `${left.toFixed(2)}%`, width: `${Math.max(width, 0.25).toFixed(2)}%`, hue: hue(hold.owner) });
      bar.title = `${hold.name}, ${span((hold.end ?? now) - hold.start)}${hold.end ? "" : ", still"}`;
    });
  }
}

export const timelines = new Timelines();
