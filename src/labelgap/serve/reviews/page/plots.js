// Plots as SVG, each with its numbers as a table beside it for those who do not see it.

import { count, el, percent, svg } from "./dom.js";

const HEIGHT = 300;
const EDGE = { left: 66, right: 26, top: 14, bottom: 46 };
const FIFTHS = [0, 0.2, 0.4, 0.6, 0.8, 1];
const percents = (shares) => shares.map((share) => [share, `${Math.round(100 * share)} %`]);

/** Axes from 0 to 1 with a frame of lines; small screens get a smaller drawing rather than smaller letters. */
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

  frame(title, xTitle, yTitle, xTicks, marks) {
    const [left, right, bottom] = [this.x(0), this.x(1), this.y(0)];
    const words = (text, attributes) => svg("text", { "text-anchor": "middle", ...attributes }, text);
    const across = (share) => svg("line", { class: "grid", x1: left, x2: right, y1: this.y(share), y2: this.y(share) });
    return svg("svg", { viewBox: `0 0 ${this.width} ${HEIGHT}`, role: "img", "aria-label": title, class: "plot" },
      FIFTHS.map(across),
      percents(FIFTHS).map(([share, text]) => words(text, { x: left - 8, y: this.y(share) + 4, "text-anchor": "end" })),
      xTicks.map(([share, text]) => words(text, { x: this.x(share), y: bottom + 19 })),
      words(xTitle, { x: this.x(0.5), y: HEIGHT - 6 }),
      words(yTitle, { transform: `translate(14 ${this.y(0.5)}) rotate(-90)` }), marks);
  }
}

/** Precision after each review, and what was expected. */
export function precisionPlot(curve) {
  const axes = new Axes();
  const last = curve.at(-1)?.reviewed ?? 1;
  const place = (n) => (last > 1 ? (n - 1) / (last - 1) : 0.5);
  const ticks = [...new Set([1, Math.round((1 + last) / 2), last])].map((n) => [place(n), count(n)]);
  const line = (name, kind) => curve.length > 1
    ? svg("path", { class: `line ${kind}`, d: axes.path(curve.map((one) => [place(one.reviewed), one[name]])) })
    : curve.map((one) => svg("circle", { class: `dot ${kind}`, cx: axes.x(0.5), cy: axes.y(one[name]), r: 5 }));
  const lines = [line("expected", "expected"), line("precision", "found")];
  return axes.frame("Precision after each review", "reviews", "right so far", ticks, lines);
}

/** Predicted probability against the share that was accepted; the area of a dot is the number of reviews. */
export function calibrationPlot(bins) {
  const axes = new Axes();
  const most = Math.max(...bins.map((bin) => bin.reviewed), 1);
  const dots = bins.map(({ predicted, accepted, reviewed }) => {
    const place = { cx: axes.x(predicted), cy: axes.y(accepted), r: 4 + 10 * Math.sqrt(reviewed / most) };
    const words = `${percent(predicted)} predicted, ${percent(accepted)} accepted, ${reviewed} reviews`;
    return svg("circle", { class: "dot found", ...place }, svg("title", {}, words));
  });
  const ticks = percents(axes.narrow ? [0, 0.5, 1] : FIFTHS);
  return axes.frame("Calibration", "predicted probability", "accepted", ticks,
    [svg("path", { class: "line expected", d: axes.path([[0, 0], [1, 1]]) }), dots]);
}

/** Labels as bars: written, added by reviews, still missing by estimate. */
export function labelBars(labels) {
  const most = Math.max(...labels.map((one) => one.written + one.added + (one.missing ?? 0)), 1);
  return el("ul", { class: "label-bars" }, labels.map((one) => {
    const kept = Math.max(one.written - one.removed, 0);
    const parts = [["written", kept], ["added", one.added], ["missing", one.missing ?? 0]].map(([kind, n]) => {
      const bar = el("span", { class: `part ${kind}` });
      bar.style.setProperty("--share", String(n / most));
      return bar;
    });
    const added = one.added ? ` + ${count(one.added)}` : "";
    const words = `${count(kept)}${added}${one.missing >= 0.5 ? ` + ${count(one.missing)}?` : ""}`;
    return el("li", {}, el("span", { class: "name", title: one.label }, one.label),
      el("span", { class: "parts", "aria-hidden": "true" }, parts), el("span", { class: "weight" }, words));
  }));
}

/** The numbers of a plot as a table that opens on demand. */
export function numbers(heads, rows) {
  const head = el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text))));
  const body = el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, String(cell))))));
  const table = el("div", { class: "scroll" }, el("table", {}, head, body));
  return el("details", { class: "numbers" }, el("summary", {}, "As a table"), table);
}

/** What the colours mean. */
export const legend = (...entries) => el("p", { class: "legend" }, entries.map(([kind, text]) =>
  el("span", {}, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), text)));
