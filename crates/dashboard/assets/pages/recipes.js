// Pages of elections, barriers, queues, tasks, transactions, groups and configuration.

import { ago, counted, h, number, show } from "../dom.js";
import { ask, store } from "../store.js";
import { doing, line, place, saying, updateLine, whoText } from "../people.js";
import { confirm, mayAct, openDialog } from "../actions.js";
import { lines } from "./locks.js";

export function elections(main, query) {
  const besides = (sight) => {
    const value = sight.holders[0]?.who?.value;
    return value && h("span", { class: "proclaims" }, "proclaims ", h("b", {}, value));
  };
  return lines(main, query, { page: "elections", recipes: ["election"], nothing: "No election is held.", hint: "bellwether elect /services/billing -- ./serve", besides });
}

/** A page whose cards are rebuilt whenever one of their recipes changes. */
function cards(main, recipes, card, nothing, hint) {
  const list = h("ol", { class: "cards" });
  main.append(list);
  const update = (changed) => {
    if (changed && ![...changed].some((name) => name === "ready" || recipes.some((recipe) => name.startsWith(`sight ${recipe} `)))) return;
    const sights = store.sights(...recipes).sort((one, other) => (one.path < other.path ? -1 : 1));
    if (sights.length === 0) show(list, h("li", { class: "empty" }, store.get("ready") ? nothing : "Looking at the tree…", store.get("ready") && h("code", {}, hint)));
    else show(list, sights.map((sight) => h("li", { class: "card" }, head(sight), card(sight))));
  };
  update();
  return { update };
}

const NAMES = { barrier: "barrier", double_barrier: "double barrier", queue: "queue", tasks: "tasks", transaction: "transaction" };

function head(sight) {
  return h("div", { class: "card-head" },
    h("h2", {}, h("a", { class: "mono path", href: `#/tree?path=${encodeURIComponent(sight.path)}` }, sight.path)),
    h("span", { class: "chips" }, h("span", { class: `chip kind kind-${sight.recipe}` }, NAMES[sight.recipe])));
}

// --- barriers -----------------------------------------------------------------------------------------------

export function barriers(main) {
  return cards(main, ["barrier", "double_barrier"], (sight) => (sight.recipe === "barrier" ? barrier(sight) : doubleBarrier(sight)), "No barrier is set.", "bellwether barrier set /deploy/gate");
}

function barrier(sight) {
  return h("p", { class: "holder" }, h("b", {}, "set"), sight.set_by ? ` by ${whoText(sight.set_by)} ` : " ", h("span", { class: "faint" }, "for "), ago(sight.since_ms), sight.set_by?.message && h("span", { class: "saying" }, sight.set_by.message));
}

/** A seat for each member of the round; empty seats are missing members. */
function doubleBarrier(sight) {
  const seats = [];
  for (let at = 0; at < Math.min(sight.size, 60); at += 1) {
    const who = sight.here[at];
    seats.push(h("span", { class: `seat${who ? " taken" : ""}`, title: who ? whoText(who) : "missing" }));
  }
  const text = sight.open ? `${sight.here.length} of ${sight.size} inside` : `${sight.here.length} here, ${sight.missing} missing`;
  return h("div", {},
    h("p", { class: "holder" }, h("b", {}, text), h("span", { class: "faint" }, ` · round ${sight.round} · ${sight.open ? "open" : "waiting"}`)),
    h("div", { class: "seats", role: "img", "aria-label": text }, seats),
    h("ul", { class: "names" }, sight.here.slice(0, 40).map((who) => h("li", {}, whoText(who)))));
}

// --- queues and tasks ---------------------------------------------------------------------------------------

export function queues(main) {
  return cards(main, ["queue", "tasks"], (sight) => (sight.recipe === "queue" ? queue(sight) : tasks(sight)), "No queue has items, and no task is open.", "bellwether queue put /mail 'hello'");
}

function queue(sight) {
  const waiting = sight.items - sight.claimed;
  return h("div", {},
    bar([[waiting, "waiting", "waiting"], [sight.claimed, "claimed", "claimed"], [sight.dead, "dead", "dead letters"]]),
    sight.consumers > 0 && h("p", { class: "faint" }, `${counted(sight.consumers, "consumer")} wait for an item`),
    claims(sight),
    dead(sight, sight.dead, false));
}

function tasks(sight) {
  return h("div", {},
    bar([[sight.open, "waiting", "open"], [sight.running, "claimed", "running"], [sight.done, "done", "done"], [sight.failed, "dead", "failed"]]),
    claims(sight),
    dead(sight, sight.failed, true));
}

/** Parts of a whole as one bar, with a legend in numbers. */
function bar(parts) {
  const total = parts.reduce((sum, [count]) => sum + count, 0) || 1;
  return h("div", { class: "depth" },
    h("div", { class: "depth-bar", "aria-hidden": "true" }, parts.filter(([count]) => count > 0).map(([count, kind]) => h("span", { class: `part ${kind}`, vars: { part: count / total } }))),
    h("ul", { class: "legend" }, parts.map(([count, kind, name]) => h("li", { class: `${kind}${count ? "" : " none"}` }, h("b", {}, number(count)), ` ${name}`))));
}

function claims(sight) {
  if (sight.claims.length === 0) return undefined;
  const people = line(sight.claims, [], { path: sight.path });
  updateLine(people, sight.claims, [], { path: sight.path });
  return h("div", { class: "card-body" }, people);
}

