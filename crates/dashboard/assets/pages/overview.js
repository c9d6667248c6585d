// Problems first, then the servers and their metrics.

import { bytes, counted, h, number, show } from "../dom.js";
import { store } from "../store.js";
import { tile } from "../charts.js";

export function overview(main) {
  const problems = h("section", { "aria-label": "Problems" });
  const use = h("section", { class: "use", "aria-label": "In use" });
  const tiles = h("section", { class: "tiles", "aria-label": "Numbers" });
  const servers = h("section", { "aria-label": "Servers" });
  main.append(problems, use, tiles, servers);
  const update = (changed) => {
    const is = (name) => !changed || changed.has(name);
    if (is("problems") || is("ready")) showProblems(problems);
    if (is("sample")) showTiles(tiles);
    if (is("servers")) showServers(servers);
    if (!changed || [...changed].some((name) => name.startsWith("sight "))) showUse(use);
  };
  update();
  return { update };
}

function showProblems(section) {
  const problems = store.get("problems") ?? [];
  if (!store.get("ready")) {
    show(section, h("p", { class: "calm" }, "Looking at the tree…"));
    return;
  }
  if (problems.length === 0) {
    show(section, h("p", { class: "calm good" }, h("span", { class: "dot" }), "No problems: nothing is stuck, crashed or given up."));
    return;
  }
  show(
    section,
    h("h2", {}, counted(problems.length, "problem")),
    h("ul", { class: "problems" }, problems.map((problem) =>
      h("li", { class: `problem ${problem.severity}` },
        h("a", { href: problem.link },
          h("span", { class: "kind" }, problem.kind),
          h("span", { class: "what" }, problem.what),
          h("span", { class: "advice" }, problem.advice),
        ),
      ),
    )),
  );
}

const KINDS = [
  ["locks", "locks held", ["lock", "simple_lock", "rwlock", "semaphore"], (sight) => sight.holders.length],
  ["locks", "waiting in line", ["lock", "rwlock", "semaphore"], (sight) => sight.waiters.length],
  ["elections", "leaders", ["election"], (sight) => sight.holders.length],
  ["queues", "items in queues", ["queue"], (sight) => sight.items],
  ["queues", "being worked on", ["queue", "tasks"], (sight) => sight.claims.length],
  ["barriers", "barriers", ["barrier", "double_barrier"], () => 1],
  ["transactions", "transactions", ["transaction"], () => 1],
];

function showUse(section) {
  show(section, KINDS.map(([page, name, recipes, measure]) => {
    const total = store.sights(...recipes).reduce((sum, sight) => sum + measure(sight), 0);
    return h("a", { class: `fact${total ? "" : " none"}`, href: `#/${page}` }, h("b", {}, number(total)), h("span", {}, name));
  }));
}

function showTiles(section) {
  const samples = store.samples;
  const course = (name) => samples.map((sample) => sample[name]);
  const has = (name) => samples.some((sample) => sample[name] !== null && sample[name] !== undefined);
  const tiles = [];
  if (samples.length === 0) return show(section);
  tiles.push(tile("requests", "/ s", [course("requests_per_second")]));
  if (has("latency_p99_ms")) tiles.push(tile("latency p50 / p99", "ms", [course("latency_p99_ms"), course("latency_p50_ms")].reverse()));
  else tiles.push(tile("latency, average", "ms", [course("latency_avg_ms")]));
  if (has("fsync_p99_ms")) tiles.push(tile("fsync p99", "ms", [course("fsync_p99_ms")]));
  tiles.push(tile("connections", "", [course("connections")]));
  if (has("sessions")) tiles.push(tile("sessions", "", [course("sessions")]));
  if (has("watches")) tiles.push(tile("watches", "", [course("watches")]));
  tiles.push(tile("nodes", "", [course("nodes")]));
  if (has("bytes")) tiles.push(tile("data", "", [course("bytes")], bytes));
  tiles.push(tile("requests waiting", "", [course("outstanding")]));
  show(section, tiles);
}

function showServers(section) {
  const servers = store.get("servers") ?? [];
  if (servers.length === 0) return show(section);
  const heads = ["server", "role", "version", "log", "connections", "nodes", "latency avg / max, ms", "waiting"];
  const row = (server) => {
    const n = server.numbers;
    const role = server.silent ? "missing" : server.mode || "unknown";
    const cells = h("tr", { class: server.silent ? "bad" : "" },
      h("th", { scope: "row", class: "mono" }, server.name),
      h("td", {}, h("span", { class: `role role-${role}` }, role)),
      h("td", {}, server.silent ?? server.version),
      h("td", { class: "num" }, server.silent ? "–" : server.lag === null ? "other epoch" : server.lag === 0 ? "up to date" : `${number(server.lag)} behind`),
      h("td", { class: "num" }, number(n.num_alive_connections)),
      h("td", { class: "num" }, number(n.znode_count)),
      h("td", { class: "num" }, n.avg_latency === undefined ? "–" : `${number(n.avg_latency)} / ${number(n.max_latency)}`),
      h("td", { class: "num" }, number(n.outstanding_requests)),
    );
    heads.forEach((head, place) => (cells.children[place].dataset.head = head));
    return cells;
  };
  show(section,
    h("h2", {}, counted(servers.length, "server")),
    h("div", { class: "scroll" }, h("table", { class: "stacks" },
      h("thead", {}, h("tr", {}, heads.map((head, place) => h("th", { scope: "col", class: place > 2 ? "num" : "" }, head)))),
      h("tbody", {}, servers.map(row)),
    )),
  );
}
