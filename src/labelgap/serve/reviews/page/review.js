// The review: one suggestion at a time, decided by a key.

import { get, post } from "./api.js";
import { Cards } from "./cards.js";
import { button, count, el, meter, percent, refill, say } from "./dom.js";
import { History } from "./history.js";
import { deliver, newKey, settled } from "./outbox.js";
import { Document, doneTo, Panel } from "./sheet.js";
import { Toolbar } from "./toolbar.js";

const GROUPS = ["none", "label", "document"];

export class ReviewView {
  constructor() {
    this.choice = { kind: "missing", group: "none", order: "probability", status: "open", label: "", least: 0.1 };
    this.history = new History();
    this.turn = 0;
    this.ready = null; // the card whose document is shown: only that one can be decided
    this.offered = null; // another's verdict that the next undo takes back
    this.toolbar = new Toolbar(this.choice, () => this.restart());
    this.document = new Document();
    this.panel = new Panel({
      accept: () => this.decide("accept"), reject: () => this.decide("reject"), skip: () => this.decide("skip"),
      undo: () => this.undo(), next: () => this.go(1), previous: () => this.go(-1),
    });
    this.sheet = el("div", { class: "sheet" }, this.panel.node, this.document.node);
    this.note = el("div", { class: "notice", hidden: true });
    this.aside = el("p", { class: "muted small after-row" });
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
    this.allow(null);
    if (this.offered) this.inform("");
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
    this.allow(null);
    this.aside.textContent = "";
    refill(this.note, el("p", {}, text), more, this.aside);
    this.note.hidden = false;
    this.sheet.hidden = true;
  }

  /** Say how something went, where it is seen now; and what the next undo takes back, if that was asked. */
  inform(text, offered = null) {
    this.offered = offered;
    this.panel.said(text, Boolean(offered));
    this.aside.textContent = text;
    if (offered) say(text);
  }

  allow(card) {
    this.ready = card;
    this.panel.enable(Boolean(card));
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
    if (this.document.row !== card.row) this.document.clear();
    cards.prefetch();
    const found = await cards.document(card.row);
    if (turn !== this.turn) return;
    this.document.show(found, card);
    this.allow(card);
    say(`${card.label}, ${percent(card.probability)}, ${found.parts[0]?.text.slice(0, 120) ?? ""}`);
    const reasons = await cards.why(card);
    if (turn !== this.turn) return;
    this.document.argue(reasons, card);
    this.panel.argue(reasons, found, card);
    this.sheet.setAttribute("aria-busy", "false");
  }

  showEnd() {
    const { choice, cards: { passed } } = this;
    const offers = passed ? [button("Begin again", () => this.restart(), { class: "primary" })] : [];
    const take = (change) => { Object.assign(choice, change); this.restart(); };
    const offer = (text, change) => offers.push(button(text, () => take(change)));
    if (choice.label) offer("All labels", { label: "" });
    if (choice.status === "skipped") offer("Back to the open ones", { status: "open", least: 0.1 });
    else {
      if (choice.least > 0.05) offer("Show less likely ones", { least: 0.05 });
      offer("Look at skipped ones", { status: "skipped", least: 0.01 });
    }
    if (choice.kind === "missing") offer("Look at doubtful labels", { kind: "doubtful" });
    const done = this.history.length ? "Done. Nothing is left of this choice." : "There is nothing of this choice.";
    const text = passed ? `This is the end. ${count(passed)} passed over without a verdict.` : done;
    this.tell(text,
      el("div", { class: "row" }, offers, button("See the progress", () => { location.hash = "progress"; })));
    say(text);
  }

  // --- deciding ---------------------------------------------------------------------------------------------------

  decide(verdict) {
    const card = this.cards.current;
    if (!card || this.ready !== card) return;
    const { cards } = this;
    const entry = { key: newKey(), card, before: card.verdict ?? null };
    change(card, entry.key, verdict);
    this.history.push(entry);
    this.inform(doneTo(card, verdict));
    const sent = { key: entry.key, row: card.row, label: card.label, verdict };
    deliver("/review/verdicts", sent)
      .then((answer) => this.stored(answer), (error) => this.refused(entry, error));
    const wasOpen = cards.choice.status === "open" && !card.foreign;
    if (entry.before || wasOpen) this.toolbar.judged(entry.before, verdict);
    else this.toolbar.doubt(); // only the server knows what held before
    cards.move(1);
    this.draw();
  }

  async stored(answer) {
    const { cards } = this;
    await cards.take(answer);
    if (this.ready?.row === answer.row) this.document.relabel(answer.labels, this.ready);
    this.recount();
  }

  recount() {
    this.toolbar.settle().catch(() => {}); // they stay in doubt until the next verdict
  }

  refused(entry, error) {
    this.history.drop(entry);
    if (entry.card.changed === entry.key) entry.card.verdict = entry.before;
    this.inform(`Not stored: ${error.message}`);
    this.toolbar.doubt();
    this.recount();
    this.draw();
  }

  // --- taking back ------------------------------------------------------------------------------------------------

  /** Take back the newest verdict of this tab; when none is left, ask before another's is taken back. */
  async undo() {
    const entry = this.history.pop() ?? this.offered;
    if (!entry) return this.offer();
    this.offered = null;
    const key = newKey();
    const shown = entry.card ? this.bring({ ...entry.card, verdict: entry.before }, key) : null;
    const tried = { key, shown, turn: this.turn };
    await deliver("/review/undo", { key, of: entry.key })
      .then((answer) => this.undone(answer, shown), (error) => this.notUndone(entry, tried, error));
  }

  undone(answer, shown) {
    const { key, row, label, kind, probability, holds } = answer;
    const card = shown ?? this.bring({ row, label, kind, probability }, key);
    if (card.changed === key) this.judge(card, holds);
    this.toolbar.doubt();
    return this.stored(answer);
  }

  notUndone(entry, { key, shown, turn }, error) {
    const gone = error.status === 404;
    const old = !entry.card && !entry.foreign; // from before a reload, perhaps of other data
    if (gone && old && turn === this.turn) return this.undo();
    if (!gone && !entry.foreign) this.history.push(entry);
    this.inform(gone ? "It was taken back already." : `Not undone: ${error.message}`);
    this.toolbar.doubt();
    this.recount();
    if (shown?.changed !== key) return;
    this.cards.verdictOn(shown).then((verdict) => this.judge(shown, verdict), () => {});
  }

  /** Show a card whose verdict is being taken back. */
  bring(card, key) {
    const shown = this.cards.bring(card);
    change(shown, key, card.verdict ?? null);
    this.inform(`Taken back: ${card.label}.`);
    this.draw();
    return shown;
  }

  /** Take over the verdict that a card has by the server. */
  judge(card, verdict) {
    card.verdict = verdict;
    if (card === this.cards.current) this.panel.judged(card);
  }

  async offer() {
    const { turn } = this;
    await settled(); // an undo that is under way changes which is the newest
    try {
      const { key, row, label } = await get("/review/newest");
      if (turn !== this.turn) return;
      const whose = `The newest verdict is from elsewhere: ${label} of row ${row}.`;
      this.inform(`${whose} Press Undo (U) again to take it back.`, { key, card: null, foreign: true });
    } catch (error) {
      if (turn !== this.turn) return;
      this.inform(error.status === 404 ? "There is nothing to undo." : `Not undone: ${error.message}`);
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

/** Give a card a verdict before the server answers; the key says which change was the last. */
function change(card, key, verdict) {
  card.verdict = verdict;
  card.changed = key;
}
