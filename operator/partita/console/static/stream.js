// Reads server-sent events with fetch: an EventSource could not send the token.

const AGAIN_MS = [500, 1000, 2000, 5000];
const DEAF_MS = 45_000; // the server sends something every 15 s

const SILENT = "the console does not answer";

export class Refused extends Error {}

/** Send a request with the token, and with the cookies of a proxy that adds one itself. */
async function send(token, path, options = {}) {
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin", redirect: "manual" });
  if (answer.type === "opaqueredirect") location.reload(); // the proxy's sign-in has expired
  return answer;
}

/** The console's words in an answer; those of a proxy are a page. */
const said = async (answer) => (answer.headers.get("Content-Type")?.startsWith("text/plain") ? answer.text() : `HTTP status ${answer.status}`);

/**
 * Follow the events until `signal` aborts; connect again whenever the stream ends.
 *
 * `on.event(name, text)` gets each event, `on.lost(why)` is called at each break.
 * Throws `Refused` with the server's words where only another token would help.
 */
export async function follow(token, signal, on) {
  let failed = 0;
  while (!signal.aborted) {
    const why = await readEvents(token, "events", signal, (name, text) => {
      failed = 0;
      on.event(name, text);
    });
    on.lost(why);
    const pause = AGAIN_MS[Math.min(failed++, AGAIN_MS.length - 1)];
    await new Promise((wake) => setTimeout(wake, pause));
  }
}

/** Fetch JSON, or send `body` and fetch the answer; throws the server's words and its status where it refuses. */
export async function fetchJson(token, path, body = null) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await send(token, path, body ? post : {}).catch(() => {
    throw new Error(SILENT);
  });
  if (!answer.ok) throw Object.assign(new Error(await said(answer)), { status: answer.status });
  return answer.json();
}

/** Read events until the stream ends; returns why it ended or was not given, and throws `Refused` as `follow` does. */
export async function readEvents(token, path, signal, onEvent) {
  const ended = new AbortController();
  const end = () => ended.abort();
  let deaf = setTimeout(end, DEAF_MS);
  try {
    const answer = await send(token, path, { signal: AbortSignal.any([signal, ended.signal]) });
    if (answer.status === 401 || answer.status === 403) throw new Refused(await said(answer));
    if (!answer.ok) return await said(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return SILENT;
      clearTimeout(deaf);
      deaf = setTimeout(end, DEAF_MS);
      const parts = value.split("\n\n");
      rest.push(parts[0]);
      for (const part of parts.slice(1)) {
        deliver(rest.join(""), onEvent);
        rest = [part];
      }
    }
  } catch (error) {
    if (error instanceof Refused || signal.aborted) throw error;
    return SILENT;
  } finally {
    clearTimeout(deaf);
    ended.abort();
  }
}

function deliver(text, onEvent) {
  const [first, second] = text.split("\n", 2);
  if (first.startsWith("event: ") && second?.startsWith("data: ")) {
    onEvent(first.slice(7), second.slice(6));
  }
}
