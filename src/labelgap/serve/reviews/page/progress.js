// The view of the progress: counts, precision, calibration and label frequencies.

import { get } from "./api.js";
import { button, choices, count, counted, el, figure, percent, refill, select } from "./dom.js";
import { calibrationPlot, labelBars, legend, numberTable, precisionPlot } from "./plots.js";

const LABELS_SHOWN = 20;
const NO_VERDICT = "No suggestion has been decided yet.";
const KINDS = [["missing", "Missing labels"], ["doubtful", "Doubtful labels"]];
const ORDERS = [["missing", "most missing"], ["written", "most frequent"], ["added", "most added"], ["name", "by name"]];
const SORT_KEYS = {
  missing: (label) => label.missing ?? 0, written: (label) => label.written, added: (label) => label.added,
};
const LABELS = "How many documents have each label, and how many should have it according to the audit.";
const CALIBRATION = "The closer the dots are to the line, the more accurate the probabilities. Larger dots have more reviews.";

export class ProgressView {
  constructor() {
    this.kind = "missing";
    this.sorting = "missing";
    this.nLabels = LABELS_SHOWN;
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

  draw({ open, expected }, stats) {
    const { accepted, rejected, skipped } = stats.counts;
    const tiles = [
      [count(accepted), this.kind === "missing" ? "added" : "removed"], [count(rejected), "rejected"],
      [count(skipped), "skipped"], [count(open), "open, 10\u00a0% or more"], [`≈ ${count(expected)}`, "expected right"],
      [`≈ ${count(stats.next_hundred)}`, "right among the next 100"],
    ];
    if (stats.still_missing && this.kind === "missing") tiles.push(missingTile(stats.still_missing));
    if (stats.right) {
      const { number, low, high, sampled } = stats.right;
      tiles.push([`≈ ${count(number)}`, `right in all, ${count(low)} to ${count(high)} (${sampled} at random)`]);
    }
    refill(this.body,
      el("dl", { class: "tiles" },
        tiles.map(([number, text]) => el("div", {}, el("dt", {}, text), el("dd", {}, number)))),
      el("p", { class: "muted" }, adviseToStop(stats.next_hundred, Math.min(open, 100))),
      el("div", { class: "plots" }, precisionFigure(stats), calibrationFigure(stats), this.labelFigure(stats)));
  }

  labelFigure(stats) {
    const key = SORT_KEYS[this.sorting];
    const labels = stats.labels.toSorted((a, b) => (key ? key(b) - key(a) : 0) || a.label.localeCompare(b.label));
    const order = select("Order", ORDERS, (value) => { this.sorting = value; this.show(); }, this.sorting);
    const showAll = () => { this.nLabels = Infinity; this.show(); };
    const more = labels.length > this.nLabels
      ? button(`Show all ${count(labels.length)}`, showAll, { class: "quiet" }) : null;
    return el("section", { class: "figure full" },
      el("div", { class: "row spread" }, el("h2", {}, "Labels"), order), el("p", { class: "muted" }, LABELS),
      legend(["written", "in the file"], ["added", "added by reviews"], ["missing", "still missing, estimated"]),
      labelBars(labels.slice(0, this.nLabels)), more);
  }
}

/** How many labels the audit believes to be missing; `labelgap fit` and `labelgap audit` say it in the same words. */
function missingTile({ text, low, share, share_low: least, share_high: most }) {
  const [number, range] = text.replace(")", "").split(" (");
  const shares = `${percent(share, 1)}, ${percent(least, 1)} to ${percent(most, 1)} of all`;
  const known = low > 0 ? `${range}; ${shares}` : "the data do not show whether any is";
  return [number, `labels still missing (${known})`];
}

/** Say what going on costs; whether a label is worth that is the person's to know. */
function adviseToStop(right, among) {
  if (!among) return "No suggestion is open: there is nothing left to review.";
  if (right < 1) return `Stop here: of the next ${counted(among, "suggestion", "suggestions")}, probably none is right.`;
  return `Of the next ${counted(among, "suggestion", "suggestions")}, about ${count(right)} ${right < 1.5 ? "is" : "are"} right:
    ${counted(Math.round(among / right), "review", "reviews")} for one label. Stop when a label is not worth as many.`;
}

function precisionFigure({ precision: { reviewed, precision, low, high, expected }, curve }) {
  if (!reviewed) return figure("Precision so far", NO_VERDICT);
  const decided = counted(reviewed, "decided suggestion was", "decided suggestions were");
  const text = `${percent(precision)} of ${decided} right (95\u00a0% interval ${percent(low)} to ${percent(high)});
    the audit expected ${percent(expected)}.`;
  const rows = curve.map((point) => [point.reviewed, percent(point.precision, 1), percent(point.expected, 1)]);
  return figure("Precision so far", text, [precisionPlot(curve),
    legend(["observed", "right so far"], ["expected", "expected by the audit"]),
    numberTable(["reviews", "right", "expected"], rows)]);
}

function calibrationFigure({ calibration: bins }) {
  if (!bins.length) return figure("Calibration so far", NO_VERDICT);
  const rows = bins.map((bin) => [percent(bin.predicted, 1), percent(bin.accepted, 1), bin.reviewed]);
  return figure("Calibration so far", CALIBRATION, [calibrationPlot(bins),
    legend(["observed", "reviewed suggestions"], ["expected", "perfect calibration"]),
    numberTable(["predicted", "accepted", "reviews"], rows)]);
}
