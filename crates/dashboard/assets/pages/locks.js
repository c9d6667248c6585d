// One row per lock, with its line drawn as people in a queue.

import { ago, counted, h, keyed, number, show } from "../dom.js";
import { store } from "../store.js";
import { doing, facts, line, place, saying, updateLine, whoText } from "../people.js";
import { confirm, mayAct } from "../actions.js";
import { timelines } from "./timeline.js";
import { waits } from "./waits.js";

const RECIPES = ["lock", "simple_lock", "rwlock", "semaphore"];
const NAMES = { lock: "lock", simple_lock: "simple lock", rwlock: "read/write lock", semaphore: "semaphore", election: "election" };

/** Rows drawn at first, and added by each *Show more*. */
const PAGE = 100;

export function locks(main, query) {
  return lines(main, query, { page: "locks", recipes: RECIPES, nothing: "No lock is held or waited for.", hint: "bellwether lock /jobs/nightly -- ./backup.sh" });
}

/** A page of lines: locks, or elections. */
export function lines(main, query, { page, recipes, nothing, hint, besides }) {
  const path = query.get("path");
  let filter = path ?? "";
  let shown = PAGE;
  const graph = h("section", { class: "graph", "aria-label": "Who waits for whom" });
  const field = h("input", { type: "search", placeholder: "filter by path, host, user…", "aria-label": "filter", value: filter });
  const summary = h("span", { class: "faint", role: "status" });
  const list = h("ol", { class: "cards" });
  const more = h("button", { type: "button", class: "quiet more-rows" }, "Show more");
  field.addEventListener("input", () => {
    filter = field.value;
    shown = PAGE;
    update();
  });
  more.onclick = () => {
    shown += PAGE;
    update();
  };
  main.append(graph, h("div", { class: "bar" }, field, summary), list, more);

  const update = (changed) => {
    if (changed && ![...changed].some((name) => name.startsWith("sight ") || name === "deadlocks" || name === "waits" || name === "ready")) return;
    const stuck = new Set((store.get("deadlocks") ?? []).flat().map((step) => step.owner));
    const all = store.sights(...recipes);
    const found = all.filter((sight) => matches(sight, filter));
    found.sort((one, other) => weight(other, stuck) - weight(one, stuck) || (one.path < other.path ? -1 : 1));
    const held = all.filter((sight) => sight.holders.length > 0).length;
    const waiting = all.reduce((sum, sight) => sum + sight.waiters.length, 0);
    summary.textContent = all.length === 0 ? "" : `${filter ? `${number(found.length)} of ` : ""}${number(all.length)} in use · ${number(held)} ${page === "elections" ? "with a leader" : "held"} · ${page === "elections" ? counted(waiting, "candidate") : `${number(waiting)} waiting`}`;
    const unreadable = store.get("unreadable")?.length ?? 0;
    if (unreadable > 0) summary.textContent += ` · ${counted(unreadable, "node")} cannot be read, nor their descendants`;
    if (found.length === 0) {
      show(list, h("li", { class: "empty" }, !store.get("ready") ? "Looking at the tree…" : all.length ? "Nothing matches the filter." : nothing, hint && all.length === 0 && h("code", {}, hint)));
    } else {
      list.querySelector(".empty")?.remove();
      const context = { stuck, changed };
      keyed(list, found.slice(0, shown), (sight) => `${sight.recipe} ${sight.path}`, (sight) => card(sight, context, besides), (element, sight) => {
        // Untouched rows stay as they are.
        if (element.sight !== sight || changed?.has("deadlocks") || !changed) paintCard(element, sight, context, besides);
      });
    }
    more.hidden = found.length <= shown;
    more.textContent = `Show ${Math.min(PAGE, found.length - shown)} more of ${number(found.length - shown)}`;
    waits(graph, page === "locks" ? store.get("waits") ?? [] : [], store.get("deadlocks") ?? []);
  };
  update();
  return { update };
}

function matches(sight, filter) {
  if (!filter || sight.path.includes(filter)) return true;
  const says = (one) => `${place(one)} ${saying(one)} ${one.session}`.includes(filter);
  return sight.holders.some(says) || sight.waiters.some(says);
}

/** Sort order: deadlocks, crashes and long lines first. */
function weight(sight, stuck) {
  const isStuck = [...sight.holders, ...sight.waiters].some((one) => stuck.has(one.owner));
  return (isStuck ? 1e6 : 0) + (sight.crash ? 1e5 : 0) + sight.waiters.length;
}

