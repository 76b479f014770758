// Plots as SVG, and their numbers as tables for people who do not see them.

import { count, el, percent, svg } from "./dom.js";

const HEIGHT = 300;
const EDGE = { left: 66, right: 26, top: 14, bottom: 46 };
const FIFTHS = [0, 0.2, 0.4, 0.6, 0.8, 1];
const percentTicks = (shares) => shares.map((share) => [share, `${Math.round(100 * share)} %`]);
const textElement = (text, attributes) => svg("text", { "text-anchor": "middle", ...attributes }, text);

/** Axes from 0 to 1 with a grid; a narrow screen gets a smaller plot with letters of the same size. */
class Axes {
  constructor() {
    this.narrow = matchMedia("(max-width: 46rem)").matches;
    this.width = this.narrow ? 340 : 520;
  }

  x(share) { return EDGE.left + share * (this.width - EDGE.left - EDGE.right); }
  y(share) { return EDGE.top + (1 - share) * (HEIGHT - EDGE.top - EDGE.bottom); }

  path(points) {
    return points.map(([a, b], i) => `${i ? "L" : "M"}${this.x(a).toFixed(1)} ${this.y(b).toFixed(1)}`).join("");
  }

  plot(title, xTitle, yTitle, xTicks, marks) {
    const [left, right, bottom] = [this.x(0), this.x(1), this.y(0)];
    const gridLine = (share) =>
      svg("line", { class: "grid", x1: left, x2: right, y1: this.y(share), y2: this.y(share) });
    return svg("svg", { viewBox: `0 0 ${this.width} ${HEIGHT}`, role: "img", "aria-label": title, class: "plot" },
      FIFTHS.map(gridLine),
      percentTicks(FIFTHS).map(([share, text]) =>
        textElement(text, { x: left - 8, y: this.y(share) + 4, "text-anchor": "end" })),
      xTicks.map(([share, text]) => textElement(text, { x: this.x(share), y: bottom + 19 })),
      textElement(xTitle, { x: this.x(0.5), y: HEIGHT - 6 }),
      textElement(yTitle, { transform: `translate(14 ${this.y(0.5)}) rotate(-90)` }), marks);
  }
}

/** Plot the precision after each review, and the expected precision. */
export function precisionPlot(curve) {
  const axes = new Axes();
  const last = curve.at(-1)?.reviewed ?? 1;
  const position = (n) => (last > 1 ? (n - 1) / (last - 1) : 0.5);
  const ticks = [...new Set([1, Math.round((1 + last) / 2), last])].map((n) => [position(n), count(n)]);
  const line = (name, kind) => curve.length > 1
    ? svg("path", { class: `line ${kind}`, d: axes.path(curve.map((point) => [position(point.reviewed), point[name]])) })
    : curve.map((point) => svg("circle", { class: `dot ${kind}`, cx: axes.x(0.5), cy: axes.y(point[name]), r: 5 }));
  const lines = [line("expected", "expected"), line("precision", "observed")];
  return axes.plot("Precision after each review", "reviews", "right so far", ticks, lines);
}

/** Plot the predicted probability against the share accepted; the area of a dot is the number of reviews. */
export function calibrationPlot(bins) {
  const axes = new Axes();
  const largest = Math.max(...bins.map((bin) => bin.reviewed), 1);
  const dots = bins.map(({ predicted, accepted, reviewed }) => {
    const place = { cx: axes.x(predicted), cy: axes.y(accepted), r: 4 + 10 * Math.sqrt(reviewed / largest) };
    const text = `${percent(predicted)} predicted, ${percent(accepted)} accepted, ${reviewed} reviews`;
    return svg("circle", { class: "dot observed", ...place }, svg("title", {}, text));
  });
  const ticks = percentTicks(axes.narrow ? [0, 0.5, 1] : FIFTHS);
  return axes.plot("Calibration", "predicted probability", "accepted", ticks,
    [svg("path", { class: "line expected", d: axes.path([[0, 0], [1, 1]]) }), dots]);
}

/** Make bars of labels: in the file, added by reviews, probably still missing. */
export function labelBars(labels) {
  const largest = Math.max(...labels.map(({ written, added, missing }) => written + added + (missing ?? 0)), 1);
  return el("ul", { class: "label-bars" }, labels.map(({ label, written, removed, added, missing }) => {
    const remaining = Math.max(written - removed, 0);
    const parts = [["written", remaining], ["added", added], ["missing", missing ?? 0]].map(([kind, n]) => {
      const bar = el("span", { class: `part ${kind}` });
      bar.style.setProperty("--share", String(n / largest));
      return bar;
    });
    const plusAdded = added ? ` + ${count(added)}` : "";
    const text = `${count(remaining)}${plusAdded}${missing >= 0.5 ? ` + ${count(missing)}?` : ""}`;
    return el("li", {}, el("span", { class: "name", title: label }, label),
      el("span", { class: "parts", "aria-hidden": "true" }, parts), el("span", { class: "weight" }, text));
  }));
}

/** Make a table of the numbers of a plot that opens on demand. */
export function numberTable(heads, rows) {
  const head = el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text))));
  const body = el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, String(cell))))));
  const table = el("div", { class: "scroll" }, el("table", {}, head, body));
  return el("details", { class: "numbers" }, el("summary", {}, "As a table"), table);
}

/** Make a legend of colours. */
export const legend = (...entries) => el("p", { class: "legend" }, entries.map(([kind, text]) =>
  el("span", {}, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), text)));
