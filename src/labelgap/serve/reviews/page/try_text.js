// The view in which a person tries a text: predicted labels and their reasons.

import { get, post } from "./api.js";
import { announce, button, el, percent, refill, select } from "./dom.js";
import { formatWeight, track, weightBar, weightChips } from "./document.js";

const TOP = 5;
const WRITTEN = "The percentages are the probabilities that a person writes the label.";
const NO_WORD = "The model knows no word of this text.";
const SCORES = "The numbers are scores, not probabilities: the model was not calibrated.";

export class TryView {
  constructor() {
    this.text = el("textarea", {
      rows: 5, spellcheck: "false", placeholder: "Write or paste a text.", "aria-label": "Text",
      onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.predict(); },
    });
    this.model = null;
    this.loading = null; // the promise of the models
    this.models = el("div", { class: "row" });
    this.predictions = el("ol", { class: "predictions", "aria-label": "Labels" });
    this.note = el("p", { class: "muted", role: "status" });
    this.node = el("div", { class: "column" },
      el("h1", {}, "Try a text"), this.text,
      el("div", { class: "row" },
        button("Predict labels", () => this.predict(), { class: "primary", key: "Ctrl ↵" }), this.models),
      this.note, this.predictions);
    this.keys = { "/": () => this.text.focus() };
    this.request = 0;
  }

  /** Fetch the models; a fetch that failed is repeated. */
  show() {
    this.loading ??= this.loadModels().catch((error) => { this.loading = null; this.note.textContent = error.message; });
    return this.loading;
  }

  async loadModels() {
    const { models } = await get("/v1/models");
    const names = models.filter((model) => model.takes === "texts").map((model) => model.name);
    if (!names.length) { this.note.textContent = "No model of this server takes texts."; return; }
    this.model = names[0];
    if (names.length > 1) {
      const options = names.map((name) => [name, name]);
      refill(this.models, select("Model", options, (name) => { this.model = name; }, this.model));
    }
  }

  async predict() {
    const text = this.text.value;
    if (!text.trim()) return;
    const request = ++this.request;
    await this.show(); // a text may be ready before the models are
    if (!this.model || request !== this.request) return;
    const path = `/v1/models/${encodeURIComponent(this.model)}`;
    this.note.textContent = "";
    try {
      const { predictions } = await post(`${path}/predict`, { texts: [text], top: TOP });
      if (request !== this.request) return;
      const labels = predictions[0].labels;
      const rows = this.draw(labels);
      const reasons = await Promise.all(labels.map(async ({ label }, i) => {
        const { features } = await post(`${path}/explain`, { text, label, top: 6 });
        if (request === this.request) rows[i].append(weightChips(features));
        return features;
      }));
      if (request === this.request && !reasons.flat().length) this.note.textContent = `${NO_WORD} ${this.note.textContent}`;
    } catch (error) {
      if (request === this.request) { refill(this.predictions); this.note.textContent = error.message; }
    }
  }

  draw(labels) {
    const calibrated = labels.every(({ probability }) => typeof probability === "number");
    const largest = calibrated ? 1 : Math.max(...labels.map(({ score }) => Math.abs(score ?? 0)), 1e-9);
    const rows = labels.map(({ label, score, probability }) => el("li", { class: score > 0 ? "yes" : "no" },
      el("div", { class: "scored" }, el("strong", {}, label),
        track(weightBar(calibrated ? probability : score ?? 0, largest)),
        el("span", { class: "weight" }, calibrated ? percent(probability) : score === null ? "–" : formatWeight(score)),
        el("span", { class: "answer" }, score > 0 ? "yes" : "no"))));
    refill(this.predictions, rows);
    const predicted = labels.filter(({ score }) => score > 0).map(({ label }) => label);
    const missing = predicted.length ? "" : "No label is predicted; these are the best. ";
    this.note.textContent = missing + (calibrated ? WRITTEN : SCORES);
    announce(predicted.length ? `Labels: ${predicted.join(", ")}` : this.note.textContent);
    return rows;
  }
}