function card(sight, context, besides) {
  const people = line(sight.holders, sight.waiters, { path: sight.path, stuck: context.stuck });
  const element = h("li", { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, h("a", { class: "mono path", href: `#/tree?path=${encodeURIComponent(sight.path)}` }, sight.path)), h("span", { class: "chips" })),
    h("div", { class: "card-body" }, h("p", { class: "holder" }), people),
    h("div", { class: "crash-note" }),
    timelines.strip(sight.path),
    h("details", { class: "table" }, h("summary", {}, "All holders and waiters"), h("div", { class: "scroll" })),
  );
  element.querySelector("details").addEventListener("toggle", () => table(element));
  paintCard(element, sight, context, besides, true);
  return element;
}

function paintCard(element, sight, { stuck }, besides, isNew) {
  element.sight = sight;
  const isStuck = [...sight.holders, ...sight.waiters].some((one) => stuck.has(one.owner));
  element.className = `card${isStuck ? " deadlocked" : ""}${sight.crash ? " crashed" : ""}${sight.holders.length ? "" : " idle"}`;
  show(element.querySelector(".chips"), chips(sight, isStuck));
  show(element.querySelector(".holder"), holder(sight, besides));
  const people = element.querySelector(".line");
  if (!isNew || people.childElementCount === 0) updateLine(people, sight.holders, sight.waiters, { path: sight.path, stuck });
  show(element.querySelector(".crash-note"), sight.crash && crash(sight));
  table(element);
}

function chips(sight, isStuck) {
  const chip = (text, kind = "") => h("span", { class: `chip ${kind}` }, text);
  const used = sight.holders.reduce((sum, one) => sum + (one.wants?.permits ?? 0), 0);
  return [
    isStuck && chip("deadlock", "bad"),
    sight.crash && chip("last holder crashed", "warn"),
    chip(NAMES[sight.recipe] ?? sight.recipe, `kind kind-${sight.recipe}`),
    sight.layout !== "bellwether" && chip(sight.layout),
    sight.limit !== null && sight.limit !== undefined && chip(`${used} of ${sight.limit} permits`),
    sight.waiters.length > 0 && chip(counted(sight.waiters.length, sight.recipe === "election" ? "candidate" : "waiter"), "waiting"),
  ];
}

/** Describes the first holder; the line shows the others. */
function holder(sight, besides) {
  const first = sight.holders[0];
  if (!first) return h("span", { class: "faint" }, sight.crash ? "free, but the last holder did not release it" : "free");
  const others = sight.holders.length - 1;
  return [
    h("b", {}, place(first)),
    first.who?.pid ? h("span", { class: "faint" }, ` pid ${first.who.pid}`) : "",
    ` ${doing(first, true)}`,
    others > 0 ? ` with ${counted(others, "other")}` : "",
    h("span", { class: "faint" }, " for "),
    ago(first.since_ms),
    h("span", { class: "token", title: "fencing token" }, `token ${first.token}`),
    saying(first) && h("span", { class: "saying" }, saying(first)),
    besides?.(sight),
  ];
}

function crash(sight) {
  const left = sight.crash;
  const note = left.note && (left.note.text ?? "(binary)");
  return [
    h("b", {}, "Crashed: "),
    `${left.who ? whoText(left.who) : "the last holder"} did not release it`,
    left.ended ? `: ${left.ended.how}` : "",
    left.token ? ` (token ${left.token})` : "",
    note ? h("span", {}, ". Its last note: ", h("q", {}, note)) : ".",
    mayAct() && h("button", {
      type: "button",
      onclick: () => confirm("Clear the crash mark?", `The next holder of ${sight.path} will not learn that the last one crashed. First repair what the crashed holder left half done.`, "Clear the mark", { action: "clear_crash", path: sight.path }),
    }, "Clear the mark…"),
  ];
}

/** A table of all holders and waiters, filled when it is opened. */
function table(element) {
  const details = element.querySelector("details");
  if (!details.open) return;
  const { holders, waiters } = element.sight;
  const row = (one, holds, at) => h("tr", { class: holds ? "holds" : "" },
    h("td", { class: "num" }, holds ? "" : at + 1),
    h("td", {}, doing(one, holds)),
    h("td", {}, place(one)),
    h("td", { class: "num" }, one.who?.pid),
    h("td", {}, saying(one)),
    h("td", {}, ago(one.since_ms)),
    h("td", { class: "num" }, one.token),
    h("td", { class: "mono" }, one.session),
  );
  const heads = ["place", "does", "who", "pid", "says", "since", "token", "session"];
  show(details.lastChild, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, holders.map((one) => row(one, true)), waiters.map((one, at) => row(one, false, at))),
  ));
}
