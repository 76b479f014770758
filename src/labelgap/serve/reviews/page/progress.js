// How far the review is, and what it says about the suggestions.

import { get } from "./api.js";
import { button, choices, count, counted, el, figure, percent, refill, select } from "./dom.js";
import { calibrationPlot, labelBars, legend, numbers, precisionPlot } from "./plots.js";

const FIRST = 20;
const NOTHING = "Nothing has been decided yet.";
const KINDS = [["missing", "Missing labels"], ["doubtful", "Doubtful labels"]];
const ORDERS = [["missing", "most missing"], ["written", "most written"], ["added", "most added"], ["name", "by name"]];
const LABELS = "How often each label is written, and how often it should be by the audit’s estimate.";

export class ProgressView {
  constructor() {
    this.kind = "missing";
    this.sorting = "missing";
    this.shown = FIRST;
    this.kinds = choices("Kind", KINDS, (kind) => { this.kind = kind; this.show(); });
    this.kinds.set(this.kind);
    this.body = el("div", {});
    const head = el("div", { class: "row spread" }, el("h1", {}, "Progress"), this.kinds.node);
    this.node = el("div", { class: "column wide" }, head, this.body);
    this.keys = {};
  }

  async show() {
    try {
      const [state, stats] = await Promise.all([get("/review/state"), get("/review/stats", { kind: this.kind })]);
      this.draw(state.counts[this.kind], stats);
    } catch (error) {
      refill(this.body, el("p", { class: "notice" }, error.message));
    }
  }

  draw(open, stats) {
    const { accepted, rejected, skipped } = stats.counts;
    const tiles = [[count(accepted), this.kind === "missing" ? "added" : "removed"], [count(rejected), "refused"],
      [count(skipped), "skipped"], [count(open.open), "open, from 10\u00a0%"], [`≈ ${count(open.expected)}`, "expected right"]];
    refill(this.body,
      el("dl", { class: "tiles" }, tiles.map(([number, text]) => el("div", {}, el("dt", {}, text), el("dd", {}, number)))),
      el("div", { class: "plots" }, precision(stats), calibration(stats), this.labels(stats)));
  }

  labels(stats) {
    const by = { missing: (one) => one.missing ?? 0, written: (one) => one.written, added: (one) => one.added }[this.sorting];
    const ordered = [...stats.labels].sort((a, b) => (by ? by(b) - by(a) : 0) || a.label.localeCompare(b.label));
    const order = select("Order", ORDERS, (value) => { this.sorting = value; this.show(); }, this.sorting);
    const all = () => { this.shown = Infinity; this.show(); };
    const more = ordered.length > this.shown ? button(`Show all ${count(ordered.length)}`, all, { class: "quiet" }) : null;
    return el("section", { class: "figure full" },
      el("div", { class: "row spread" }, el("h2", {}, "Labels"), order), el("p", { class: "muted" }, LABELS),
      legend(["written", "written"], ["added", "added by reviews"], ["missing", "still missing, estimated"]),
      labelBars(ordered.slice(0, this.shown)), more);
  }
}

function precision({ precision: found, curve }) {
  if (!found.reviewed) return figure("Precision so far", NOTHING);
  const decided = counted(found.reviewed, "decided suggestion was", "decided suggestions were");
  const text = `${percent(found.precision)} of ${decided} right (95\u00a0% interval ${percent(found.low)} to
    ${percent(found.high)}); expected were ${percent(found.expected)}.`;
  const rows = curve.map((one) => [one.reviewed, percent(one.precision, 1), percent(one.expected, 1)]);
  return figure("Precision so far", text, [precisionPlot(curve),
    legend(["found", "right so far"], ["expected", "expected by the model"]), numbers(["reviews", "right", "expected"], rows)]);
}

function calibration({ calibration: bins }) {
  if (!bins.length) return figure("Calibration so far", NOTHING);
  const text = "Where a dot lies on the line, probabilities mean what they say. The larger a dot, the more reviews.";
  const rows = bins.map((bin) => [percent(bin.predicted, 1), percent(bin.accepted, 1), bin.reviewed]);
  return figure("Calibration so far", text, [calibrationPlot(bins),
    legend(["found", "reviewed suggestions"], ["expected", "perfect calibration"]),
    numbers(["predicted", "accepted", "reviews"], rows)]);
}
