// Values that survive a reload of this tab, as JSON in the session storage.

/** Return a stored value; null if there is none. */
export function readStored(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

/** Store a value. A full storage is no error: what is stored only has to survive a reload. */
export function writeStored(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch { /* the value stays in memory */ }
}
