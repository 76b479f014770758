// The review: one suggestion at a time, decided by a key or a button.

import { get, post } from "./api.js";
import { describeConflict, describeVerdict, DocumentView, SuggestionPanel } from "./document.js";
import { announce, button, counted, el, percent, progressBar, refill } from "./dom.js";
import { deliver, newEntryId, onChange, UNDO, verdictHistory, VERDICTS, waitUntilSent } from "./outbox.js";
import { SuggestionQueue } from "./queue.js";
import { Toolbar } from "./toolbar.js";

const POLL_MS = 700;
const GROUPS = ["none", "label", "document"];
const GROUP_NAMES = { none: "One by one", label: "By label", document: "By document" };
const AUDITING = `Looking for missing labels. Several models are fitted; each scores the documents that it was not
  fitted on.`;

export class ReviewView {
  constructor() {
    this.filter = { kind: "missing", group: "none", order: "probability", status: "open", label: "", least: 0.1 };
    this.dataId = null; // of the data that this page shows
    this.task = 0; // number of the newest task that shows a card; older ones end
    this.decidable = null; // the card whose document is shown; only that one can be decided
    this.undoCandidate = null; // a verdict made elsewhere that the next undo revokes
    this.toolbar = new Toolbar(this.filter, () => this.restart());
    this.document = new DocumentView();
    this.panel = new SuggestionPanel({
      accept: () => this.decide("accept"), reject: () => this.decide("reject"), skip: () => this.decide("skip"),
      undo: () => this.undo(), next: () => this.go(1), previous: () => this.go(-1),
    });
    this.workspace = el("div", { class: "workspace" }, this.panel.node, this.document.node);
    this.notice = el("div", { class: "notice", hidden: true });
    this.noticeMessage = el("p", { class: "muted small after-row" });
    this.node = el("div", { class: "review" }, this.toolbar.node, this.notice, this.workspace);
    this.keys = {
      a: () => this.decide("accept"), ArrowRight: () => this.decide("accept"),
      r: () => this.decide("reject"), ArrowLeft: () => this.decide("reject"),
      s: () => this.decide("skip"), ArrowDown: () => this.decide("skip"),
      u: () => this.undo(), z: () => this.undo(), n: () => this.go(1), p: () => this.go(-1),
      g: () => this.changeGroup(), "/": () => this.toolbar.focusLabel(),
    };
    this.nRefused = 0;
    onChange((outbox) => this.onOutboxChange(outbox));
  }

  show() { this.restart(); }
  hide() { clearTimeout(this.timer); }

  restart() {
    this.queue = new SuggestionQueue({ ...this.filter });
    this.toolbar.update();
    return this.run(async (task) => {
      const state = await get("/review/state", { least: this.filter.least });
      if (task !== this.task || !this.checkData(state)) return;
      verdictHistory.open(state.data_id);
      this.toolbar.setReviewer(state.reviewer);
      this.toolbar.setCounts(state.counts);
      this.queue.followOrder(state.learned);
      if (!state.audited) {
        this.showAudit(state.audit);
        return;
      }
      this.toolbar.loadLabels().catch(() => {}); // only completions in the label field
      await this.draw();
    });
  }

  /** Whether the server still has the data that this page shows; if not, say so. */
  checkData({ data_id: dataId }) {
    this.dataId ??= dataId;
    if (dataId === this.dataId) return true;
    this.showNotice("The server was restarted with other data.",
      button("Reload the page", () => location.reload(), { class: "primary" }));
    return false;
  }

  /** Run a task that shows a card. A newer task replaces it. If the server does not answer, show why. */
  async run(work) {
    const task = ++this.task;
    this.workspace.setAttribute("aria-busy", "true");
    this.allowVerdict(null);
    if (this.undoCandidate) this.showMessage("");
    try {
      await work(task);
    } catch (error) {
      if (task !== this.task) return;
      this.showNotice(`The server did not answer: ${error.message}`, button("Try again", () => this.restart()));
    }
  }

  // --- the first audit --------------------------------------------------------------------------------------------

  showAudit(job) {
    clearTimeout(this.timer);
    if (job.state === "running") {
      this.showNotice(AUDITING, progressBar(job.done, job.total, job.message || "Starting …"),
        button("Stop", () => this.controlAudit("stop"), { class: "quiet" }));
      this.timer = setTimeout(() => this.restart(), POLL_MS);
      return;
    }
    const ending = { stopped: "The audit was stopped.", failed: `The audit failed: ${job.message}` }[job.state];
    this.showNotice(ending ?? "The labels have not been audited yet.",
      button("Find missing labels", () => this.controlAudit("start"), { class: "primary" }));
  }

