// The suggestions in the order they come, those that were judged on this page, and what is fetched ahead.

import { get } from "./api.js";

const AT_ONCE = 20;
const AHEAD = 4;
const KEPT = 60;

export const idOf = (card) => `${card.row}\n${card.label}`;

export class Cards {
  constructor(choice) {
    this.choice = choice;
    this.list = [];
    this.at = 0;
    this.ended = false;
    this.documents = new Map();
    this.reasons = new Map();
    this.fetching = null;
  }

  get current() { return this.list[this.at] ?? null; }

  /** Fetch until the place we are at has a card, or there are no more. */
  async ready() {
    while (!this.current && !this.ended) await this.more();
    return this.current;
  }

  async more() {
    this.fetching ??= this.fetchPage().finally(() => { this.fetching = null; });
    return this.fetching;
  }

  async fetchPage() {
    const offset = this.list.filter((card) => !card.verdict).length;
    const page = await get("/review/queue", { ...this.choice, limit: AT_ONCE, offset });
    const known = new Set(this.list.map(idOf));
    this.list.push(...page.suggestions.filter((card) => !known.has(idOf(card))));
    this.ended = page.suggestions.length < AT_ONCE;
  }

  move(by) {
    this.at = Math.max(0, Math.min(this.list.length, this.at + by));
  }

  /** Put a card where we are, moving it there if it is elsewhere. */
  bring(card) {
    const place = this.list.findIndex((one) => idOf(one) === idOf(card));
    if (place >= 0) {
      this.at = place;
      this.list[place].verdict = null;
    } else this.list.splice(this.at, 0, card);
  }

  document(row) {
    return remembered(this.documents, row, () => get(`/review/documents/${row}`));
  }

  why(card) {
    return remembered(this.reasons, idOf(card), () =>
      get(`/review/documents/${card.row}/reasons`, { label: card.label }));
  }

  /** Fetch the next cards, their documents and reasons before they are wanted. */
  prefetch() {
    if (this.list.length - this.at < AT_ONCE / 2 && !this.ended) this.more().catch(() => {});
    for (const card of this.list.slice(this.at, this.at + AHEAD)) {
      this.document(card.row).catch(() => {});
      this.why(card).catch(() => {});
    }
  }

  /** Take over what the server says of a document after a verdict. */
  async take({ row, label, labels, verdict }) {
    if (!this.documents.has(row)) return;
    const found = await this.documents.get(row);
    found.labels = labels;
    for (const one of found.suggestions) if (one.label === label) one.verdict = verdict === "undo" ? null : verdict;
  }
}

function remembered(map, key, fetch) {
  if (!map.has(key)) {
    const promise = fetch();
    promise.catch(() => map.delete(key));
    map.set(key, promise);
    if (map.size > KEPT) map.delete(map.keys().next().value);
  }
  return map.get(key);
}
