// The document under review, and the panel with the suggestion and its buttons.

import { button, el, percent, refill } from "./dom.js";

const MAX_REASONS = 5;
const MIN_OTHER_PROBABILITY = 0.1; // other suggestions below it are not shown
const MIN_MARKED_SHARE = 0.15; // words with a smaller share of the largest weight are not marked
const WORDS = {
  missing: {
    question: "Is this label missing?", accept: "Yes, add it", reject: "No",
    done: { accept: "Added", reject: "Not added", skip: "Skipped" }, others: "Also suggested here",
  },
  doubtful: {
    question: "Is this label wrong?", accept: "Yes, remove it", reject: "No, keep it",
    done: { accept: "Removed", reject: "Kept", skip: "Skipped" }, others: "Also doubtful here",
  },
};

/** Return the result of a verdict as a sentence. */
export const describeVerdict = (card, verdict) => `${WORDS[card.kind].done[verdict]}: ${card.label}.`;

const personName = (name) => name || "somebody without a name";

/** Return who said what about a cell as a sentence. */
export const describeConflict = ({ kind, opinions }) => `Conflict: ${opinions.filter(({ verdict }) => verdict !== "skip")
  .map(({ reviewer, verdict, made_at: time }) =>
    `${personName(reviewer)}: ${WORDS[kind].done[verdict].toLowerCase()} (${time.slice(0, 16).replace("T", " ")} UTC)`)
  .join(", ")}.`;

const formatProbability = (p) => (p > 0.995 ? ">\u00a099\u00a0%" : p < 0.005 ? "<\u00a01\u00a0%" : percent(p));

export class DocumentView {
  constructor() {
    this.title = el("h1", { class: "title" });
    this.labels = el("ul", { class: "chips", "aria-label": "Labels" });
    this.body = el("div", { class: "text", tabindex: "0", role: "region", "aria-label": "Text" });
    this.number = el("p", { class: "muted small" });
    this.row = null;
    this.node = el("article", { class: "document", "aria-label": "Document" },
      this.title, this.labels, this.body, this.number);
  }

  /** Show an empty document until the next one is loaded. */
  clear() {
    this.row = null;
    this.write([[{ text: "Loading …", weight: 0 }]]);
    refill(this.labels);
    this.number.textContent = "";
  }

  show(doc, card) {
    this.row = doc.row;
    this.write(doc.parts.map((part) => [{ text: part.text, weight: 0 }]));
    this.number.textContent = `Row ${doc.row}`;
    this.body.scrollTop = 0;
    this.showLabels(doc.labels, card);
  }

  /** Mark the words that speak for or against the label. */
  markReasons(reasons) { this.write(reasons.parts); }

  write(parts) {
    const [first, ...others] = parts.length > 1 ? parts : [null, ...parts];
    const largest = Math.max(...parts.flat().map((segment) => Math.abs(segment.weight)), 1e-9);
    this.title.hidden = !first;
    refill(this.title, first ? markSegments(first, largest) : []);
    refill(this.body, others.map((part) => el("p", {}, markSegments(part, largest))));
  }

  showLabels(labels, card) {
    refill(this.labels, labels.map((label) =>
      el("li", { class: card && label === card.label ? "chip suggested" : "chip" }, label)),
      labels.length ? null : el("li", { class: "muted" }, "no labels yet"));
  }
}

function markSegments(part, largest) {
  return part.map(({ text, weight }) => {
    if (Math.abs(weight) < largest * MIN_MARKED_SHARE) return text;
    const strong = Math.abs(weight) > largest / 2 ? " strong" : "";
    return el("mark", { class: (weight > 0 ? "for" : "against") + strong }, text);
  });
}

export class SuggestionPanel {
  constructor(actions) {
    this.question = el("p", { class: "question" });
    this.label = el("h2", { class: "suggested-label" });
    this.probability = el("strong");
    this.bar = el("span", { class: "bar for" });
    this.verdict = el("p", { class: "verdict", hidden: true });
    this.reasons = el("div", { class: "reasons" });
    const { accept, reject, skip, undo, previous, next } = actions;
    this.accept = button("", accept, { key: "A", title: "A or →", class: "accept", "data-does": "accept" });
    this.reject = button("", reject, { key: "R", title: "R or ←", class: "reject", "data-does": "reject" });
    this.skip = button("Skip", skip, { key: "S", title: "S or ↓", class: "skip", "data-does": "skip" });
    this.undo = button("Undo", undo, { key: "U", title: "U or Z", class: "quiet", "data-does": "undo" });
    this.previous = button("Previous", previous, { key: "P", class: "quiet", "data-does": "previous" });
    this.next = button("Next", next, { key: "N", class: "quiet", "data-does": "next" });
    this.message = el("p", { class: "last muted small" });
    this.node = el("section", { class: "panel", "aria-label": "Suggestion" },
      el("div", { class: "suggestion" }, this.question, this.label,
        el("p", { class: "likely" }, track(this.bar), this.probability), this.verdict),
      el("div", { class: "actions" },
        el("div", { class: "main-actions" }, this.accept, this.reject, this.skip),
        el("div", { class: "small-actions" }, this.undo, this.previous, this.next), this.message),
      this.reasons);
  }

