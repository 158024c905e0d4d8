// The server's answers, and its errors in words.

/** Where the server is, also behind a proxy that gives it a path of its own. */
const ROOT = new URL("../../", import.meta.url);

/** What the server, or the way to it, says went wrong. */
export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.name = "ServerError";
    this.status = status;
  }
}

export const wasAborted = (error) => error.name === "AbortError";

/** The response to a request; ServerError for any that is not a success. `body` is sent as JSON. */
export async function request(path, { body, signal } = {}) {
  const headers = {};
  const key = document.getElementById("key").value.trim();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, ROOT), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (wasAborted(error)) throw error;
    throw new ServerError("The server cannot be reached. Is it running?");
  }
  if (!response.ok) throw await describe(response);
  return response;
}

export const getJson = async (path, signal) => (await request(path, { signal })).json();

export const postJson = async (path, body, signal) => (await request(path, { body, signal })).json();

async function describe(response) {
  const text = await response.text();
  let message = `The server answered with the status ${response.status} ${response.statusText}`.trim();
  try {
    const { error } = JSON.parse(text);
    message = (typeof error === "string" ? error : error?.message) ?? message;
  } catch {
    // No JSON: a proxy between here and the server has answered, and the status is all there is to tell.
  }
  const seconds = response.headers.get("Retry-After");
  if (response.status === 429 && seconds) message += `. Try again in ${seconds} s`;
  if (response.status === 401 || response.status === 403) askForKey();
  return new ServerError(message, response.status);
}

/** Show the field for the API key. */
export function askForKey() {
  document.getElementById("key-label").hidden = false;
}
