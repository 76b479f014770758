// What comes of the reviews: files to take away, and a better model.

import { download, get, post } from "./api.js";
import { button, count, counted, el, figure, meter, percent, refill, say } from "./dom.js";
import { unsaved } from "./outbox.js";

const EVERY = 700; // ms between looks at what goes on in the background
const EXPORT = `The table has the rows and columns of your file; only labels that you accepted are changed. The log has
  every verdict and every undo.`;
const RETRAIN = `The model is fitted again on the reviewed labels. To see what the reviews bring, documents are held out
  in turn: one model learns from the labels as they were written, one from the reviewed ones, and both judge the
  documents that neither has seen, by the reviewed labels. Reviewed cells are those that an audit asked about, so they
  are harder than others.`;
const AUDIT = "A new audit learns from the reviewed labels and replaces the open suggestions. Verdicts stay.";
const HEADS = ["Held out", "as written", "as reviewed", "change"];

export class FinishView {
  constructor() {
    this.note = el("p", { class: "muted", role: "status" });
    this.work = el("div", {});
    this.audit = el("div", {});
    const exports = el("div", { class: "row" },
      button("Reviewed labels", () => this.take("/review/export/labels"), { class: "primary" }),
      button("Log as CSV", () => this.take("/review/export/log?format=csv")),
      button("Log as JSON lines", () => this.take("/review/export/log?format=jsonl")));
    this.node = el("div", { class: "column" }, el("h1", {}, "Export and retrain"),
      figure("Export", EXPORT, [exports, this.note]), figure("Retrain", RETRAIN, this.work),
      figure("Look again", AUDIT, this.audit));
    this.keys = {};
  }

  async show() {
    clearTimeout(this.timer);
    try {
      const [found, state] = await Promise.all([get("/review/retrain"), get("/review/state")]);
      this.draw(found, state.counts.accepted);
      this.drawAudit(state.audit);
      const busy = found.job.state === "running" || state.audit.state === "running";
      if (busy) this.timer = setTimeout(() => this.show(), EVERY);
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  hide() { clearTimeout(this.timer); }

  async take(path) {
    if (unsaved()) this.note.textContent = "Some verdicts are not saved yet; wait a moment.";
    else await told(this.note, async () => `Saved as ${await download(path)}.`);
  }

  async act(path, action) {
    await told(this.note, async () => { await post(path, { action }); return ""; });
    await this.show();
  }

  draw(found, accepted) {
    const { job } = found;
    if (job.state === "running") {
      refill(this.work, this.running(job, "/review/retrain"));
      return;
    }
    const said = { failed: `Retraining failed: ${job.message}`, stopped: "Retraining was stopped." }[job.state];
    const text = found.comparisons.length ? "Retrain again" : "Retrain on the reviewed labels";
    const why = "Accept a suggestion first: so far the labels are as they were.";
    refill(this.work, said ? el("p", {}, said) : null,
      el("div", { class: "row" },
        button(text, () => this.act("/review/retrain", "start"), { class: "primary", disabled: accepted === 0 }),
        accepted === 0 ? el("span", { class: "muted" }, why) : null),
      found.comparisons.length ? this.gains(found) : null);
  }

  drawAudit(job) {
    refill(this.audit, job.state === "running" ? this.running(job, "/review/audit")
      : button("Audit the reviewed labels", () => this.act("/review/audit", "start")));
  }

  running(job, path) {
    return [meter(job.done, job.total, job.message), button("Stop", () => this.act(path, "stop"), { class: "quiet" })];
  }

  gains(found) {
    say("Retraining is done.");
    const refused = counted(found.rejected, "refused suggestion", "refused suggestions");
    const from = `From ${count(found.accepted)} accepted and ${refused}:`;
    const head = el("thead", {}, el("tr", {}, HEADS.map((text) => el("th", { scope: "col" }, text))));
    return [el("p", { class: "after-row" }, from),
      el("div", { class: "scroll" },
        el("table", { class: "gains" }, head, el("tbody", {}, found.comparisons.map(comparison)))),
      found.can_save ? saving() : null];
  }
}

function comparison(one) {
  const better = one.after === null ? 0 : (one.after - one.before) * (one.greater_is_better ? 1 : -1);
  const mood = Math.abs(better) < 5e-5 ? "" : better > 0 ? "better" : "worse";
  const cell = (head, text, kind = "") => el("td", { "data-head": head, class: kind }, text);
  const changes = one.better === null ? "" : `, ${count(one.better)} better, ${count(one.worse)} worse`;
  return el("tr", {},
    el("th", { scope: "row" }, one.name, el("br"),
      el("span", { class: "muted small" }, `${count(one.judged)} judged${changes}`)),
    cell("as written", shown(one, one.before)), cell("as reviewed", shown(one, one.after)),
    cell("change", one.after === null ? "too few" : difference(one), mood));
}

function saving() {
  const said = el("p", { class: "muted small", role: "status" });
  const save = async () => `Saved next to the old one as ${(await post("/review/retrain/save")).path}.`;
  return el("div", { class: "row" }, button("Save the new model", () => told(said, save)), said);
}

/** Do something and say how it went. */
async function told(node, act) {
  try {
    node.textContent = await act();
  } catch (error) {
    node.textContent = error.message;
  }
}

const shown = (one, value) => (value === null ? "–" : one.greater_is_better ? percent(value, 1) : value.toFixed(3));

function difference(one) {
  const change = one.after - one.before;
  const size = one.greater_is_better ? `${Math.abs(100 * change).toFixed(1)} points` : Math.abs(change).toFixed(3);
  return Math.abs(change) < 5e-5 ? "none" : `${change > 0 ? "+" : "−"}${size}`;
}
