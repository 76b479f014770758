// The verdicts of this tab, newest last. Their keys outlive a reload, so that an undo finds one's own.

const NAME = "labelgap-verdicts";
const KEPT = 200;

export class History {
  constructor() { this.entries = kept().map((key) => ({ key, card: null })); }

  get length() { return this.entries.length; }

  push(entry) {
    this.entries.push(entry);
    this.keep();
  }

  pop() {
    const entry = this.entries.pop() ?? null;
    this.keep();
    return entry;
  }

  drop(entry) {
    this.entries = this.entries.filter((one) => one !== entry);
    this.keep();
  }

  keep() { sessionStorage.setItem(NAME, JSON.stringify(this.entries.slice(-KEPT).map((one) => one.key))); }
}

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(NAME)) ?? [];
  } catch {
    return [];
  }
}
