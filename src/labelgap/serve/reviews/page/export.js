// The view in which a person exports the reviews and retrains the model.

import { download, get, post } from "./api.js";
import { announce, button, count, counted, el, figure, percent, progressBar, refill } from "./dom.js";
import { countRefused, countUnsaved } from "./outbox.js";

const POLL_MS = 700;
const EXPORT = `The table has the rows and columns of your file, with the changes that you accepted. The log has all
  verdicts and undos.`;
const RETRAIN = `The model is fitted again on the reviewed labels. To measure the effect of the reviews, documents are
  held out in turn: one model is fitted on the labels as written, one on the reviewed labels, and both are evaluated on
  the held-out documents, with the reviewed labels as the truth. Reviewed cells come from an audit, so they are harder
  than others.`;
const AUDIT = "A new audit starts from the reviewed labels and replaces the open suggestions. Verdicts stay.";
const HEADS = ["Held out", "as written", "as reviewed", "change"];

export class ExportView {
  constructor() {
    this.note = el("p", { class: "muted", role: "status" });
    this.file = el("p", { class: "muted small" });
    this.retraining = el("div", {});
    this.audit = el("div", {});
    const exports = el("div", { class: "row" },
      button("Reviewed labels", () => this.download("/review/export/labels"), { class: "primary" }),
      button("Log as CSV", () => this.download("/review/export/log?format=csv")),
      button("Log as JSON lines", () => this.download("/review/export/log?format=jsonl")));
    this.node = el("div", { class: "column" }, el("h1", {}, "Export and retrain"),
      figure("Export", EXPORT, [exports, this.note, this.file]), figure("Retrain", RETRAIN, this.retraining),
      figure("Audit again", AUDIT, this.audit));
    this.keys = {};
  }

  async show() {
    clearTimeout(this.timer);
    try {
      const [retraining, state] = await Promise.all([get("/review/retrain"), get("/review/state")]);
      this.drawRetraining(retraining, state.counts.accepted);
      this.drawAudit(state.audit);
      this.file.textContent = `The verdicts are stored in ${state.reviews}.`;
      const running = retraining.job.state === "running" || state.audit.state === "running";
      if (running) this.timer = setTimeout(() => this.show(), POLL_MS);
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  hide() { clearTimeout(this.timer); }

  async download(path) {
    if (countUnsaved()) this.note.textContent = "Some verdicts are not saved yet; wait a moment.";
    else await runAndReport(this.note, async () => `Saved as ${await download(path)}.${lackOfRefused()}`);
  }

  async control(path, action) {
    await runAndReport(this.note, async () => { await post(path, { action }); return ""; });
    await this.show();
  }

  drawRetraining(retraining, accepted) {
    const { job, comparisons } = retraining;
    if (job.state === "running") {
      refill(this.retraining, this.progress(job, "/review/retrain"));
      return;
    }
    const ending = { failed: `Retraining failed: ${job.message}`, stopped: "Retraining was stopped." }[job.state];
    const text = comparisons.length ? "Retrain again" : "Retrain on the reviewed labels";
    const hint = "Accept a suggestion first; the labels have not changed yet.";
    refill(this.retraining, ending ? el("p", {}, ending) : null,
      el("div", { class: "row" },
        button(text, () => this.control("/review/retrain", "start"), { class: "primary", disabled: accepted === 0 }),
        accepted === 0 ? el("span", { class: "muted" }, hint) : null),
      comparisons.length ? comparisonTable(retraining) : null);
  }

  drawAudit(job) {
    refill(this.audit, job.state === "running" ? this.progress(job, "/review/audit")
      : button("Audit the reviewed labels", () => this.control("/review/audit", "start")));
  }

  progress(job, path) {
    const stop = button("Stop", () => this.control(path, "stop"), { class: "quiet" });
    return [progressBar(job.done, job.total, job.message), stop];
  }
}

function comparisonTable({ accepted, rejected, comparisons, can_save: canSave }) {
  announce("Retraining is done.");
  const basis = `From ${count(accepted)} accepted and ${counted(rejected, "rejected suggestion", "rejected suggestions")}:`;
  const head = el("thead", {}, el("tr", {}, HEADS.map((text) => el("th", { scope: "col" }, text))));
  return [el("p", { class: "after-row" }, basis),
    el("div", { class: "scroll" },
      el("table", { class: "gains" }, head, el("tbody", {}, comparisons.map(comparisonRow)))),
    canSave ? saveButton() : null];
}

function comparisonRow(comparison) {
  const { name, before, after, judged, better, worse } = comparison;
  const gain = after === null ? 0 : (after - before) * (comparison.greater_is_better ? 1 : -1);
  const change = Math.abs(gain) < 5e-5 ? "" : gain > 0 ? "better" : "worse";
  const counts = better === null ? "" : `, ${count(better)} better, ${count(worse)} worse`;
  return el("tr", {},
    el("th", { scope: "row" }, name, el("br"),
      el("span", { class: "muted small" }, `${count(judged)} evaluated${counts}`)),
    tableCell("as written", formatMeasure(comparison, before)),
    tableCell("as reviewed", formatMeasure(comparison, after)),
    tableCell("change", after === null ? "too few" : formatChange(comparison), change));
}

const tableCell = (head, text, kind = "") => el("td", { "data-head": head, class: kind }, text);

function formatMeasure({ greater_is_better: isShare }, value) {
  return value === null ? "–" : isShare ? percent(value, 1) : value.toFixed(3);
}

function formatChange({ before, after, greater_is_better: isShare }) {
  const change = after - before;
  const size = isShare ? `${Math.abs(100 * change).toFixed(1)} points` : Math.abs(change).toFixed(3);
  return Math.abs(change) < 5e-5 ? "none" : `${change > 0 ? "+" : "−"}${size}`;
}

function saveButton() {
  const note = el("p", { class: "muted small", role: "status" });
  return el("div", { class: "row" }, button("Save the new model", () => runAndReport(note, saveModel)), note);
}

async function saveModel() {
  const { path } = await post("/review/retrain/save");
  return `Saved next to the old model as ${path}.`;
}

function lackOfRefused() {
  const n = countRefused();
  return n ? ` It lacks ${counted(n, "verdict", "verdicts")} that the server did not store; see above.` : "";
}

/** Run an action, and show its message or its error. */
async function runAndReport(node, action) {
  try {
    node.textContent = await action();
  } catch (error) {
    node.textContent = error.message;
  }
}
