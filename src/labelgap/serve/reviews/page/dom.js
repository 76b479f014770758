// Functions that make elements. Text from the data is always added as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: el("p", {class: "muted"}, "text", otherElement). */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...flatten(children));
  return node;
}

const flatten = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined);

/** Replace the children of an element. */
export function refill(node, ...children) {
  node.replaceChildren(...flatten(children));
  return node;
}

/** Make a button that shows its key. */
export function button(text, onclick, { key = "", ...attributes } = {}) {
  const hint = key ? el("kbd", { "aria-hidden": "true" }, key) : null;
  return el("button", { type: "button", onclick, ...attributes }, el("span", {}, text), hint);
}

/** Make a group of buttons, one of them pressed; return the element and the function that presses one. */
export function choices(name, options, onchange) {
  const buttons = options.map(([value, text]) =>
    el("button", { type: "button", "data-value": value, onclick: () => { set(value); onchange(value); } }, text));
  const set = (value) => buttons.forEach((node) =>
    node.setAttribute("aria-pressed", String(node.dataset.value === value)));
  return { node: el("div", { class: "choices", role: "group", "aria-label": name }, buttons), set };
}

/** Make a select element with an accessible name. */
export function select(name, options, onchange, value) {
  const node = el("select", { "aria-label": name, onchange: () => onchange(node.value) },
    options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  return node;
}

/** Make a progress bar with a text below it. */
export function progressBar(done, total, text) {
  return el("div", { class: "working" },
    el("progress", { max: Math.max(total, 1), value: done, "aria-label": text || "Progress" }),
    el("p", { class: "muted" }, text));
}

/** Make a section of a view: a title, a text, and content. */
export function figure(title, text, content = null) {
  return el("section", { class: "figure" }, el("h2", {}, title), el("p", { class: "muted" }, text), content);
}

export const percent = (p, digits = 0) => (p === null ? "–" : `${(100 * p).toFixed(digits)}\u00a0%`);
export const count = (n) => Math.round(n).toLocaleString("en");
export const counted = (n, singular, plural) => `${count(n)} ${Math.round(n) === 1 ? singular : plural}`;

let announcements = 0;
/** Announce a text to screen readers; of several within 30 ms only the last. */
export function announce(text) {
  const live = document.getElementById("live");
  const number = ++announcements;
  setTimeout(() => { if (number === announcements) live.textContent = text; }, 30);
}
