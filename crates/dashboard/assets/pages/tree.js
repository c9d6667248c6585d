// The tree: children on one side, the chosen node on the other.

import { ago, bytes, counted, h, number, show } from "../dom.js";
import { ask } from "../store.js";

/** Delay after the last keystroke. */
const TYPING_MS = 250;

export function tree(main, query) {
  const path = query.get("path") || "/";
  let from = 0;
  let filter = "";
  const crumbs = h("nav", { class: "crumbs mono", "aria-label": "Path" }, crumbsOf(path));
  const field = h("input", { type: "search", placeholder: "filter these children", "aria-label": "filter children" });
  const everywhere = h("input", { type: "search", placeholder: "search below here", title: "Enter searches all names below this node", "aria-label": "search below this node" });
  const list = h("div", { class: "children" });
  const node = h("section", { class: "node", "aria-label": "Node" });
  main.append(crumbs, h("div", { class: "split" }, h("section", { "aria-label": "Children" }, h("div", { class: "bar" }, field, everywhere), list), node));

  const children = async () => {
    try {
      const told = await ask(`/api/children?path=${encodeURIComponent(path)}&from=${from}&filter=${encodeURIComponent(filter)}`);
      show(list, childList(told, path), pager(told, (to) => {
        from = to;
        children();
      }));
    } catch (error) {
      show(list, h("p", { class: "empty" }, error.message));
    }
  };
  const read = async () => {
    try {
      showNode(node, await ask(`/api/node?path=${encodeURIComponent(path)}`));
    } catch (error) {
      show(node, h("p", { class: "empty" }, error.message));
    }
  };
  let typing;
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      filter = field.value;
      from = 0;
      children();
    }, TYPING_MS);
  });
  everywhere.addEventListener("keydown", async (event) => {
    if (event.key !== "Enter" || !everywhere.value) return;
    show(list, h("p", { class: "empty" }, "Searching…"));
    try {
      const { found, cut } = await ask(`/api/search?name=${encodeURIComponent(everywhere.value)}&under=${encodeURIComponent(path)}`);
      show(list, h("p", { class: "faint" }, `${counted(found.length, "node")} found${cut ? "; the search was cut short" : ""}`),
        h("ul", {}, found.map((one) => h("li", {}, h("a", { class: "mono child", href: link(one) }, one)))));
    } catch (error) {
      show(list, h("p", { class: "empty" }, error.message));
    }
  });
  const source = new EventSource(`/api/touched?path=${encodeURIComponent(path)}`);
  source.onmessage = () => {
    children();
    read();
  };
  children();
  read();
  return { close: () => source.close() };
}

const link = (path) => `#/tree?path=${encodeURIComponent(path)}`;

function crumbsOf(path) {
  const parts = path.split("/").filter(Boolean);
  const links = [h("a", { href: link("/") }, "/")];
  parts.forEach((part, at) => {
    const above = `/${parts.slice(0, at + 1).join("/")}`;
    links.push(at > 0 && h("span", { class: "faint" }, "/"), h("a", { href: link(above), "aria-current": at === parts.length - 1 ? "page" : undefined }, part));
  });
  return links;
}

function childList(told, path) {
  if (told.children.length === 0) return h("p", { class: "empty" }, told.total ? "No child matches." : "No children.");
  const prefix = path === "/" ? "" : path;
  return h("ul", {}, told.children.map((child) => h("li", {},
    h("a", { class: "child", href: link(`${prefix}/${child.name}`) },
      h("span", { class: `leaf${child.children ? " folder" : ""}${child.ephemeral ? " ephemeral" : ""}`, "aria-hidden": "true" }),
      h("span", { class: "mono name" }, child.name),
      h("span", { class: "faint num" }, [child.ephemeral && "ephemeral", child.children ? counted(child.children, "child", "children") : "", child.bytes ? bytes(child.bytes) : ""].filter(Boolean).join(" · "))))));
}

function pager(told, go) {
  const size = 100;
  if (told.matching <= size) return undefined;
  const last = Math.min(told.from + size, told.matching);
  return h("div", { class: "pager" },
    h("button", { type: "button", disabled: told.from === 0, onclick: () => go(Math.max(0, told.from - size)) }, "Back"),
    h("span", {}, `${number(told.from + 1)} to ${number(last)} of ${number(told.matching)}`),
    h("button", { type: "button", disabled: last >= told.matching, onclick: () => go(told.from + size) }, "Next"));
}

let form = "text";

function showNode(section, node) {
  const { stat } = node;
  const forms = { text: node.data.text ?? "(not text)", JSON: pretty(node.data.text), hex: node.hex };
  if (forms[form] === undefined) form = "text";
  if (node.data.text === undefined) form = "hex";
  const body = h("pre", { class: "data", tabindex: 0 }, forms[form]);
  const tabs = Object.keys(forms).map((name) => h("button", {
    type: "button", class: "tab", "aria-pressed": String(name === form), disabled: forms[name] === undefined,
    onclick: (event) => {
      form = name;
      body.textContent = forms[name];
      for (const tab of event.target.parentNode.children) tab.setAttribute("aria-pressed", String(tab === event.target));
    },
  }, name));
  const facts = [
    ["size", bytes(stat.bytes)], ["children", number(stat.children)], ["version", stat.version], ["children version", stat.cversion], ["access version", stat.aversion],
    ["created", [ago(stat.ctime_ms), " ago"]], ["changed", [ago(stat.mtime_ms), " ago"]],
    ["czxid", stat.czxid], ["mzxid", stat.mzxid], ["pzxid", stat.pzxid],
    ["owner", stat.ephemeral_owner ? `session ${stat.ephemeral_owner}` : "persistent"],
  ];
  show(section,
    h("h2", { class: "mono" }, node.path),
    h("div", { class: "tabs", role: "group", "aria-label": "Data as" }, tabs),
    stat.bytes === 0 ? h("p", { class: "faint" }, "No data.") : body,
    node.cut && h("p", { class: "faint" }, `The first 64 KiB of ${bytes(stat.bytes)}.`),
    h("dl", { class: "facts two" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("h3", {}, "Access"),
    node.acl ? h("ul", { class: "names mono" }, node.acl.map((entry) => h("li", {}, `${entry.scheme}:${entry.id}:${entry.rights}`))) : h("p", { class: "faint" }, "This session may not read the access list."));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return undefined;
  }
}
