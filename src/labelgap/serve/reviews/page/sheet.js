// The document under review, and the panel in which it is decided.

import { button, el, percent, refill } from "./dom.js";

const SHOWN_REASONS = 5;
const OTHERS_FROM = 0.1; // the least probability of other suggestions that are named
const FAINT = 0.15; // of the strongest word: what says less is not marked
const WORDS = {
  missing: {
    question: "Is this label missing?", accept: "Yes, add it", reject: "No",
    done: { accept: "Added", reject: "Not added", skip: "Skipped" }, others: "Also suggested here",
  },
  doubtful: {
    question: "Should this label go?", accept: "Yes, remove it", reject: "Keep it",
    done: { accept: "Removed", reject: "Kept", skip: "Skipped" }, others: "Also doubtful here",
  },
};

const likely = (p) => (p > 0.995 ? ">\u00a099\u00a0%" : p < 0.005 ? "<\u00a01\u00a0%" : percent(p));

export class Document {
  constructor() {
    this.title = el("h1", { class: "title" });
    this.labels = el("ul", { class: "chips", "aria-label": "Labels it has" });
    this.body = el("div", { class: "text", tabindex: "0", role: "region", "aria-label": "Text" });
    this.number = el("p", { class: "muted small" });
    this.row = null;
    this.node = el("article", { class: "document", "aria-label": "Document" },
      this.title, this.labels, this.body, this.number);
  }

  /** Show nothing until the next document is there. */
  clear() {
    this.row = null;
    this.write([[{ text: "Loading …", weight: 0 }]]);
    refill(this.labels);
    this.number.textContent = "";
  }

  show(found, card) {
    this.row = found.row;
    this.write(found.parts.map((part) => [{ text: part.text, weight: 0 }]));
    this.number.textContent = `Row ${found.row}`;
    this.body.scrollTop = 0;
    this.relabel(found.labels, card);
  }

  /** Mark the words that argue for the label or against it. */
  argue(reasons) { this.write(reasons.parts); }

  write(parts) {
    const [first, ...rest] = parts.length > 1 ? parts : [null, ...parts];
    const most = Math.max(...parts.flat().map((piece) => Math.abs(piece.weight)), 1e-9);
    this.title.hidden = !first;
    refill(this.title, first ? pieces(first, most) : []);
    refill(this.body, rest.map((part) => el("p", {}, pieces(part, most))));
  }

  relabel(labels, card) {
    refill(this.labels, labels.map((label) =>
      el("li", { class: card && label === card.label ? "chip asked" : "chip" }, label)),
      labels.length ? null : el("li", { class: "muted" }, "no labels yet"));
  }
}

function pieces(part, most) {
  return part.map(({ text, weight }) => {
    if (Math.abs(weight) < most * FAINT) return text;
    const strong = Math.abs(weight) > most / 2 ? " strong" : "";
    return el("mark", { class: (weight > 0 ? "for" : "against") + strong }, text);
  });
}

export class Panel {
  constructor(does) {
    this.question = el("p", { class: "question" });
    this.label = el("h2", { class: "asked-label" });
    this.probability = el("strong");
    this.bar = el("span", { class: "bar for" });
    this.verdict = el("p", { class: "verdict", hidden: true });
    this.reasons = el("div", { class: "reasons" });
    this.accept = button("", does.accept, { key: "A", title: "A or →", class: "accept", "data-does": "accept" });
    this.reject = button("", does.reject, { key: "R", title: "R or ←", class: "reject", "data-does": "reject" });
    this.skip = button("Skip", does.skip, { key: "S", title: "S or ↓", class: "skip", "data-does": "skip" });
    this.undo = button("Undo", does.undo, { key: "U", title: "U or Z", class: "quiet", "data-does": "undo" });
    this.previous = button("Previous", does.previous, { key: "P", class: "quiet", "data-does": "previous" });
    this.next = button("Next", does.next, { key: "N", class: "quiet", "data-does": "next" });
    this.lastSaid = el("p", { class: "last muted small" });
    this.node = el("section", { class: "panel", "aria-label": "Suggestion" },
      el("div", { class: "asked" }, this.question, this.label,
        el("p", { class: "likely" }, track(this.bar), this.probability), this.verdict),
      el("div", { class: "actions" },
        el("div", { class: "main-actions" }, this.accept, this.reject, this.skip),
        el("div", { class: "small-actions" }, this.undo, this.previous, this.next), this.lastSaid),
      this.reasons);
  }

