// What was decided and not yet acknowledged. Entries go out one after the other and are sent until the server has
// them on its disk; each has a key, so that one that arrives twice counts once.

import { post, Refused } from "./api.js";

const PASSING = new Set([408, 429]); // too slow, or too many: the same may be taken later
const waiting = [];
let busy = false;
let failures = 0;
let listener = () => {};
let last = Promise.resolve();

export const newKey = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
};

export const unsaved = () => waiting.length;
export const onChange = (tell) => { listener = tell; };

/** Send an entry; resolves when the server has stored it, rejects when it refuses it for good. */
export function deliver(path, body) {
  const delivered = new Promise((resolve, reject) => {
    waiting.push({ path, body, resolve, reject });
    changed();
    work();
  });
  last = delivered.catch(() => {});
  return delivered;
}

/** Resolves when all that was sent so far is stored or refused. */
export const settled = () => last;

async function work() {
  if (busy) return;
  busy = true;
  while (waiting.length) {
    const { path, body, resolve, reject } = waiting[0];
    try {
      const answer = await post(path, body);
      settle(() => resolve(answer));
    } catch (error) {
      if (error instanceof Refused && error.status < 500 && !PASSING.has(error.status)) settle(() => reject(error));
      else {
        failures += 1;
        changed();
        await new Promise((wake) => setTimeout(wake, Math.min(250 * 2 ** failures, 5000)));
      }
    }
  }
  busy = false;
}

function settle(finish) {
  waiting.shift();
  failures = 0;
  finish();
  changed();
}

function changed() {
  listener({ waiting: waiting.length, failing: failures > 0 });
}

addEventListener("beforeunload", (event) => { if (waiting.length) event.preventDefault(); });
