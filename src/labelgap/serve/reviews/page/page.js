// The page: its views, keys, saving state, help and token dialog.

import { get, isValidToken } from "./api.js";
import { button, counted, el, refill } from "./dom.js";
import { ExportView } from "./export.js";
import { discard, onChange, restore, retry } from "./outbox.js";
import { ProgressView } from "./progress.js";
import { ReviewView } from "./review.js";
import { TryView } from "./try_text.js";

const TITLES = { review: "Review", progress: "Progress", export: "Export and retrain", try: "Try a text" };
const CLASSES = { review: ReviewView, progress: ProgressView, export: ExportView, try: TryView };
const FORMER_NAMES = { finish: "export" }; // in bookmarks
const views = {};
const main = document.getElementById("main");
const help = document.getElementById("help");
let shown = null;
let hasReviews = false;

function showView() {
  const hash = location.hash.slice(1);
  if (hash === "main" && shown) return; // the link that skips to the content
  const requested = FORMER_NAMES[hash] ?? hash;
  const available = requested in CLASSES && (hasReviews || requested === "try");
  const name = available ? requested : hasReviews ? "review" : "try";
  if (shown && shown === views[name]) return;
  shown?.hide?.();
  views[name] ??= new CLASSES[name]();
  shown = views[name];
  refill(main, shown.node);
  document.title = `${TITLES[name]} · labelgap`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  shown.show();
}

async function start() {
  try {
    const state = await get("/review/state");
    hasReviews = true;
    document.getElementById("data-name").textContent = state.data;
    for (const link of document.querySelectorAll("nav a")) link.hidden = false;
  } catch (error) {
    if (error.status !== 404) { // 404: the server was started without data to review
      const message = el("p", {}, `The server did not answer: ${error.message}`);
      refill(main, el("div", { class: "notice" }, message, button("Try again", start)));
      return;
    }
  }
  showView();
}

// --- keys ---------------------------------------------------------------------------------------------------------

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]");

/** Arrows scroll a text that has the focus; with Shift they select. */
const isReading = ({ key, shiftKey, target }) => key.startsWith("Arrow") && (shiftKey || target.closest?.(".text"));

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (isReading(event)) return;
  if (event.key === "?") { event.preventDefault(); help.showModal(); return; }
  const link = document.querySelectorAll("nav a:not([hidden])")[Number(event.key) - 1];
  if (link) { location.hash = link.dataset.view; return; }
  const action = shown?.keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  if (!event.repeat) action();
}

const STORED = `Each verdict is sent immediately, and again until the server answers. “Saved” means that all verdicts are on
  the server’s disk.`;
const TIES = `Many of the first suggestions have the same probability, the largest that the audit can support. Of these, the one
  with more evidence comes first.`;
const KEYS = [
  ["A or →", "accept the suggestion"], ["R or ←", "reject it"], ["S or ↓", "skip it for now"], ["U or Z", "undo"],
  ["N and P", "next and previous, without a verdict"], ["G", "group one by one, by label, by document"],
  ["↑ ↓", "scroll the text that has the focus"], ["/", "show only one label"], ["1 to 4", "switch the view"],
  ["Esc", "leave a field"], ["?", "show this help"],
];

function makeHelp() {
  refill(help, el("h2", { id: "help-title" }, "Keys"),
    el("dl", { class: "keys" }, KEYS.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
    el("p", { class: "muted small" }, STORED), el("p", { class: "muted small" }, TIES),
    button("Close", () => help.close(), { class: "primary" }));
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
}

// --- saving and the token -----------------------------------------------------------------------------------------

function showSaving({ waiting, failing, failure, refused }) {
  const node = document.getElementById("saving");
  const [state, text] = failing ? ["failing", `${counted(waiting, "verdict", "verdicts")} not saved, retrying`]
    : waiting ? ["waiting", "Saving …"]
      : refused.length ? ["refused", `${counted(refused.length, "verdict", "verdicts")} not stored`]
        : ["saved", "Saved"];
  node.className = `saving ${state}`;
  node.textContent = text;
  showUnsaved(failure, refused);
}

/** List refused entries, in every view, until each is sent again or discarded, and say why others are not saved. */
function showUnsaved(failure, refused) {
  const unsaved = document.getElementById("unsaved");
  const hadFocus = unsaved.contains(document.activeElement);
  const lines = [...(failure ? [`Not saved yet: ${failure}`] : []), ...refused.map(describeRefused)];
  const alert = document.getElementById("alert");
  if (alert.textContent === lines.join(" ")) return; // drawing again would take the focus from a button
  alert.textContent = lines.join(" ");
  unsaved.hidden = !lines.length;
  refill(unsaved, failure ? el("p", {}, lines[0]) : null, refused.map((entry) => el("div", { class: "row" },
    el("p", {}, describeRefused(entry)),
    button("Try again", () => retry(entry)), button("Discard", () => discard(entry), { class: "quiet" }))));
  if (hadFocus) main.focus();
}

const describeRefused = ({ title, reason }) => `Not stored: ${title}. ${reason}`;

function askForToken({ detail: { submit, rejected } }) {
  const dialog = document.getElementById("token");
  const attributes = { type: "password", autocomplete: "off", required: true, "aria-labelledby": "token-title" };
  const field = el("input", attributes);
  const wrong = el("p", { class: "wrong", role: "alert" }, rejected ? "The token is wrong." : "");
  const closing = new AbortController();
  const onSubmit = (event) => {
    const token = field.value.trim();
    if (isValidToken(token)) {
      closing.abort();
      submit(token);
      return;
    }
    event.preventDefault();
    wrong.textContent = "A token has only plain ASCII characters; this one has others.";
    field.select();
  };
  refill(dialog, el("form", { method: "dialog", onsubmit: onSubmit },
    el("h2", { id: "token-title" }, "This server requires a token"), field, wrong,
    el("p", { class: "muted small" }, "It is stored until you close this tab."),
    el("button", { class: "primary" }, "Continue")));
  const options = { signal: closing.signal };
  dialog.addEventListener("cancel", (event) => event.preventDefault(), options);
  // Browsers close a dialog at the second Escape in spite of that.
  dialog.addEventListener("close", () => { if (!dialog.open) dialog.showModal(); }, options);
  dialog.showModal();
}

makeHelp();
onChange(showSaving);
restore();
addEventListener("hashchange", showView);
document.addEventListener("keydown", onKey);
document.addEventListener("token-required", askForToken);
start();
