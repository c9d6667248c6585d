// Creates elements. Text stays text: no code here or elsewhere parses a string as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("p", {class: "faint"}, "text", child)`. A property that is a function is a listener, as in `onclick`. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "vars") setVars(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

/** Sets custom properties of CSS. */
export function setVars(element, vars) {
  for (const [name, value] of Object.entries(vars)) element.style.setProperty(`--${name}`, value);
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces all children. The focus moves to the new child that says the same, so that updates do not interrupt users of a keyboard. */
export function show(element, ...children) {
  const focused = element.contains(document.activeElement) && document.activeElement;
  const place = focused && alike(element, focused).indexOf(focused);
  element.replaceChildren();
  append(element, children);
  if (focused) alike(element, focused)[place]?.focus({ preventScroll: true });
  return element;
}

/** The elements in `parent` that say the same as `one`, and lead to the same place. */
function alike(parent, one) {
  const says = (element) => `${element.getAttribute("href")} ${element.textContent}`;
  return [...parent.querySelectorAll(one.localName)].filter((element) => says(element) === says(one));
}

/**
 * Makes the children of `parent` those of `items`, in their order. An element stays with its key, so that focus, selection and
 * animations survive. `make(item)` creates an element and `update(element, item)` updates it.
 */
export function keyed(parent, items, key, make, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = old.get(name);
    if (element) {
      old.delete(name);
    } else {
      element = make(item);
      element.dataset.key = name;
    }
    update?.(element, item);
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
  for (const gone of old.values()) gone.remove();
}

/** Animates the children of `parent` that `change` moves. */
export function moving(parent, change) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return change();
  const before = new Map();
  for (const child of parent.children) before.set(child, child.getBoundingClientRect().left);
  change();
  for (const child of parent.children) {
    const was = before.get(child);
    if (was === undefined) {
      if (before.size > 0) child.animate([{ opacity: 0, transform: "translateX(16px)" }, { opacity: 1, transform: "none" }], { duration: 260, easing: "ease-out" });
      continue;
    }
    const by = was - child.getBoundingClientRect().left;
    if (Math.abs(by) > 1) {
      child.animate([{ transform: `translateX(${by}px)` }, { transform: "none" }], { duration: 380, easing: "cubic-bezier(.3,.9,.4,1)" });
    }
  }
}

// --- times and numbers ------------------------------------------------------------------------------------------

/** A time span in words: `3 s`, `2 m 5 s`, `4 h 10 m`, `3 d 2 h`. */
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const parts = (first, unit, second, smaller) => `${Math.floor(first)} ${unit} ${Math.floor(second)} ${smaller}`;
  const text = s < 60 ? `${s} s` : s < 3600 ? parts(s / 60, "m", s % 60, "s") : s < 86400 ? parts(s / 3600, "h", (s % 3600) / 60, "m") : parts(s / 86400, "d", (s % 86400) / 3600, "h");
  // A number and its unit stay on one line.
  return text.replaceAll(" ", "\u00a0");
}

/** An element that shows how long ago `ms` was, and is kept up to date. */
export function ago(ms, properties) {
  return h("time", { ...properties, "data-since": ms, datetime: new Date(ms).toISOString(), title: new Date(ms).toLocaleString() }, span(Date.now() - ms));
}

/** Updates all such elements. */
export function tick() {
  const now = Date.now();
  for (const element of document.querySelectorAll("[data-since]")) {
    const text = span(now - Number(element.dataset.since));
    if (element.textContent !== text) element.textContent = text;
  }
}

export function number(value) {
  if (value === undefined || value === null) return "–";
  if (value >= 10000000) return `${(value / 1000000).toFixed(0)} M`;
  if (value >= 1000000) return `${(value / 1000000).toFixed(1)} M`;
  if (value >= 100000) return `${(value / 1000).toFixed(0)} k`;
  if (value >= 10000) return `${(value / 1000).toFixed(1)} k`;
  return Number.isInteger(value) || value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(value < 1 ? 2 : 1);
}

export function bytes(value) {
  if (value === undefined || value === null) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${place === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[place]}`;
}

export function counted(count, thing, things = `${thing}s`) {
  return `${number(count)} ${count === 1 ? thing : things}`;
}
