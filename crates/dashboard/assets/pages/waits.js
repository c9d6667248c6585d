// Wait-for graph, for waiters whose holder waits itself. Cycles are deadlocks, and are marked.

import { counted, h, show, svg } from "../dom.js";

const BOX_WIDTH = 170;
const BOX_HEIGHT = 40;
const STEP_X = 270;
const STEP_Y = 74;

/** On a phone, a cycle is drawn upright. To measure an element instead would lay out the page at every update. */
const narrow = matchMedia("(max-width: 700px)");

/** Maximum number of owners drawn. */
const OWNERS_MAX = 40;

let drawn = "";

export function waits(section, edges, deadlocks) {
  const isNarrow = narrow.matches;
  const text = JSON.stringify([edges, deadlocks, isNarrow]);
  if (text === drawn && section.childElementCount > 0) return;
  drawn = text;
  if (edges.length === 0) {
    show(section);
    return;
  }
  const circles = deadlocks.map((circle) => new Set(circle.map((step) => step.owner)));
  const inCircle = (one, other) => circles.some((circle) => circle.has(one) && circle.has(other));
  const names = new Map();
  for (const edge of edges) {
    names.set(edge.owner, edge.name);
    names.set(edge.waits_for, edge.blocker);
  }
  const owners = [...names.keys()].slice(0, OWNERS_MAX);
  const places = layout(owners, edges, circles, isNarrow);
  const width = Math.max(...[...places.values()].map((at) => at.x)) + BOX_WIDTH + (isNarrow ? 60 : 24);
  const height = Math.max(...[...places.values()].map((at) => at.y)) + BOX_HEIGHT + 24;
  const image = svg("svg", { class: "waits-graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(edges, deadlocks) },
    svg("defs", {}, arrow("arrow"), arrow("arrow-bad")));
  for (const edge of unique(edges)) {
    const [from, to] = [places.get(edge.owner), places.get(edge.waits_for)];
    if (from && to) image.append(...link(edge, from, to, inCircle(edge.owner, edge.waits_for)));
  }
  for (const owner of owners) {
    const { x, y } = places.get(owner);
    const isStuck = circles.some((circle) => circle.has(owner));
    image.append(svg("g", { class: `owner${isStuck ? " stuck" : ""}`, transform: `translate(${x} ${y})` },
      svg("title", {}, `${names.get(owner)}, owner ${owner}`),
      svg("rect", { width: BOX_WIDTH, height: BOX_HEIGHT, rx: 10 }),
      svg("text", { x: BOX_WIDTH / 2, y: 25 }, short(names.get(owner), 20))));
  }
  const title = deadlocks.length > 0 ? `${counted(deadlocks.length, "deadlock")}: owners wait for each other in a cycle` : "Chains of waiting";
  show(section, h("h2", { class: deadlocks.length > 0 ? "bad" : "" }, title), h("div", { class: "scroll" }, image));
}

/** Owners in a cycle are placed on a circle; the others in columns, by the number of waits before them. */
function layout(owners, edges, circles, isNarrow) {
  const places = new Map();
  let left = isNarrow ? 64 : 12;
  for (const circle of circles) {
    const members = [...circle].filter((owner) => owners.includes(owner) && !places.has(owner));
    const isPair = members.length <= 2;
    const across = isNarrow ? (isPair ? 0 : 40) : Math.max(190, members.length * 62);
    const down = isNarrow ? Math.max(75, members.length * 45) : isPair ? 26 : members.length * 34;
    members.forEach((owner, at) => {
      const angle = (2 * Math.PI * at) / members.length + (isNarrow ? Math.PI * 1.5 : Math.PI);
      places.set(owner, { x: left + across * (1 + Math.cos(angle)), y: 14 + down * (1 + Math.sin(angle)) });
    });
    left += 2 * across + BOX_WIDTH + 90;
  }
  const depth = new Map();
  const depthOf = (owner, seen = new Set()) => {
    if (depth.has(owner)) return depth.get(owner);
    if (seen.has(owner)) return 0;
    seen.add(owner);
    const next = edges.filter((edge) => edge.owner === owner && edge.waits_for !== owner).map((edge) => 1 + depthOf(edge.waits_for, seen));
    const deepest = Math.max(0, ...next);
    depth.set(owner, deepest);
    return deepest;
  };
  const rest = owners.filter((owner) => !places.has(owner));
  const most = Math.max(0, ...rest.map((owner) => depthOf(owner)));
  const rows = new Map();
  for (const owner of rest) {
    const column = most - depthOf(owner);
    const row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    places.set(owner, { x: left + column * STEP_X, y: 12 + row * STEP_Y });
  }
  return places;
}

function link(edge, from, to, isBad) {
  const centre = (at) => ({ x: at.x + BOX_WIDTH / 2, y: at.y + BOX_HEIGHT / 2 });
  const [start, end] = [border(centre(from), centre(to)), border(centre(to), centre(from))];
  // Two owners that wait for each other have two arcs.
  const isUpright = Math.abs(end.y - start.y) > Math.abs(end.x - start.x);
  const bend = isBad ? (isUpright ? 0.5 : 0.2) : 0.04;
  const middle = { x: (start.x + end.x) / 2 + (end.y - start.y) * bend, y: (start.y + end.y) / 2 - (end.x - start.x) * bend };
  // The name of the lock stands beside an upright arc, and above or below another.
  const isLeft = end.y < start.y;
  const side = isUpright && isBad ? (isLeft ? " left" : " right") : "";
  const label = {
    x: (start.x + 2 * middle.x + end.x) / 4 + (side === "" ? 0 : isLeft ? -8 : 8),
    y: (start.y + 2 * middle.y + end.y) / 4 + (side !== "" ? 4 : end.x < start.x ? 15 : -6),
  };
  return [
    svg("path", { class: `wait${isBad ? " bad" : ""}`, d: `M${start.x} ${start.y}Q${middle.x} ${middle.y} ${end.x} ${end.y}`, "marker-end": `url(#${isBad ? "arrow-bad" : "arrow"})` }),
    svg("text", { class: `edge${isBad ? " bad" : ""}${side}`, ...label }, svg("title", {}, edge.path), short(edge.path, side === "" ? 24 : 15)),
  ];
}

/** Where the line from the middle of a box to another leaves the box. */
function border(from, to) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const scale = Math.min((BOX_WIDTH / 2 + 4) / Math.abs(dx || 1e-9), (BOX_HEIGHT / 2 + 4) / Math.abs(dy || 1e-9));
  return { x: from.x + dx * scale, y: from.y + dy * scale };
}

function arrow(id) {
  return svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8Z" }));
}

function unique(edges) {
  const seen = new Map(edges.map((edge) => [`${edge.owner} ${edge.waits_for} ${edge.path}`, edge]));
  return seen.values();
}

function short(text, most) {
  return text.length > most ? `…${text.slice(text.length - most + 1)}` : text;
}

function describe(edges, deadlocks) {
  const waits = edges.slice(0, 20).map((edge) => `${edge.name} waits for ${edge.blocker} at ${edge.path}`);
  return `${deadlocks.length} deadlocks. ${waits.join(". ")}`;
}
