// Selects the page, and draws the navigation and header around it.

import { logIn, setAbout } from "./actions.js";
import { counted, h, keyed, tick } from "./dom.js";
import { ask, store } from "./store.js";
import { overview } from "./pages/overview.js";
import { locks } from "./pages/locks.js";
import { barriers, elections, queues, state, transactions } from "./pages/recipes.js";
import { tree } from "./pages/tree.js";
import { sessions } from "./pages/sessions.js";

const count = (...recipes) => () => store.sights(...recipes).length;

/** The pages in the order of the navigation. Each is created when it is opened, and returns its handler of changes. */
const PAGES = [
  { id: "", name: "Overview", make: overview, count: () => store.get("problems")?.length, alarm: true },
  { id: "locks", name: "Locks", make: locks, count: count("lock", "simple_lock", "rwlock", "semaphore") },
  { id: "elections", name: "Elections", make: elections, count: count("election") },
  { id: "queues", name: "Queues & tasks", make: queues, count: count("queue", "tasks") },
  { id: "barriers", name: "Barriers", make: barriers, count: count("barrier", "double_barrier") },
  { id: "transactions", name: "Transactions", make: transactions, count: count("transaction") },
  { id: "state", name: "Groups & config", make: state },
  { id: "tree", name: "Tree", make: tree },
  { id: "sessions", name: "Sessions", make: sessions },
];

const main = document.getElementById("main");
let page;

/** Parses `#/locks?path=/jobs` into the page and its parameters. */
function route() {
  const [id, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: PAGES.find((one) => one.id === id) ?? PAGES[0], query: new URLSearchParams(query ?? "") };
}

function open() {
  const { page: wanted, query } = route();
  page?.close?.();
  main.replaceChildren();
  main.dataset.page = wanted.id || "overview";
  document.title = `${wanted.name} · bellwether`;
  document.getElementById("page-title").textContent = wanted.name;
  page = wanted.make(main, query) ?? {};
  navigation();
  // On a phone the pages are a strip that scrolls.
  document.querySelector("#nav [aria-current]").scrollIntoView({ inline: "center", block: "nearest" });
  scrollTo(0, 0);
}

function navigation() {
  const current = route().page;
  keyed(
    document.getElementById("nav"),
    PAGES,
    (one) => one.id,
    (one) => h("a", { href: `#/${one.id}` }, h("span", { class: `glyph glyph-${one.id || "overview"}`, "aria-hidden": "true" }), h("span", { class: "label" }, one.name), h("span", { class: "count" })),
    (link, one) => {
      if (one === current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      const number = one.count?.() || "";
      const badge = link.lastChild;
      if (badge.textContent !== String(number)) badge.textContent = number;
      badge.classList.toggle("alarm", Boolean(one.alarm && number));
    },
  );
}

function connection() {
  const pill = document.getElementById("connection");
  const told = store.get("connection");
  const [text, kind] =
    store.state !== "live" ? ["dashboard not reachable, retrying", "bad"]
    : !told ? ["connecting", ""]
    : !told.connected ? ["no server answers, retrying", "bad"]
    : told.trouble ? [told.trouble, "bad"]
    : ["live", "good"];
  if (pill.textContent !== text) pill.textContent = text;
  pill.className = `pill ${kind}`;
  document.body.classList.toggle("stale", kind === "bad");
}

let announced = "";
function announce() {
  const problems = store.get("problems") ?? [];
  const text = problems.length === 0 ? "" : `${counted(problems.length, "problem")}: ${problems[0].kind}, ${problems[0].what}`;
  if (text !== announced) document.getElementById("announce").textContent = text;
  announced = text;
}

// --- theme --------------------------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

function theme() {
  const button = document.getElementById("theme");
  const other = isDark() ? "Light" : "Dark";
  button.textContent = other;
  button.title = `${other} colours`;
  button.setAttribute("aria-label", button.title);
}

document.getElementById("theme").onclick = () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  theme();
};

// --- start --------------------------------------------------------------------------------------------------

async function about() {
  const told = await ask("/api/about");
  setAbout(told);
  document.getElementById("servers").textContent = told.title;
  document.getElementById("version").textContent = `v${told.version}`;
  const login = document.getElementById("login");
  login.hidden = told.logged_in || !(told.actions || told.needs_login);
  login.onclick = logIn;
  if (told.needs_login && !told.logged_in) logIn();
}

const saved = localStorage.getItem("theme");
if (saved) document.documentElement.dataset.theme = saved;
dark.addEventListener("change", theme);
theme();
addEventListener("hashchange", open);
// Its address would be that of a page: pages are told apart by the part after the `#`.
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault();
  main.focus();
};
document.addEventListener("login", () => about().then(open));
store.listen((changed) => {
  connection();
  navigation();
  announce();
  page?.update?.(changed);
});
setInterval(tick, 1000);
// The link that is printed at the start. The part after the `#` is sent to nobody.
const [, linked] = location.hash.match(/^#token=(.+)$/) ?? [];
if (linked) {
  history.replaceState(null, "", location.pathname);
  await ask("/api/login", { method: "POST", body: linked }).catch(() => {});
}
await about().catch(() => {});
open();
store.start();
