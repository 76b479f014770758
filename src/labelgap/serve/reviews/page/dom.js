// Elements without markup: whatever comes from data is text, and nothing here reads it as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** Make an element: el("p", {class: "muted"}, "text", otherElement). */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Put children in place of what is there. */
export function refill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** A button that shows its key. */
export function button(text, onclick, { key = "", ...attributes } = {}) {
  const hint = key ? el("kbd", { "aria-hidden": "true" }, key) : null;
  return el("button", { type: "button", onclick, ...attributes }, el("span", {}, text), hint);
}

/** A group of choices of which one is pressed; returns the element and a way to set it. */
export function choices(name, options, onchange) {
  const buttons = options.map(([value, text]) =>
    el("button", { type: "button", "data-value": value, onclick: () => { set(value); onchange(value); } }, text));
  const set = (value) => buttons.forEach((one) =>
    one.setAttribute("aria-pressed", String(one.dataset.value === value)));
  return { node: el("div", { class: "choices", role: "group", "aria-label": name }, buttons), set };
}

/** A select with a name for those who do not see it. */
export function select(name, options, onchange, value) {
  const node = el("select", { "aria-label": name, onchange: () => onchange(node.value) },
    options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  return node;
}

/** A bar of progress with its words. */
export function meter(done, total, text) {
  return el("div", { class: "working" },
    el("progress", { max: Math.max(total, 1), value: done, "aria-label": text || "Progress" }),
    el("p", { class: "muted" }, text));
}

/** A part of a view: a title, a few words, and what it is about. */
export function figure(title, text, content = null) {
  return el("section", { class: "figure" }, el("h2", {}, title), el("p", { class: "muted" }, text), content);
}

export const percent = (p, digits = 0) => (p === null ? "–" : `${(100 * p).toFixed(digits)}\u00a0%`);
export const count = (n) => Math.round(n).toLocaleString("en");
export const counted = (n, one, many) => `${count(n)} ${Math.round(n) === 1 ? one : many}`;

let lastSaid = 0;
/** Tell those who listen rather than look. */
export function say(text) {
  const live = document.getElementById("live");
  const mine = ++lastSaid;
  setTimeout(() => { if (mine === lastSaid) live.textContent = text; }, 30);
}