  async controlAudit(action) {
    await post("/review/audit", { action });
    await this.restart();
  }

  // --- showing ----------------------------------------------------------------------------------------------------

  /** Show a notice instead of a card. */
  showNotice(text, ...children) {
    this.allowVerdict(null);
    this.noticeMessage.textContent = "";
    refill(this.notice, el("p", {}, text), children, this.noticeMessage);
    this.notice.hidden = false;
    this.workspace.hidden = true;
  }

  /** Show the result of an action; with a candidate, it is the question whether to undo that verdict. */
  showMessage(text, undoCandidate = null) {
    this.undoCandidate = undoCandidate;
    this.panel.showMessage(text, Boolean(undoCandidate));
    this.noticeMessage.textContent = text;
    if (undoCandidate) announce(text);
  }

  allowVerdict(card) {
    this.decidable = card;
    this.panel.enable(Boolean(card));
  }

  draw() { return this.run((task) => this.showCard(task)); }

  async showCard(task) {
    const { queue } = this;
    const card = await queue.loadCurrent();
    if (task !== this.task) return;
    if (!card) {
      this.showEnd();
      return;
    }
    this.notice.hidden = true;
    this.workspace.hidden = false;
    this.panel.show(card, queue.position);
    if (this.document.row !== card.row) this.document.clear();
    queue.prefetch();
    const doc = await queue.fetchDocument(card.row);
    if (task !== this.task || !this.checkData(doc)) return;
    this.document.show(doc, card);
    this.panel.showOpinions(card, doc.suggestions.find((other) => other.label === card.label)?.opinions ?? []);
    this.allowVerdict(card);
    announce(`${card.label}, ${percent(card.probability)}, ${doc.parts[0]?.text.slice(0, 120) ?? ""}`);
    const reasons = await queue.fetchReasons(card);
    if (task !== this.task) return;
    this.document.markReasons(reasons);
    this.panel.showReasons(reasons, doc, card);
    this.workspace.setAttribute("aria-busy", "false");
  }

  showEnd() {
    const { filter, queue: { undecided } } = this;
    const offers = undecided ? [button("Start over", () => this.restart(), { class: "primary" })] : [];
    const apply = (changes) => { Object.assign(filter, changes); this.restart(); };
    const offer = (text, changes) => offers.push(button(text, () => apply(changes)));
    if (filter.label) offer("All labels", { label: "" });
    if (filter.status !== "open") offer("Show open suggestions", { status: "open", least: 0.1 });
    else {
      if (filter.least > 0.05) offer("Show less probable suggestions", { least: 0.05 });
      offer("Show skipped suggestions", { status: "skipped", least: 0.01 });
    }
    if (filter.kind === "missing") offer("Show doubtful labels", { kind: "doubtful" });
    const none = verdictHistory.length ? "Done. No suggestions are left for these filters."
      : "There are no suggestions for these filters.";
    const text = undecided
      ? `End of the list. ${counted(undecided, "suggestion has", "suggestions have")} no verdict.` : none;
    this.showNotice(text,
      el("div", { class: "row" }, offers, button("Show progress", () => { location.hash = "progress"; })));
    announce(text);
  }

  // --- verdicts ---------------------------------------------------------------------------------------------------

  /** Decide the current card: hand the verdict to the outbox and show the next card at once. */
  decide(verdict) {
    const { queue } = this;
    const card = queue.current;
    if (!card || this.decidable !== card) return;
    const entry = { entryId: newEntryId(), card, before: card.verdict ?? null };
    const description = describeVerdict(card, verdict);
    const settle = queue.filter.status === "conflict" || entry.before === "conflict";
    const cell = { row: card.row, label: card.label, data_id: this.dataId };
    const body = { key: entry.entryId, ...cell, verdict, settle, reviewer: this.toolbar.reviewer };
    deliver(VERDICTS, body, `“${description}” in row ${card.row}`)
      .then((answer) => this.onStored(answer), (error) => this.onRefused(entry, error));
    verdictHistory.push(entry);
    setVerdict(card, entry.entryId, verdict);
    this.showMessage(description);
    const wasOpen = queue.filter.status === "open" && !card.outsideFilter;
    if (!settle && (entry.before || wasOpen)) this.toolbar.countVerdict(entry.before, verdict);
    else this.toolbar.markOutdated(); // only the server has the previous verdict
    queue.move(1);
    this.draw();
  }

