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
    this.after = null; // the last card that the server listed
    this.through = false; // whether it listed none behind that one
    this.documents = new Map();
    this.reasons = new Map();
    this.fetching = null;
  }

  get current() { return this.list[this.at] ?? null; }

  /**
   * Fetch until the place we are at has a card, or there are no more. Before it says so it looks through the whole
   * list once more: others may have opened cards again in front of the last one.
   */
  async ready() {
    await this.reach();
    if (!this.current) {
      this.after = null;
      this.through = false;
      await this.reach();
    }
    return this.current;
  }

  async reach() {
    while (!this.current && !this.through) await this.more();
  }

  async more() {
    this.fetching ??= this.fetchPage().finally(() => { this.fetching = null; });
    return this.fetching;
  }

  async fetchPage() {
    const { row, label } = this.after ?? {};
    const query = { ...this.choice, limit: AT_ONCE, after_row: row, after_label: label };
    const { suggestions } = await get("/review/queue", query);
    const known = new Set(this.list.map(idOf));
    this.list.push(...suggestions.filter((card) => !known.has(idOf(card))));
    this.after = suggestions.at(-1) ?? null;
    this.through = suggestions.length < AT_ONCE;
  }

  move(by) {
    this.at = Math.max(0, Math.min(this.list.length, this.at + by));
  }

  /** Go to a card, put in where we are if it is not in the list; returns the one that is. */
  bring(card) {
    const place = this.list.findIndex((one) => idOf(one) === idOf(card));
    if (place >= 0) {
      this.at = place;
      this.current.verdict = card.verdict;
    } else {
      card.foreign = true; // it may be of another choice
      this.list.splice(this.at, 0, card);
    }
    return this.current;
  }

  /** How many cards came by and were not decided. */
  get passed() { return this.list.filter((card) => !card.verdict).length; }

  document(row) {
    return remembered(this.documents, row, () => get(`/review/documents/${row}`));
  }

  /** Fetch a document anew; returns the verdict that the server has on a card of it. */
  async verdictOn(card) {
    this.documents.delete(card.row);
    const { suggestions } = await this.document(card.row);
    return suggestions.find((one) => one.label === card.label)?.verdict ?? null;
  }

  why(card) {
    return remembered(this.reasons, idOf(card), () =>
      get(`/review/documents/${card.row}/reasons`, { label: card.label }));
  }

  /** Fetch the next cards, their documents and reasons before they are wanted. */
  prefetch() {
    if (this.list.length - this.at < AT_ONCE / 2 && !this.through) this.more().catch(() => {});
    for (const card of this.list.slice(this.at, this.at + AHEAD)) {
      this.document(card.row).catch(() => {});
      this.why(card).catch(() => {});
    }
  }

  /** Take over what the server says of a document after a verdict. */
  async take({ row, label, labels, holds }) {
    const found = await this.documents.get(row)?.catch(() => null);
    if (!found) return;
    found.labels = labels;
    for (const one of found.suggestions) if (one.label === label) one.verdict = holds;
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
