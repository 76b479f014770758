// The outbox: verdicts and undos that the server has not stored yet. Entries are sent one after the other, and each is
// repeated until the server has it on its disk or refuses it. Each has an id, so that the server stores it once. A refused
// entry is listed until a person sends it again or discards it. Both lists survive a reload of the tab.

import { post, RequestError } from "./api.js";
import { readStored, writeStored } from "./storage.js";

export const VERDICTS = "/review/verdicts";
export const UNDO = "/review/undo";
const TEMPORARY = new Set([408, 429]); // too slow, or too many requests: sending again may succeed
const NO_ROUTE = new Set(["not_found", "method_not_allowed"]); // codes of a server that was started without --data
const OUTBOX = "labelgap-outbox"; // names in the session storage
const HISTORY = "labelgap-verdicts";
const MAX_STORED_IDS = 200;
const listeners = [];
const waiting = [];
let refused = [];
let sending = false;
let failures = 0;
let failure = ""; // why the server did not store the first entry, if it said so
let last = Promise.resolve();

export const newEntryId = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
};

export const countUnsaved = () => waiting.length;
export const countRefused = () => refused.length;
export const onChange = (listener) => { listeners.push(listener); };

/** Send an entry, which the title describes; resolves when the server has stored it, rejects when it refuses it. */
export function deliver(path, body, title) {
  const entry = { path, body, title };
  const delivered = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
  waiting.push(entry);
  last = delivered.catch(() => {});
  notify();
  sendAll();
  return delivered;
}

/** Send the entries that waited when the tab was reloaded. */
export function restore() {
  const stored = readStored(OUTBOX) ?? {};
  refused = stored.refused ?? [];
  for (const { path, body, title } of stored.waiting ?? []) deliver(path, body, title).catch(() => {});
  if (refused.length) notify();
}

/** Resolves when all entries so far are stored or refused. */
export const waitUntilSent = () => last;

/** Send a refused entry again. */
export function retry(entry) {
  refused = refused.filter((other) => other !== entry);
  if (entry.path === VERDICTS) verdictHistory.push({ entryId: entry.body.key, card: null });
  deliver(entry.path, entry.body, entry.title).catch(() => {});
}

export function discard(entry) {
  refused = refused.filter((other) => other !== entry);
  notify();
}

async function sendAll() {
  if (sending) return;
  sending = true;
  while (waiting.length) {
    const entry = waiting[0];
    try {
      const answer = await post(entry.path, entry.body);
      settle(entry, () => entry.resolve(answer));
    } catch (error) {
      if (isRefusal(error)) refuse(entry, error);
      else await waitToRetry(error);
    }
  }
  sending = false;
}

/** Whether this server's reviews refuse an entry for good. Any other error may pass, such as one of a proxy. */
function isRefusal(error) {
  return error instanceof RequestError && error.status < 500 && !TEMPORARY.has(error.status)
    && Boolean(error.code) && !NO_ROUTE.has(error.code);
}

function refuse(entry, error) {
  const { path, body, title } = entry;
  const isUndone = path === UNDO && error.code === "nothing_to_undo"; // the verdict is not stored, as was asked for
  settle(entry, () => {
    if (!isUndone) refused.push({ path, body, title, reason: error.message });
    if (path === VERDICTS) verdictHistory.remove(body.key);
    entry.reject(error);
  });
}

/** Remove the first entry, and the refused ones that it replaces. */
function settle(entry, report) {
  waiting.shift();
  failures = 0;
  failure = "";
  refused = refused.filter((other) => !replaces(entry, other));
  report();
  notify();
}

/** Whether an entry is about the same cell as a refused one, or undoes it; sending that one again would be wrong. */
function replaces({ path, body }, { path: otherPath, body: other }) {
  if (path === UNDO) return body.of === (otherPath === UNDO ? other.of : other.key);
  return otherPath === VERDICTS && ["row", "label", "data_id"].every((name) => body[name] === other[name]);
}

async function waitToRetry(error) {
  failures += 1;
  failure = NO_ROUTE.has(error.code) ? "The server was started without --data, so it has no reviews."
    : error instanceof RequestError ? error.message : "";
  notify();
  await new Promise((wake) => { setTimeout(wake, Math.min(250 * 2 ** failures, 5000)); });
}

function notify() {
  writeStored(OUTBOX, { waiting: waiting.map(({ path, body, title }) => ({ path, body, title })), refused });
  const state = { waiting: waiting.length, failing: failures > 0, failure, refused };
  for (const listener of listeners) listener(state);
}

addEventListener("beforeunload", (event) => { if (waiting.length || refused.length) event.preventDefault(); });

/** The verdicts of this tab, newest last. Their ids survive a reload, so that an undo finds the tab's own verdict. */
class VerdictHistory {
  constructor() {
    this.entries = [];
    this.dataId = null; // of the data that the verdicts are about
  }

  get length() { return this.entries.length; }

  /** Load the verdicts on some data. */
  open(dataId) {
    if (dataId === this.dataId) return;
    const stored = readStored(HISTORY);
    const entryIds = stored?.dataId === dataId ? stored.entryIds : [];
    this.entries = [...entryIds.map((entryId) => ({ entryId, card: null })), ...this.entries];
    this.dataId = dataId;
  }

  push(entry) {
    this.entries.push(entry);
    this.store();
  }

  pop() {
    const entry = this.entries.pop() ?? null;
    this.store();
    return entry;
  }

  remove(entryId) {
    this.entries = this.entries.filter((entry) => entry.entryId !== entryId);
    this.store();
  }

  store() {
    if (this.dataId === null) return;
    const entryIds = this.entries.slice(-MAX_STORED_IDS).map((entry) => entry.entryId);
    writeStored(HISTORY, { dataId: this.dataId, entryIds });
  }
}

export const verdictHistory = new VerdictHistory();
