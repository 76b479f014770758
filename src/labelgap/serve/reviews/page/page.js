// The page: views, keys, the state of saving, help, and the token.

import { canBeToken, get } from "./api.js";
import { button, counted, el, refill } from "./dom.js";
import { FinishView } from "./finish.js";
import { onChange } from "./outbox.js";
import { ProgressView } from "./progress.js";
import { ReviewView } from "./review.js";
import { TryView } from "./tryout.js";

const TITLES = { review: "Review", progress: "Progress", finish: "Export and retrain", try: "Try a text" };
const makers = { review: ReviewView, progress: ProgressView, finish: FinishView, try: TryView };
const views = {};
const main = document.getElementById("main");
const help = document.getElementById("help");
let shown = null;
let reviewing = false;

function open() {
  const wanted = location.hash.slice(1);
  if (wanted === "main" && shown) return; // the link that skips to the content
  const name = wanted in makers && (reviewing || wanted === "try") ? wanted : reviewing ? "review" : "try";
  if (shown && shown === views[name]) return;
  shown?.hide?.();
  views[name] ??= new makers[name]();
  shown = views[name];
  refill(main, shown.node);
  document.title = `${TITLES[name]} · labelgap`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  shown.show();
}

async function begin() {
  try {
    const state = await get("/review/state");
    reviewing = true;
    document.getElementById("data-name").textContent = state.data;
    for (const link of document.querySelectorAll("nav a")) link.hidden = false;
  } catch (error) {
    if (error.status !== 404) {
      const said = el("p", {}, `The server did not answer: ${error.message}`);
      refill(main, el("div", { class: "notice" }, said, button("Try again", begin)));
      return;
    }
  }
  open();
}

// --- keys ---------------------------------------------------------------------------------------------------------

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]");

/** Arrows scroll the text that has the focus, and with Shift they select. */
const isReading = ({ key, shiftKey, target }) => key.startsWith("Arrow") && (shiftKey || target.closest?.(".text"));

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (isReading(event)) return;
  if (event.key === "?") { event.preventDefault(); help.showModal(); return; }
  const view = document.querySelectorAll("nav a:not([hidden])")[Number(event.key) - 1];
  if (view) { location.hash = view.dataset.view; return; }
  const does = shown?.keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!does) return;
  event.preventDefault();
  if (!event.repeat) does();
}

const STORED = "Each verdict is stored as it is made. “Saved” means that the server has it on its disk.";
const KEYS = [
  ["A or →", "accept the suggestion"], ["R or ←", "refuse it"], ["S or ↓", "skip it for now"], ["U or Z", "undo"],
  ["N and P", "next and previous, without a verdict"], ["G", "one by one, by label, by document"],
  ["↑ ↓", "scroll the text that has the focus"], ["/", "only one label"], ["1 to 4", "the views at the top"], ["Esc", "leave a field"], ["?", "this help"],
];

function makeHelp() {
  refill(help, el("h2", { id: "help-title" }, "Keys"),
    el("dl", { class: "keys" }, KEYS.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
    el("p", { class: "muted small" }, STORED),
    button("Close", () => help.close(), { class: "primary" }));
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
}

// --- saving and the token -----------------------------------------------------------------------------------------

function showSaving({ waiting, failing }) {
  const node = document.getElementById("saving");
  node.className = `saving ${failing ? "failing" : waiting ? "waiting" : "saved"}`;
  const left = `${counted(waiting, "verdict", "verdicts")} not saved, retrying`;
  node.textContent = failing ? left : waiting ? "Saving …" : "Saved";
}

document.addEventListener("token-wanted", ({ detail: { give, refused } }) => {
  const dialog = document.getElementById("token");
  const attributes = { type: "password", autocomplete: "off", required: true, "aria-labelledby": "token-title" };
  const field = el("input", attributes);
  const wrong = el("p", { class: "wrong", role: "alert" }, refused ? "That token was refused." : "");
  let given = false;
  const submit = (event) => {
    const token = field.value.trim();
    given = canBeToken(token);
    if (given) { give(token); return; }
    event.preventDefault();
    wrong.textContent = "A token is made of letters, digits and signs of plain ASCII; this one has others.";
    field.select();
  };
  refill(dialog, el("form", { method: "dialog", onsubmit: submit },
    el("h2", { id: "token-title" }, "This server wants a token"), field, wrong,
    el("p", { class: "muted small" }, "It is kept until this tab is closed."),
    el("button", { class: "primary" }, "Continue")));
  dialog.oncancel = (event) => event.preventDefault();
  dialog.onclose = () => { if (!given && !dialog.open) dialog.showModal(); }; // browsers close it at a second Escape
  dialog.showModal();
});

makeHelp();
onChange(showSaving);
addEventListener("hashchange", open);
document.addEventListener("keydown", onKey);
begin();