  show(card, position) {
    const words = WORDS[card.kind];
    this.question.textContent = words.question;
    this.label.textContent = card.label;
    this.probability.textContent = `${formatProbability(card.probability)} likely`;
    this.bar.style.setProperty("--share", String(card.probability));
    this.accept.firstChild.textContent = words.accept;
    this.reject.firstChild.textContent = words.reject;
    this.showVerdict(card);
    this.previous.disabled = position === 0;
    refill(this.reasons);
  }

  /** Show the current verdict on a card. */
  showVerdict({ verdict, kind }) {
    this.verdict.hidden = !verdict;
    this.verdict.textContent = verdict ? `Current verdict: ${(WORDS[kind].done[verdict] ?? verdict).toLowerCase()}` : "";
  }

  /** Show who disagrees on a card; a verdict on it settles the conflict. */
  showOpinions({ kind }, opinions) {
    if (!opinions.length) return;
    this.verdict.hidden = false;
    this.verdict.textContent = `${describeConflict({ kind, opinions })} Your verdict settles it.`;
  }

  /** Mark the verdict buttons as enabled or not; the attribute "disabled" would lose the focus. */
  enable(ready) {
    for (const node of [this.accept, this.reject, this.skip]) node.setAttribute("aria-disabled", String(!ready));
  }

  showReasons(reasons, doc, card) {
    const others = doc.suggestions.filter((other) =>
      other.label !== card.label && other.kind === card.kind && !other.verdict
        && other.probability >= MIN_OTHER_PROBABILITY);
    refill(this.reasons, weightBars("Words", reasons.words), weightBars("Related labels", reasons.labels),
      others.length ? section(WORDS[card.kind].others, "chips", others.slice(0, MAX_REASONS).map(suggestionChip)) : null);
  }

  /** Show a message; a question is emphasised. */
  showMessage(text, isQuestion) {
    this.message.textContent = text;
    this.message.classList.toggle("question-asked", isQuestion);
  }
}

const section = (title, kind, items) => el("section", {}, el("h3", {}, title), el("ul", { class: kind }, items));
const strongest = (reasons) => reasons.filter((reason) => reason.weight).slice(0, MAX_REASONS);
const side = (weight) => (weight > 0 ? "for" : "against");
const suggestionChip = ({ label, probability }) =>
  el("li", { class: "chip plain" }, label, " ", el("span", { class: "muted" }, percent(probability)));

export const formatWeight = (weight) => `${weight > 0 ? "+" : "−"}${Math.abs(weight).toFixed(2)}`;
export const track = (bar) => el("span", { class: "track", "aria-hidden": "true" }, bar);

/** Make a bar whose length is the share of a weight in the largest one. */
export function weightBar(weight, largest) {
  const bar = el("span", { class: `bar ${side(weight)}` });
  bar.style.setProperty("--share", String(Math.abs(weight) / largest));
  return bar;
}

/** Make a list of reasons with bars; null if there are none. */
function weightBars(title, reasons) {
  const shown = strongest(reasons);
  if (!shown.length) return null;
  const largest = Math.max(...shown.map((reason) => Math.abs(reason.weight)));
  return section(title, "arguments", shown.map(({ name, weight }) => el("li", {},
    el("span", { class: "name" }, name), track(weightBar(weight, largest)),
    el("span", { class: "visually-hidden" }, side(weight)), el("span", { class: "weight" }, formatWeight(weight)))));
}

/** Make a short list of reasons as chips. */
export function weightChips(reasons) {
  return el("ul", { class: "chips reasons-chips" }, strongest(reasons).map(({ name, weight }) =>
    el("li", { class: `chip ${side(weight)}` }, name, " ", el("span", { class: "weight" }, formatWeight(weight)))));
}
