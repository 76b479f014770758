// A text, the labels that the model gives to it, and why.

import { get, post } from "./api.js";
import { button, el, refill, say, select } from "./dom.js";
import { argumentChips, signed, track, weightBar } from "./sheet.js";

const TOP = 5;

export class TryView {
  constructor() {
    this.text = el("textarea", {
      rows: 5, spellcheck: "false", placeholder: "Write or paste a text.", "aria-label": "Text",
      onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.tag(); },
    });
    this.model = null;
    this.models = el("div", { class: "row" });
    this.found = el("ol", { class: "found", "aria-label": "Labels" });
    this.note = el("p", { class: "muted", role: "status" });
    this.node = el("div", { class: "column" },
      el("h1", {}, "Try a text"), this.text,
      el("div", { class: "row" },
        button("Tag it", () => this.tag(), { class: "primary", key: "Ctrl ↵" }), this.models),
      this.note, this.found);
    this.keys = { "/": () => this.text.focus() };
    this.turn = 0;
  }

  async show() {
    if (this.model) return;
    try {
      const { models } = await get("/v1/models");
      const texts = models.filter((one) => one.takes === "texts");
      if (!texts.length) { this.note.textContent = "No model of this server takes texts."; return; }
      this.model = texts[0].name;
      if (texts.length > 1) {
        const names = texts.map((one) => [one.name, one.name]);
        refill(this.models, select("Model", names, (name) => { this.model = name; }, this.model));
      }
    } catch (error) { this.note.textContent = error.message; }
  }

  async tag() {
    const text = this.text.value;
    if (!text.trim() || !this.model) return;
    const turn = ++this.turn;
    const path = `/v1/models/${encodeURIComponent(this.model)}`;
    this.note.textContent = "";
    try {
      const { predictions } = await post(`${path}/predict`, { texts: [text], top: TOP });
      if (turn !== this.turn) return;
      const labels = predictions[0].labels;
      const rows = this.draw(labels);
      await Promise.all(labels.map(async ({ label }, i) => {
        const why = await post(`${path}/explain`, { text, label, top: 6 });
        if (turn === this.turn) rows[i].append(argumentChips(why.features));
      }));
    } catch (error) {
      if (turn === this.turn) { refill(this.found); this.note.textContent = error.message; }
    }
  }

  draw(labels) {
    const most = Math.max(...labels.map((one) => Math.abs(one.score ?? 0)), 1e-9);
    const rows = labels.map(({ label, score }) => el("li", { class: score > 0 ? "yes" : "no" },
      el("div", { class: "scored" }, el("strong", {}, label), track(weightBar(score ?? 0, most)),
        el("span", { class: "weight" }, score === null ? "–" : signed(score)),
        el("span", { class: "answer" }, score > 0 ? "yes" : "no"))));
    refill(this.found, rows);
    const yes = labels.filter((one) => one.score > 0).map((one) => one.label);
    this.note.textContent = yes.length ? "" : "The model says no to every label; these come nearest.";
    say(yes.length ? `Labels: ${yes.join(", ")}` : this.note.textContent);
    return rows;
  }
}
