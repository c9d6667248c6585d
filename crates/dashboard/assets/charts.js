// Small charts of the last minutes.

import { h, number, svg } from "./dom.js";

const WIDTH = 220;
const HEIGHT = 46;

/** A tile: a name, the last value, and a chart. `series` are lists of numbers, null where there is none. */
export function tile(name, unit, series, format = number) {
  const last = series.map((values) => values.at(-1));
  const shown = last.map((value) => format(value)).join(" / ");
  return h(
    "figure",
    { class: "tile" },
    h("figcaption", {}, name),
    h("p", { class: "value" }, shown, unit && h("span", { class: "unit" }, ` ${unit}`)),
    sparkline(series, name),
  );
}

function sparkline(series, name) {
  const numbers = series.flat().filter((value) => value !== null && value !== undefined);
  const most = Math.max(...numbers, 0) || 1;
  const least = Math.min(...numbers, most);
  // The axis starts at zero, unless that would hide the differences between large values.
  const floor = least > most * 0.8 && most - least < most * 0.02 ? 0 : least > most * 0.5 ? least * 0.9 : 0;
  const y = (value) => HEIGHT - 3 - ((value - floor) / (most - floor || 1)) * (HEIGHT - 8);
  const count = Math.max(...series.map((values) => values.length), 30);
  const x = (place, length) => WIDTH - (length - 1 - place) * (WIDTH / (count - 1));
  const image = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name} over the last minutes, at most ${number(most)}` });
  series.forEach((values, which) => {
    const points = values
      .map((value, place) => (value === null || value === undefined ? null : [x(place, values.length), y(value)]))
      .filter(Boolean);
    if (points.length < 2) return;
    const path = points.map(([left, top], place) => `${place ? "L" : "M"}${left.toFixed(1)} ${top.toFixed(1)}`).join("");
    if (which === 0) image.append(svg("path", { class: "area", d: `${path}L${WIDTH} ${HEIGHT}L${points[0][0].toFixed(1)} ${HEIGHT}Z` }));
    image.append(svg("path", { class: `course course-${which}`, d: path, "vector-effect": "non-scaling-stroke" }));
  });
  return image;
}
