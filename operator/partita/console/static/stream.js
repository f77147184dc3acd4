// Reads server-sent events with fetch: an EventSource could not send the token.

const AGAIN_MS = [500, 1000, 2000, 5000];
const DEAF_MS = 45_000; // the server sends something every 15 s

export class Refused extends Error {}

/**
 * Follow the events until `signal` aborts; connect again whenever the stream ends.
 *
 * `on.event(name, text)` gets each event, `on.lost()` is called at each break.
 * Throws `Refused` with the server's words where only another token would help.
 */
export async function follow(token, signal, on) {
  let failed = 0;
  while (!signal.aborted) {
    try {
      await once(token, signal, (name, text) => {
        failed = 0;
        on.event(name, text);
      });
    } catch (error) {
      if (error instanceof Refused || signal.aborted) throw error;
    }
    on.lost();
    const pause = AGAIN_MS[Math.min(failed++, AGAIN_MS.length - 1)];
    await new Promise((wake) => setTimeout(wake, pause));
  }
}

/** Fetch JSON; throws an error with the server's words where it is refused. */
export async function fetchJson(token, path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", credentials: "omit" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function once(token, signal, onEvent) {
  const ended = new AbortController();
  const end = () => ended.abort();
  signal.addEventListener("abort", end);
  let deaf = setTimeout(end, DEAF_MS);
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch("events", { headers, signal: ended.signal, cache: "no-store", credentials: "omit" });
    if (answer.status === 401 || answer.status === 403) throw new Refused(await answer.text());
    if (!answer.ok) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(deaf);
      deaf = setTimeout(end, DEAF_MS);
      const parts = value.split("\n\n");
      rest.push(parts[0]);
      for (const part of parts.slice(1)) {
        deliver(rest.join(""), onEvent);
        rest = [part];
      }
    }
  } finally {
    clearTimeout(deaf);
    signal.removeEventListener("abort", end);
    ended.abort();
  }
}

function deliver(text, onEvent) {
  const [first, second] = text.split("\n", 2);
  if (first.startsWith("event: ") && second?.startsWith("data: ")) {
    onEvent(first.slice(7), second.slice(6));
  }
}