  async onStored(answer) {
    if (answer.learned !== this.queue.learned) this.toolbar.markOutdated();
    this.queue.followOrder(answer.learned);
    await this.queue.updateDocument(answer);
    if (answer.current === "conflict") {
      this.showMessage(`${describeConflict(answer)} Neither is applied until it is settled under Show: conflicts.`);
      this.toolbar.markOutdated();
    }
    if (this.decidable?.row === answer.row) this.document.showLabels(answer.labels, this.decidable);
    this.refreshCounts();
  }

  /** Update the counts when entries are stored that were made before a reload, or sent again after a refusal. */
  onOutboxChange({ waiting, refused }) {
    if (refused.length !== this.nRefused) {
      this.nRefused = refused.length;
      this.toolbar.markOutdated();
      this.queue?.documents.clear();
    }
    if (!waiting) this.refreshCounts();
  }

  refreshCounts() {
    this.toolbar.refresh().catch(() => {}); // the next verdict tries again
  }

  onRefused(entry, error) {
    if (entry.card.changedBy === entry.entryId) entry.card.verdict = entry.before;
    this.showMessage(`Not stored: ${error.message}`);
    this.toolbar.markOutdated();
    this.refreshCounts();
    this.draw();
  }

  // --- undo -------------------------------------------------------------------------------------------------------

  /** Undo the newest verdict of this tab; if there is none, ask before undoing one made elsewhere. */
  async undo() {
    if (!this.dataId) return; // which verdicts are this tab's is not known yet
    const entry = verdictHistory.pop() ?? this.undoCandidate;
    if (!entry) {
      await this.offerOtherUndo();
      return;
    }
    this.undoCandidate = null;
    const { card, before } = entry;
    const entryId = newEntryId();
    const shown = card ? this.goTo({ ...card, verdict: before }, entryId) : null;
    const body = { key: entryId, of: entry.entryId, reviewer: this.toolbar.reviewer };
    await deliver(UNDO, body, card ? `undo of ${card.label} in row ${card.row}` : "undo")
      .then((answer) => this.onUndone(answer, shown), (error) => this.onNotUndone(entry, entryId, shown, error));
  }

  onUndone(answer, shown) {
    const { key: entryId, row, label, kind, probability, current } = answer;
    const card = shown ?? this.goTo({ row, label, kind, probability }, entryId);
    if (card.changedBy === entryId) this.updateVerdict(card, current);
    this.toolbar.markOutdated();
    return this.onStored(answer);
  }

  /** Say why nothing was undone. An undo of a verdict that is not stored must not undo another one instead. */
  onNotUndone(entry, entryId, shown, error) {
    if (error.status !== 404 && !entry.madeElsewhere) verdictHistory.push(entry);
    this.showMessage(`Not undone: ${error.message}`);
    this.toolbar.markOutdated();
    this.refreshCounts();
    if (shown?.changedBy !== entryId) return null;
    return this.queue.refetchVerdict(shown).then((verdict) => this.updateVerdict(shown, verdict), () => {});
  }

  /** Show the card whose verdict is being undone. */
  goTo(card, entryId) {
    const shown = this.queue.goTo(card);
    setVerdict(shown, entryId, card.verdict ?? null);
    this.showMessage(`Undone: ${card.label}.`);
    this.draw();
    return shown;
  }

  /** Set a card's verdict to that of the server. */
  updateVerdict(card, verdict) {
    card.verdict = verdict;
    if (card === this.queue.current) this.panel.showVerdict(card);
  }

  async offerOtherUndo() {
    const { task } = this;
    await waitUntilSent(); // an undo in the outbox changes which verdict is the newest
    try {
      const { key: entryId, row, label } = await get("/review/newest", { reviewer: this.toolbar.reviewer });
      if (task !== this.task) return;
      const text = `The newest verdict was made elsewhere: ${label} of row ${row}. Press Undo (U) again to undo it.`;
      this.showMessage(text, { entryId, card: null, madeElsewhere: true });
    } catch (error) {
      if (task !== this.task) return;
      this.showMessage(error.code === "nothing_to_undo" ? error.message : `Not undone: ${error.message}`);
    }
  }

  // --- moving -----------------------------------------------------------------------------------------------------

  go(steps) {
    if (this.queue.position + steps < 0) return;
    this.queue.move(steps);
    this.draw();
  }

  changeGroup() {
    this.filter.group = GROUPS[(GROUPS.indexOf(this.filter.group) + 1) % GROUPS.length];
    announce(GROUP_NAMES[this.filter.group]);
    this.restart();
  }
}

/** Set a card's verdict before the server answers; the entry id identifies the latest change. */
function setVerdict(card, entryId, verdict) {
  card.verdict = verdict;
  card.changedBy = entryId;
}
