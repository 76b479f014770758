// What to review, and how far it is.

import { get } from "./api.js";
import { choices, count, el, refill, select } from "./dom.js";
import { unsaved } from "./outbox.js";

const SKIPPED = ["skipped", "skipped ones"];
const SHOWN = [...[0.5, 0.2, 0.1, 0.05, 0.01].map((least) => [String(least), `from ${100 * least}\u00a0%`]), SKIPPED];
const skipped = { status: "skipped", least: 0.01 };
const ORDERS = [["probability", "likeliest first"], ["uncertainty", "least certain first"]];

export class Toolbar {
  constructor(choice, onchange) {
    this.choice = choice;
    this.turn = 0;
    this.doubted = false;
    const set = (name) => (value) => { choice[name] = value; onchange(); };
    this.kinds = choices("Kind", [["missing", "Missing"], ["doubtful", "Doubtful"]], set("kind"));
    this.groups = choices("Grouping (G)",
      [["none", "One by one"], ["label", "By label"], ["document", "By document"]], set("group"));
    this.names = el("datalist", { id: "label-names" });
    this.filter = el("input", {
      type: "search", list: "label-names", placeholder: "All labels  ( / )", autocomplete: "off", spellcheck: "false",
      "aria-label": "Only this label", class: "filter",
      onchange: () => { this.filter.blur(); set("label")(this.filter.value.trim()); },
      onkeydown: (event) => { if (event.key === "Escape" && this.filter.value) set("label")(""); },
    });
    this.order = select("Order", ORDERS, set("order"), choice.order);
    this.shown = select("Show", SHOWN, (value) => {
      Object.assign(choice, value === "skipped" ? skipped : { status: "open", least: Number(value) });
      onchange();
    }, "0.1");
    this.counts = el("p", { class: "counts" });
    this.bar = el("progress", { max: 1, value: 0, "aria-label": "Reviewed" });
    const row = el("div", { class: "row" },
      this.kinds.node, this.groups.node, this.filter, this.names, this.order, this.shown);
    const more = el("details", { class: "more" }, el("summary", {}, "Choose"), row);
    const wide = matchMedia("(min-width: 46.01rem)");
    const fit = () => { more.open = wide.matches; };
    wide.addEventListener("change", fit);
    fit();
    this.node = el("section", { class: "toolbar", "aria-label": "What to review" }, more,
      el("div", { class: "gauge" }, this.counts, this.bar));
  }

  update() {
    this.kinds.set(this.choice.kind);
    this.groups.set(this.choice.group);
    this.filter.value = this.choice.label;
    this.order.value = this.choice.order;
    this.shown.value = this.choice.status === "skipped" ? "skipped" : String(this.choice.least);
  }

  focusFilter() {
    this.node.querySelector("details").open = true;
    this.filter.focus();
    this.filter.select();
  }

  async loadLabels() {
    const { kind, status, least } = this.choice;
    const found = await get("/review/labels", { kind, status, least });
    refill(this.names, found.map((one) => el("option", { value: one.label }, `${one.open} open`)));
  }

  progress(counts, choice) {
    this.turn += 1;
    this.doubted = unsaved() > 0; // the server has not counted those
    this.numbers = { ...counts, open: counts[choice.kind].open };
    this.draw();
  }

  /** Count a verdict before the server is asked again. */
  judged(before, verdict) {
    this.turn += 1;
    const names = { accept: "accepted", reject: "rejected", skip: "skipped" };
    if (before) this.numbers[names[before]] -= 1;
    else this.numbers.open -= 1;
    this.numbers[names[verdict]] += 1;
    this.draw();
  }

  /** Remember that the numbers may be wrong. */
  doubt() {
    this.turn += 1;
    this.doubted = true;
  }

  /** Ask the server where the numbers are in doubt, once it has every verdict; a later change asks again. */
  async settle() {
    if (!this.doubted || unsaved()) return;
    const { turn } = this;
    const state = await get("/review/state", { least: this.choice.least });
    if (turn === this.turn) this.progress(state.counts, this.choice);
  }

  draw() {
    const { accepted, rejected, skipped, open } = this.numbers;
    const done = accepted + rejected + skipped;
    const number = (n) => el("strong", {}, count(Math.max(n, 0)));
    refill(this.counts, number(done), " reviewed · ", number(open), " open");
    this.bar.max = Math.max(done + open, 1);
    this.bar.value = done;
  }
}
