// The toolbar: which suggestions to review, and the progress of the review.

import { get } from "./api.js";
import { choices, count, el, refill, select } from "./dom.js";
import { countUnsaved } from "./outbox.js";

const BOUNDS = [0.5, 0.2, 0.1, 0.05, 0.01].map((least) => [String(least), `${100 * least}\u00a0% or more`]);
const SHOW = [...BOUNDS, ["skipped", "skipped"], ["conflict", "conflicts"]];
const NAME = "labelgap-reviewer"; // in the local storage
const KINDS = [["missing", "Missing"], ["doubtful", "Doubtful"]];
const GROUPS = [["none", "One by one"], ["label", "By label"], ["document", "By document"]];
const ORDERS = [
  ["probability", "most probable first"], ["uncertainty", "most uncertain first"], ["mixed", "probable, some at random"],
];
const COUNT_OF = { accept: "accepted", reject: "rejected", skip: "skipped", conflict: "conflicts" };

export class Toolbar {
  constructor(filter, onchange) {
    this.filter = filter;
    this.version = 0; // of the counts; an answer of the server to an older one is ignored
    this.outdated = false;
    const set = (name) => (value) => { filter[name] = value; onchange(); };
    this.kinds = choices("Kind", KINDS, set("kind"));
    this.groups = choices("Grouping (G)", GROUPS, set("group"));
    this.names = el("datalist", { id: "label-names" });
    this.label = el("input", {
      type: "search", list: "label-names", placeholder: "All labels  ( / )", autocomplete: "off", spellcheck: "false",
      "aria-label": "Only this label", class: "filter",
      onchange: () => { this.label.blur(); set("label")(this.label.value.trim()); },
      onkeydown: (event) => { if (event.key === "Escape" && this.label.value) set("label")(""); },
    });
    this.order = select("Order", ORDERS, set("order"), filter.order);
    this.show = select("Show", SHOW, (value) => {
      const isBound = BOUNDS.some(([least]) => least === value);
      Object.assign(filter, isBound ? { status: "open", least: Number(value) } : { status: value, least: 0 });
      onchange();
    }, "0.1");
    this.name = el("input", {
      type: "text", placeholder: "Your name", autocomplete: "off", spellcheck: "false", maxlength: "100",
      "aria-label": "Your name, stored with your verdicts", class: "filter",
      onchange: () => { this.name.blur(); localStorage.setItem(NAME, this.reviewer); },
    });
    this.name.value = localStorage.getItem(NAME) ?? "";
    this.counts = el("p", { class: "counts" });
    this.bar = el("progress", { max: 1, value: 0, "aria-label": "Reviewed" });
    const row = el("div", { class: "row" },
      this.kinds.node, this.groups.node, this.label, this.names, this.order, this.show, this.name);
    const more = el("details", { class: "more" }, el("summary", {}, "Filters"), row);
    const wide = matchMedia("(min-width: 46.01rem)");
    const fit = () => { more.open = wide.matches; };
    wide.addEventListener("change", fit);
    fit();
    this.node = el("section", { class: "toolbar", "aria-label": "What to review" }, more,
      el("div", { class: "gauge" }, this.counts, this.bar));
  }

  /** The name of the person who reviews; a server with named tokens knows it better. */
  get reviewer() { return this.name.value.trim().replace(/\s+/g, " "); }

  /** Show the name behind the token, or let the person choose one. */
  setReviewer(name) {
    this.name.readOnly = name !== null;
    this.name.hidden = name === "";
    if (name) this.name.value = name;
  }

  /** Show the current filter. */
  update() {
    this.kinds.set(this.filter.kind);
    this.groups.set(this.filter.group);
    this.label.value = this.filter.label;
    this.order.value = this.filter.order;
    this.show.value = this.filter.status === "open" ? String(this.filter.least) : this.filter.status;
  }

  focusLabel() {
    this.node.querySelector("details").open = true;
    this.label.focus();
    this.label.select();
  }

  async loadLabels() {
    const { kind, status, least } = this.filter;
    const labels = await get("/review/labels", { kind, status, least });
    refill(this.names, labels.map(({ label, open }) => el("option", { value: label }, `${open} open`)));
  }

  setCounts(counts) {
    this.version += 1;
    this.outdated = countUnsaved() > 0; // the server has not counted unsaved verdicts
    const { open, next_hundred: next } = counts[this.filter.kind];
    this.numbers = { ...counts, open, next };
    this.draw();
  }

  /** Count a verdict before the server confirms it. */
  countVerdict(before, verdict) {
    this.version += 1;
    if (before) this.numbers[COUNT_OF[before]] -= 1;
    else this.numbers.open -= 1;
    this.numbers[COUNT_OF[verdict]] += 1;
    this.draw();
  }

  /** Mark the counts as possibly wrong. */
  markOutdated() {
    this.version += 1;
    this.outdated = true;
  }

  /** Fetch outdated counts, once all verdicts are saved; a later change fetches again. */
  async refresh() {
    if (!this.outdated || countUnsaved()) return;
    const { version } = this;
    const state = await get("/review/state", { least: this.filter.least });
    if (version === this.version) this.setCounts(state.counts);
  }

  draw() {
    const { accepted, rejected, skipped, conflicts, open, next } = this.numbers;
    const done = accepted + rejected + skipped + conflicts;
    const disputed = conflicts ? [" · ", strongCount(conflicts), " in conflict"] : [];
    const ahead = ` · ≈ ${count(next)} right in the next ${count(Math.min(open, 100))}`;
    const expected = open > 0 ? [el("span", { class: "wide-only" }, ahead)] : [];
    refill(this.counts, strongCount(done), " reviewed · ", strongCount(open), " open", disputed, expected);
    this.bar.max = Math.max(done + open, 1);
    this.bar.value = done;
  }
}

const strongCount = (n) => el("strong", {}, count(Math.max(n, 0)));
