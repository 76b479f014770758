// The review: one suggestion at a time, decided by a key.

import { get, post } from "./api.js";
import { Cards } from "./cards.js";
import { button, el, meter, percent, refill, say } from "./dom.js";
import { deliver, newKey } from "./outbox.js";
import { Document, Panel } from "./sheet.js";
import { Toolbar } from "./toolbar.js";

const GROUPS = ["none", "label", "document"];

export class ReviewView {
  constructor() {
    this.choice = { kind: "missing", group: "none", order: "probability", status: "open", label: "", least: 0.1 };
    this.history = [];
    this.turn = 0;
    this.toolbar = new Toolbar(this.choice, () => this.restart());
    this.document = new Document();
    this.panel = new Panel({
      accept: () => this.decide("accept"), reject: () => this.decide("reject"), skip: () => this.decide("skip"),
      undo: () => this.undo(), next: () => this.go(1), previous: () => this.go(-1),
    });
    this.sheet = el("div", { class: "sheet" }, this.panel.node, this.document.node);
    this.note = el("div", { class: "notice", hidden: true });
    this.node = el("div", { class: "review" }, this.toolbar.node, this.note, this.sheet);
    this.keys = {
      a: () => this.decide("accept"), ArrowRight: () => this.decide("accept"),
      r: () => this.decide("reject"), ArrowLeft: () => this.decide("reject"),
      s: () => this.decide("skip"), ArrowDown: () => this.decide("skip"),
      u: () => this.undo(), z: () => this.undo(), n: () => this.go(1), p: () => this.go(-1),
      g: () => this.regroup(), "/": () => this.toolbar.focusFilter(),
    };
  }

  show() { this.restart(); }
  hide() { clearTimeout(this.timer); }

  restart() {
    this.cards = new Cards({ ...this.choice });
    this.toolbar.update();
    return this.attempt(async (turn) => {
      const state = await get("/review/state", { least: this.choice.least });
      if (turn !== this.turn) return;
      this.toolbar.progress(state.counts, this.choice);
      if (!state.audited) return this.showAudit(state.audit);
      this.toolbar.loadLabels().catch(() => {}); // names are only proposed in the filter
      await this.draw();
    });
  }

  /** Do something that shows a card; it is over when another begins, and says so when the server does not answer. */
  async attempt(work) {
    const turn = ++this.turn;
    this.sheet.setAttribute("aria-busy", "true");
    try {
      await work(turn);
    } catch (error) {
      if (turn !== this.turn) return;
      this.tell(`The server did not answer: ${error.message}`, button("Try again", () => this.restart()));
    }
  }

  // --- the audit that comes first ---------------------------------------------------------------------------------

  showAudit(job) {
    clearTimeout(this.timer);
    if (job.state === "running") {
      this.tell("Looking for forgotten labels. Models are fitted that judge documents they have not seen.",
        meter(job.done, job.total, job.message || "Starting …"),
        button("Stop", () => this.audit("stop"), { class: "quiet" }));
      this.timer = setTimeout(() => this.restart(), 700);
      return;
    }
    const why = { stopped: "The audit was stopped.", failed: `The audit failed: ${job.message}` }[job.state];
    this.tell(why ?? "The labels have not been audited yet.",
      button("Look for forgotten labels", () => this.audit("start"), { class: "primary" }));
  }

  async audit(action) {
    await post("/review/audit", { action });
    await this.restart();
  }

  // --- showing ----------------------------------------------------------------------------------------------------

  tell(text, ...more) {
    refill(this.note, el("p", {}, text), more);
    this.note.hidden = false;
    this.sheet.hidden = true;
  }

  draw() { return this.attempt((turn) => this.showCard(turn)); }