  show(card, at) {
    const words = WORDS[card.kind];
    this.question.textContent = words.question;
    this.label.textContent = card.label;
    this.probability.textContent = `${likely(card.probability)} likely`;
    this.bar.style.setProperty("--share", String(card.probability));
    this.accept.firstChild.textContent = words.accept;
    this.reject.firstChild.textContent = words.reject;
    this.judged(card);
    this.previous.disabled = at === 0;
    refill(this.reasons);
  }

  /** Show the verdict that a card has. */
  judged({ verdict, kind }) {
    this.verdict.hidden = !verdict;
    this.verdict.textContent = verdict ? `Verdict so far: ${WORDS[kind].done[verdict].toLowerCase()}` : "";
  }

  /** Say whether there is something to decide; a button that is disabled outright would lose the focus. */
  enable(ready) {
    for (const one of [this.accept, this.reject, this.skip]) one.setAttribute("aria-disabled", String(!ready));
  }

  argue(reasons, found, card) {
    const others = found.suggestions.filter((one) =>
      one.label !== card.label && one.kind === card.kind && !one.verdict && one.probability >= OTHERS_FROM);
    const chip = (one) => el("li", { class: "chip plain" }, one.label, " ",
      el("span", { class: "muted" }, percent(one.probability)));
    refill(this.reasons, argumentBars("Words", reasons.words), argumentBars("Labels that go with it", reasons.labels),
      others.length ? section(WORDS[card.kind].others, "chips", others.slice(0, SHOWN_REASONS).map(chip)) : null);
  }

  said(text, asking) {
    this.lastSaid.textContent = text;
    this.lastSaid.classList.toggle("asking", asking);
  }
}

/** What was done, in words. */
export const doneTo = (card, verdict) => `${WORDS[card.kind].done[verdict]}: ${card.label}.`;

export const signed = (weight) => `${weight > 0 ? "+" : "−"}${Math.abs(weight).toFixed(2)}`;
export const track = (bar) => el("span", { class: "track", "aria-hidden": "true" }, bar);
const section = (title, kind, items) => el("section", {}, el("h3", {}, title), el("ul", { class: kind }, items));
const strongest = (given) => given.filter((one) => one.weight).slice(0, SHOWN_REASONS);
const side = (weight) => (weight > 0 ? "for" : "against");

/** A bar as long as a weight is strong among others. */
export function weightBar(weight, most) {
  const bar = el("span", { class: `bar ${side(weight)}` });
  bar.style.setProperty("--share", String(Math.abs(weight) / most));
  return bar;
}

/** What argues for a label and against it, as bars; null where nothing does. */
function argumentBars(title, given) {
  const kept = strongest(given);
  if (!kept.length) return null;
  const most = Math.max(...kept.map((one) => Math.abs(one.weight)));
  return section(title, "arguments", kept.map((one) => el("li", {},
    el("span", { class: "name" }, one.name), track(weightBar(one.weight, most)),
    el("span", { class: "visually-hidden" }, side(one.weight)), el("span", { class: "weight" }, signed(one.weight)))));
}

/** What argues as chips, the strongest first: for short lists of many labels. */
export function argumentChips(given) {
  return el("ul", { class: "chips reasons-chips" }, strongest(given).map((one) =>
    el("li", { class: `chip ${side(one.weight)}` }, one.name, " ", el("span", { class: "weight" }, signed(one.weight)))));
}
