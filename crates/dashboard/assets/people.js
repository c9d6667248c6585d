// Holders and waiters: drawn as people in a line, named in words, and shown in full in a dialog.

import { ago, h, keyed, moving, setVars, show } from "./dom.js";
import { actionsFor, openDialog } from "./actions.js";

/** Maximum number of people drawn per line. The rest is shown as a number. */
const DRAWN_MAX = 24;

/** `user@host`, or as much as is known. */
export function place(one) {
  const who = one.who;
  if (!who || !who.host) return `session ${one.session ?? "?"}`;
  return who.user ? `${who.user}@${who.host}` : who.host;
}

export function whoText(who) {
  if (!who || !who.host) return "an unknown client";
  const name = who.user ? `${who.user}@${who.host}` : who.host;
  return `${name} pid ${who.pid}${who.command ? ` ${who.command}` : ""}`;
}

/** Its own description: command or message. */
export function saying(one) {
  const who = one.who;
  if (!who) return one.data?.text ?? "";
  return [who.command, who.message].filter(Boolean).join(" · ");
}

/** What it does, in short. */
export function doing(one, holds) {
  const wants = one.wants;
  if (wants?.permits) {
    const permits = wants.permits === 1 ? "1 permit" : `${wants.permits} permits`;
    return holds ? `has ${permits}` : `waits for ${permits}`;
  }
  const words = { read: ["reads", "waits to read"], write: ["writes", "waits to write"], lead: ["leads", "candidate"], item: ["works on", "waits"] };
  return (words[wants] ?? ["holds", "waits"])[holds ? 0 : 1];
}

/** Short name of a contender: that of its task if it gave one, else its host. */
function called(one) {
  const isNamed = one.owner && one.owner !== one.session?.replace("0x", "");
  return isNamed && one.wants !== "item" ? one.owner : one.who?.host || one.session;
}

/** A colour that stays with an owner. */
export function hue(owner) {
  let hash = 7;
  for (const letter of String(owner)) hash = (hash * 31 + letter.codePointAt(0)) % 360;
  return hash;
}

/** A line: holders, then waiters, as far as there is room. */
export function line(holders, waiters, context) {
  const element = h("div", { class: "line", role: "group", "aria-label": "line of holders and waiters" });
  element.addEventListener("keydown", walk);
  updateLine(element, holders, waiters, context);
  return element;
}

/** Updates a line: people move up when the line does. */
export function updateLine(element, holders, waiters, context) {
  const items = [...holders.map((one) => ({ one, holds: true })), ...waiters.map((one, place) => ({ one, holds: false, place }))];
  const hidden = items.length - DRAWN_MAX;
  if (hidden > 0) items.splice(DRAWN_MAX, hidden, { more: hidden });
  let isFirst = true;
  const key = (item) => (item.more ? "more" : item.one.path);
  const make = (item) => (item.more ? h("span", { class: "more" }) : person());
  const update = (child, item) => {
    if (item.more) {
      child.textContent = `+${item.more}`;
      child.title = `${item.more} more wait`;
      return;
    }
    paint(child, item, context);
    child.tabIndex = isFirst ? 0 : -1;
    isFirst = false;
  };
  const change = () => keyed(element, items, key, make, update);
  if (element.childElementCount === 0) change();
  else moving(element, change);
}

function person() {
  return h("button", { class: "person", type: "button" }, h("span", { class: "figure", "aria-hidden": "true" }), h("span", { class: "tag" }));
}

function paint(button, { one, holds, place: at }, context) {
  const wants = typeof one.wants === "string" ? one.wants : "permit";
  button.className = `person ${holds ? "holds" : "waits"} wants-${wants}${one.asked_to_let_go ? " asked" : ""}${context.stuck?.has(one.owner) ? " stuck" : ""}`;
  setVars(button, { hue: hue(one.owner) });
  const name = called(one);
  const below = one.who?.host ? (name === one.who.host ? `pid ${one.who.pid}` : one.who.host) : "";
  const tag = button.lastChild;
  if (tag.textContent !== name + below) show(tag, name, h("small", {}, below));
  const where = holds ? doing(one, true) : `${at + 1}. in line, ${doing(one, false)}`;
  button.setAttribute("aria-label", `${where}: ${place(one)} ${saying(one)}`);
  button.title = `${where}\n${place(one)}\n${saying(one)}`;
  button.onclick = () => details(one, holds, context);
}

/** Arrow keys move the focus along a line. */
function walk(event) {
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  const step = steps[event.key];
  const people = [...event.currentTarget.querySelectorAll("button.person")];
  const at = people.indexOf(document.activeElement);
  if (!step || at < 0) return;
  event.preventDefault();
  people[Math.min(people.length - 1, Math.max(0, at + step))].focus();
}

/** All details of a contender in a line. */
export function facts(one, holds) {
  const who = one.who ?? {};
  return [
    [holds ? "does" : "wants", doing(one, holds)],
    ["user", who.user],
    ["host", who.host],
    ["process", who.pid || undefined],
    ["command", who.command],
    ["message", who.message],
    ["value", who.value],
    ["data", one.data && (one.data.text ?? `base64 ${one.data.base64}`)],
    ["since", ago(one.since_ms)],
    ["token", one.token],
    ["session", one.session],
    ["owner", one.owner !== one.session?.replace("0x", "") ? one.owner : undefined],
    ["node", one.path],
    ["asked to release", one.asked_to_let_go ? "yes" : undefined],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
}

export function factList(entries) {
  return h("dl", { class: "facts" }, entries.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function details(one, holds, context) {
  openDialog(place(one), factList(facts(one, holds)), actionsFor(one, holds, context));
}