function dead(sight, count, isTasks) {
  if (count === 0) return undefined;
  return h("p", { class: "read-dead" }, h("button", { type: "button", onclick: () => deadLetters(sight.path, isTasks) }, `Read ${counted(count, "dead letter")}…`));
}

async function deadLetters(path, isTasks) {
  const body = h("div", { class: "letters" }, "Reading…");
  openDialog(`Dead letters of ${path}`, body);
  try {
    const { letters, total } = await ask(`/api/dead-letters?path=${encodeURIComponent(path)}&tasks=${isTasks}`);
    show(body, letters.map((letter) => h("article", { class: "letter" },
      h("p", {}, h("b", { class: "mono" }, letter.item), h("span", { class: "faint" }, ` · ${counted(letter.attempts, "attempt")} · given up `), ago(letter.died_ms), " ago"),
      h("p", { class: "bad" }, letter.reason),
      h("pre", {}, letter.payload.text ?? `base64 ${letter.payload.base64}`),
      mayAct() && h("button", { type: "button", onclick: () => confirm("Retry this item?", `${letter.item} is put back into ${path} for new attempts.`, "Retry", { action: "retry", path, item: letter.item, tasks: isTasks }) }, "Retry…"))),
      total > letters.length && h("p", { class: "faint" }, `${total - letters.length} more are not shown.`));
  } catch (error) {
    show(body, h("p", { class: "bad" }, error.message));
  }
}

// --- transactions -------------------------------------------------------------------------------------------

export function transactions(main) {
  return cards(main, ["transaction"], transaction, "No transaction waits for a decision.", "bellwether tx begin /tx payer payee");
}

function transaction(sight) {
  const missing = sight.sites.filter((site) => !site.vote).length;
  const state = sight.decision ?? (missing ? `in doubt: ${counted(missing, "vote")} of ${sight.sites.length} missing` : "all sites have voted, but no coordinator decides");
  return h("div", {},
    h("p", { class: "holder" }, h("b", {}, state), h("span", { class: "faint" }, ` · ${counted(sight.coordinators, "coordinator")}`)),
    h("ul", { class: "votes" }, sight.sites.map((site) => h("li", { class: `vote vote-${site.vote ?? "none"}` },
      h("b", {}, site.site),
      h("span", {}, site.vote ?? "no vote"),
      site.reason && h("span", { class: "faint" }, site.reason),
      h("span", { class: "faint" }, [site.here ? "here" : "away", site.applied && "applied"].filter(Boolean).join(", "))))));
}

// --- groups and configuration: directories that users name ----------------------------------------------------

/** Groups and values have no recognizable nodes, so users enter their directory. */
export function state(main, query) {
  const path = query.get("path") ?? localStorage.getItem("state-path") ?? "/";
  const field = h("input", { type: "text", class: "mono", value: path, "aria-label": "path" });
  const body = h("section", {});
  const go = () => {
    localStorage.setItem("state-path", field.value);
    location.hash = `#/state?path=${encodeURIComponent(field.value)}`;
  };
  field.addEventListener("keydown", (event) => event.key === "Enter" && go());
  main.append(h("p", { class: "faint" }, "Members of a group and values of a configuration folder are plain nodes. Enter their directory."),
    h("div", { class: "bar" }, field, h("button", { type: "button", onclick: go }, "Show")), body);
  const source = new EventSource(`/api/touched?path=${encodeURIComponent(path)}`);
  source.onmessage = () => load();
  const load = async () => {
    try {
      const { children, total } = await ask(`/api/children?path=${encodeURIComponent(path)}`);
      const nodes = await Promise.all(children.map((child) => ask(`/api/node?path=${encodeURIComponent(`${path === "/" ? "" : path}/${child.name}`)}`).catch((error) => ({ error, path: child.name }))));
      const members = nodes.filter((node) => node.stat?.ephemeral_owner);
      const values = nodes.filter((node) => node.stat && !node.stat.ephemeral_owner);
      show(body,
        members.length > 0 && section(`${counted(members.length, "member")}`, ["name", "says", "since", "session"], members.map((node) => [name(node), text(node), ago(node.stat.ctime_ms), node.stat.ephemeral_owner])),
        values.length > 0 && section(counted(values.length, "value"), ["name", "value", "version", "changed"], values.map((node) => [name(node), text(node), node.stat.version, ago(node.stat.mtime_ms)])),
        nodes.length === 0 && h("p", { class: "empty" }, "There is nothing at this path."),
        total > children.length && h("p", { class: "faint" }, `The first ${children.length} of ${number(total)} are shown; the tree page shows all.`));
    } catch (error) {
      show(body, h("p", { class: "empty" }, error.message));
    }
  };
  load();
  return { close: () => source.close() };
}

const name = (node) => h("a", { class: "mono", href: `#/tree?path=${encodeURIComponent(node.path)}` }, node.path.split("/").at(-1));
const text = (node) => h("span", { class: "mono clip" }, node.data.text ?? `base64 ${node.data.base64}`);

function section(title, heads, rows) {
  return h("div", {}, h("h2", {}, title), h("div", { class: "scroll" }, h("table", { class: "stacks" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { "data-head": heads[at] }, cell))))))));
}
