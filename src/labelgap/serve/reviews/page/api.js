// Requests to the server that served the page, with the token where it wants one.

const TOKEN = "labelgap-token";
const CARRIED = /^[ -~]+$/; // what a header can carry
let asking = null;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const canBeToken = (text) => CARRIED.test(text);

function kept() {
  const token = sessionStorage.getItem(TOKEN);
  return token !== null && canBeToken(token) ? token : null;
}

async function send(path, options, token) {
  const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  return fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
}

async function answered(path, options = {}) {
  let token = kept();
  let answer = await send(path, options, token);
  while (answer.status === 401) {
    if (token === kept()) await askForToken(token !== null); // else another one was given meanwhile
    token = kept();
    answer = await send(path, options, token);
  }
  if (!answer.ok) throw new Refused(answer.status, await message(answer));
  return answer;
}

async function message(answer) {
  try {
    const body = await answer.json();
    return body.error?.message ?? (typeof body.detail === "string" ? body.detail : JSON.stringify(body.detail));
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

function askForToken(refused) {
  asking ??= new Promise((resolve) => {
    sessionStorage.removeItem(TOKEN);
    const give = (token) => { sessionStorage.setItem(TOKEN, token); resolve(); };
    document.dispatchEvent(new CustomEvent("token-wanted", { detail: { give, refused } }));
  }).finally(() => { asking = null; });
  return asking;
}

export async function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given).toString();
  return (await answered(search ? `${path}?${search}` : path)).json();
}

export async function post(path, body = {}) {
  const headers = { "Content-Type": "application/json" };
  return (await answered(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** Download a file by name. */
export async function download(path) {
  const answer = await answered(path);
  const named = /filename\*=UTF-8''([^;]+)/.exec(answer.headers.get("Content-Disposition") || "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = named ? decodeURIComponent(named[1]) : "export";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return link.download;
}
