// The queue of suggestions: those fetched so far in order, the current one, and prefetched documents and reasons.

import { get } from "./api.js";

const PAGE_SIZE = 20;
const PREFETCHED = 4;
const MAX_CACHED = 60; // documents, and reasons

export const idOf = (card) => `${card.row}\n${card.label}`;

export class SuggestionQueue {
  constructor(filter) {
    this.filter = filter;
    this.cards = [];
    this.position = 0;
    this.lastFetched = null;
    this.exhausted = false; // whether the server has no suggestion after lastFetched
    this.documents = new Map();
    this.reasons = new Map();
    this.fetching = null;
    this.learned = null; // the newest verdict that the server's order has learned from
  }

  get current() { return this.cards[this.position] ?? null; }

  /** Number of cards that were shown and not decided. */
  get undecided() { return this.cards.filter((card) => !card.verdict).length; }

  /**
   * Fetch until there is a card at the current position, or there are no more. Before it ends, it fetches the list
   * from the beginning once more, since an undo elsewhere may have opened cards before the last one.
   */
  async loadCurrent() {
    await this.fetchUntilCurrent();
    if (!this.current) {
      this.lastFetched = null;
      this.exhausted = false;
      await this.fetchUntilCurrent();
    }
    return this.current;
  }

  async fetchUntilCurrent() {
    while (!this.current && !this.exhausted) await this.fetchMore();
  }

  fetchMore() {
    this.fetching ??= this.fetchPage().finally(() => { this.fetching = null; });
    return this.fetching;
  }

  /** Use the order that the server has learned from verdicts for the cards after the current one. */
  followOrder(learned) {
    const isNew = this.learned !== null && learned !== this.learned;
    this.learned = learned;
    if (!isNew) return;
    this.cards = this.cards.filter((card, i) => i <= this.position || card.verdict);
    this.lastFetched = null;
    this.exhausted = false;
  }

  async fetchPage() {
    const { learned } = this;
    const { row, label } = this.lastFetched ?? {};
    const query = { ...this.filter, limit: PAGE_SIZE, after_row: row, after_label: label };
    const { suggestions } = await get("/review/queue", query);
    if (learned !== this.learned) return; // the order has changed meanwhile
    const known = new Set(this.cards.map(idOf));
    this.cards.push(...suggestions.filter((card) => !known.has(idOf(card))));
    this.lastFetched = suggestions.at(-1) ?? null;
    this.exhausted = suggestions.length < PAGE_SIZE;
  }

  move(steps) {
    this.position = Math.max(0, Math.min(this.cards.length, this.position + steps));
  }

  /** Go to a card, which is inserted at the current position if it is not in the queue; return the queue's own. */
  goTo(card) {
    const place = this.cards.findIndex((other) => idOf(other) === idOf(card));
    if (place >= 0) {
      this.position = place;
      this.current.verdict = card.verdict;
    } else {
      card.outsideFilter = true; // the filter may not match it
      this.cards.splice(this.position, 0, card);
    }
    return this.current;
  }

  fetchDocument(row) {
    return fetchCached(this.documents, row, () => get(`/review/documents/${row}`));
  }

  fetchReasons(card) {
    return fetchCached(this.reasons, idOf(card), () =>
      get(`/review/documents/${card.row}/reasons`, { label: card.label }));
  }

  /** Fetch a document again; return the server's verdict on a card of it. */
  async refetchVerdict(card) {
    this.documents.delete(card.row);
    const { suggestions } = await this.fetchDocument(card.row);
    return suggestions.find((suggestion) => suggestion.label === card.label)?.verdict ?? null;
  }

  /** Fetch the next cards, their documents and reasons before they are shown. */
  prefetch() {
    if (this.cards.length - this.position < PAGE_SIZE / 2 && !this.exhausted) this.fetchMore().catch(() => {});
    for (const card of this.cards.slice(this.position, this.position + PREFETCHED)) {
      this.fetchDocument(card.row).catch(() => {});
      this.fetchReasons(card).catch(() => {});
    }
  }

  /** Update a cached document from the server's answer to a verdict. */
  async updateDocument({ row, label, labels, current, opinions }) {
    const doc = await this.documents.get(row)?.catch(() => null);
    if (!doc) return;
    doc.labels = labels;
    for (const suggestion of doc.suggestions) {
      if (suggestion.label !== label) continue;
      suggestion.verdict = current;
      suggestion.opinions = current === "conflict" ? opinions : [];
    }
  }
}

function fetchCached(cache, key, fetch) {
  if (!cache.has(key)) {
    const promise = fetch();
    promise.catch(() => cache.delete(key));
    cache.set(key, promise);
    if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
  }
  return cache.get(key);
}