  async showCard(turn) {
    const { cards } = this;
    const card = await cards.ready();
    if (turn !== this.turn) return;
    if (!card) return this.showEnd();
    this.note.hidden = true;
    this.sheet.hidden = false;
    this.panel.show(card, cards.at);
    cards.prefetch();
    const found = await cards.document(card.row);
    if (turn !== this.turn) return;
    this.document.show(found, card);
    say(`${card.label}, ${percent(card.probability)}, ${found.parts[0]?.text.slice(0, 120) ?? ""}`);
    const reasons = await cards.why(card);
    if (turn !== this.turn) return;
    this.document.argue(reasons, card);
    this.panel.argue(reasons, found, card);
    this.sheet.setAttribute("aria-busy", "false");
  }

  showEnd() {
    const { choice } = this;
    const offers = [];
    const take = (change) => { Object.assign(choice, change); this.restart(); };
    const offer = (text, change) => offers.push(button(text, () => take(change)));
    if (choice.label) offer("All labels", { label: "" });
    if (choice.status === "skipped") offer("Back to the open ones", { status: "open", least: 0.1 });
    else {
      if (choice.least > 0.05) offer("Show less likely ones", { least: 0.05 });
      offer("Look at skipped ones", { status: "skipped", least: 0.01 });
    }
    if (choice.kind === "missing") offer("Look at doubtful labels", { kind: "doubtful" });
    this.tell(this.history.length ? "Done. Nothing is left of this choice." : "There is nothing of this choice.",
      el("div", { class: "row" }, offers, button("See the progress", () => { location.hash = "progress"; })));
    say("Nothing is left of this choice.");
  }

  // --- deciding ---------------------------------------------------------------------------------------------------

  decide(verdict) {
    const card = this.cards.current;
    if (!card || this.sheet.hidden) return;
    const { cards } = this;
    const entry = { key: newKey(), card, before: card.verdict ?? null };
    card.verdict = verdict;
    this.history.push(entry);
    this.panel.last(card, verdict);
    const sent = { key: entry.key, row: card.row, label: card.label, verdict };
    deliver("/review/verdicts", sent)
      .then((answer) => this.stored(cards, answer), (error) => this.refused(entry, error));
    const wasOpen = cards.choice.status === "open" && !card.foreign;
    if (entry.before || wasOpen) this.toolbar.judged(entry.before, verdict);
    else this.toolbar.doubt(); // only the server knows what held before
    cards.move(1);
    this.draw();
  }

  async stored(cards, answer) {
    await cards.take(answer);
    const { current } = cards;
    if (cards === this.cards && current?.row === answer.row) this.document.relabel(answer.labels, current);
    this.recount();
  }

  recount() {
    this.toolbar.settle().catch(() => {}); // they stay in doubt until the next verdict
  }

  refused(entry, error) {
    this.history = this.history.filter((one) => one !== entry);
    entry.card.verdict = entry.before;
    this.panel.said(`Not stored: ${error.message}`);
    this.toolbar.doubt();
    this.recount();
    this.draw();
  }

  async undo() {
    const entry = this.history.pop();
    const { cards } = this;
    if (entry) {
      entry.card.verdict = entry.before;
      cards.bring(entry.card);
      entry.card.verdict = entry.before;
      this.panel.said(`Taken back: ${entry.card.label}.`);
      this.draw();
    }
    try {
      const answer = await deliver("/review/undo", { key: newKey(), of: entry?.key ?? null });
      if (!entry) {
        const { row, label, kind, probability } = answer;
        cards.bring({ row, label, kind, probability, verdict: null });
        this.panel.said(`Taken back: ${label}.`);
        this.draw();
      }
      this.toolbar.doubt();
      await this.stored(cards, answer);
    } catch (error) {
      this.panel.said(error.status === 404 ? "There is nothing to undo." : `Not undone: ${error.message}`);
    }
  }

  go(by) {
    if (this.cards.at + by < 0) return;
    this.cards.move(by);
    this.draw();
  }

  regroup() {
    this.choice.group = GROUPS[(GROUPS.indexOf(this.choice.group) + 1) % GROUPS.length];
    say({ none: "One by one", label: "By label", document: "By document" }[this.choice.group]);
    this.restart();
  }
}
