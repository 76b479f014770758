// Requests to the server that served the page, with its token if it requires one.

const TOKEN = "labelgap-token"; // name in the session storage
const HEADER_SAFE = /^[ -~]+$/; // characters that an HTTP header can carry
let tokenRequest = null;

export class RequestError extends Error {
  constructor(status, message, code = null) {
    super(message);
    this.status = status;
    this.code = code; // of this service's errors; others have none
  }
}

export const isValidToken = (text) => HEADER_SAFE.test(text);

export async function get(path, query = {}) {
  const present = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(present).toString();
  return (await send(search ? `${path}?${search}` : path)).json();
}

export async function post(path, body = {}) {
  const headers = { "Content-Type": "application/json" };
  return (await send(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** Download a file and return its name. */
export async function download(path) {
  const response = await send(path);
  const match = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("Content-Disposition") || "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = match ? decodeURIComponent(match[1]) : "export";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return link.download;
}

/** Send a request, and ask for the token as often as the server rejects it. */
async function send(path, options = {}) {
  let token = storedToken();
  let response = await fetchWithToken(path, options, token);
  while (response.status === 401) {
    if (token === storedToken()) await requestToken(token !== null); // else another request has asked meanwhile
    token = storedToken();
    response = await fetchWithToken(path, options, token);
  }
  if (!response.ok) throw await readError(response);
  return response;
}

function fetchWithToken(path, options, token) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  return fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
}

function storedToken() {
  const token = sessionStorage.getItem(TOKEN);
  return token !== null && isValidToken(token) ? token : null;
}

/** Let page.js show the token dialog; resolves when a token is entered. */
function requestToken(rejected) {
  tokenRequest ??= new Promise((resolve) => {
    sessionStorage.removeItem(TOKEN);
    const submit = (token) => { sessionStorage.setItem(TOKEN, token); resolve(); };
    document.dispatchEvent(new CustomEvent("token-required", { detail: { submit, rejected } }));
  }).finally(() => { tokenRequest = null; });
  return tokenRequest;
}

async function readError(response) {
  const { status } = response;
  const { error } = await response.json().catch(() => ({})) ?? {};
  return new RequestError(status, error?.message ?? `The server answered ${status}.`, error?.code);
}
