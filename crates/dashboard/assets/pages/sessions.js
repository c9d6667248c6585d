// Connected clients, their addresses and what these use, and what each session holds.

import { ago, bytes, counted, h, number, show, span } from "../dom.js";
import { ask, store } from "../store.js";
import { doing, whoText } from "../people.js";

const EVERY_MS = 3000;

export function sessions(main) {
  const field = h("input", { type: "search", placeholder: "filter by address, session, user…", "aria-label": "filter" });
  const body = h("section", {});
  main.append(h("div", { class: "bar" }, field), body);
  let told = { connections: [], silent: [], isAwaited: true };
  const paint = () => showSessions(body, told, field.value);
  const load = async () => {
    if (document.visibilityState === "hidden") return;
    try {
      told = await ask("/api/sessions");
    } catch (error) {
      told = { connections: [], silent: [], error: error.message };
    }
    paint();
  };
  field.addEventListener("input", paint);
  const timer = setInterval(load, EVERY_MS);
  load();
  return { close: () => clearInterval(timer), update: (changed) => [...changed].some((name) => name.startsWith("sight ")) && paint() };
}

/** What each session holds and waits for, by its id. */
function holdings() {
  const found = new Map();
  const add = (one, holds, sight) => {
    const entry = found.get(one.session) ?? { who: one.who, holds: [], waits: [] };
    entry.who ??= one.who;
    entry[holds ? "holds" : "waits"].push({ sight, word: doing(one, holds) });
    found.set(one.session, entry);
  };
  for (const [name, sight] of store.values) {
    if (!name.startsWith("sight ")) continue;
    for (const one of sight.holders ?? sight.claims ?? []) add(one, true, sight);
    for (const one of sight.waiters ?? []) add(one, false, sight);
  }
  return found;
}

function showSessions(body, told, filter) {
  const held = holdings();
  const rows = told.connections.map((connection) => ({ ...connection, session: connection.fields.sid, ...held.get(connection.fields.sid) }));
  // A session may hold something while it has no connection, or on a server that does not answer `cons`.
  for (const [session, entry] of held) if (!rows.some((row) => row.session === session)) rows.push({ session, fields: {}, ...entry });
  const text = (row) => `${row.address} ${row.session} ${row.who ? whoText(row.who) : ""}`;
  const shown = rows.filter((row) => text(row).includes(filter)).slice(0, 500);
  const links = (list) => (list ?? []).slice(0, 4).map(({ sight, word }) => h("a", { class: "mono held", href: `#/${sight.recipe === "election" ? "elections" : sight.claims ? "queues" : "locks"}?path=${encodeURIComponent(sight.path)}`, title: word }, sight.path)).flatMap((link) => [link, " "]);
  const more = (list) => (list?.length > 4 ? h("span", { class: "faint" }, ` +${list.length - 4}`) : "");
  const columns = [
    ["address", "mono", (one) => one.address ?? h("span", { class: "faint" }, "not known")],
    ["who", "wraps", (one) => one.who && whoText(one.who)],
    ["holds", "wraps", (one) => [links(one.holds), more(one.holds)]],
    ["waits for", "wraps", (one) => [links(one.waits), more(one.waits)]],
    ["timeout", "num", (one) => one.fields.to && span(Number(one.fields.to))],
    ["connected", "", (one) => one.fields.est && ago(Number(one.fields.est))],
    ["requests", "num", (one) => one.fields.recved && number(Number(one.fields.recved))],
    ["last", "mono", (one) => one.fields.lop],
  ];
  const row = (one) => h("tr", {},
    h("th", { scope: "row", class: "mono" }, one.session),
    columns.map(([head, kind, cell]) => h("td", { class: kind, "data-head": head }, cell(one))));
  const heads = [["session"], ...columns];
  show(body,
    told.error && h("p", { class: "bad" }, told.error),
    h("h2", {}, told.isAwaited ? "Asking the servers…" : counted(rows.length, "session")),
    told.silent.length > 0 && h("p", { class: "faint" }, `${told.silent.join(", ")} does not list its connections: allow the four-letter word cons (4lw.commands.whitelist, or serve --words). Sessions that hold something are shown.`),
    rows.length > 0 && shown.length === 0 && h("p", { class: "empty" }, "Nothing matches the filter."),
    shown.length > 0 && h("div", { class: "scroll" }, h("table", { class: "stacks" },
      h("thead", {}, h("tr", {}, heads.map(([head, kind]) => h("th", { scope: "col", class: kind === "num" && kind }, head)))),
      h("tbody", {}, shown.map(row)))),
    told.addresses?.length > 0 && busiest(told.addresses),
    rows.length > shown.length && h("p", { class: "faint" }, `${number(rows.length - shown.length)} more do not match the filter, or are beyond the first 500.`));
}

/** The client addresses with most requests, as `addr` of each server lists them. */
function busiest(addresses) {
  const several = new Set(addresses.map((one) => one.server)).size > 1;
  const columns = [
    ["requests", (one) => number(one.used.requests)],
    ["received", (one) => bytes(one.used.received_bytes)],
    ["sent", (one) => bytes(one.used.sent_bytes)],
    ["connections", (one) => number(one.used.connections)],
  ];
  const name = (one) => (several ? `${one.address} at ${one.server}` : one.address);
  return h("section", {},
    h("h2", {}, "Client addresses"),
    h("p", { class: "faint" }, "Those with most requests since the server started. Connections are those that are open; the rest counts ended ones too."),
    h("div", { class: "scroll" }, h("table", { class: "stacks" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "address"), columns.map(([head]) => h("th", { scope: "col", class: "num" }, head)))),
      h("tbody", {}, addresses.map((one) => h("tr", {},
        h("th", { scope: "row", class: "mono" }, name(one)),
        columns.map(([head, cell]) => h("td", { class: "num", "data-head": head }, cell(one)))))))));
}
