// Numbers and times in words.

export const GIB = 2 ** 30;

const gib = (bytes) => (bytes / GIB).toFixed(1);
export const amount = (bytes) => (bytes === null || bytes === undefined ? "–" : bytes < GIB ? `${Math.round(bytes / 2 ** 20)} MiB` : `${gib(bytes)} GiB`);
/** Such as `6.0 of 8.0 GiB`, and `6 MiB of 8.0 GiB`. */
export const portion = (bytes, whole) => `${bytes < GIB ? (bytes ? amount(bytes) : 0) : gib(bytes)} of ${amount(whole)}`;
export const percent = (part, whole) => (whole > 0 ? Math.round((100 * part) / whole) : 0);
const grouped = new Intl.NumberFormat("en");
export const number = (count) => grouped.format(count);
export const many = (count, one) => `${number(count)} ${one}${count === 1 ? "" : "s"}`;

/** How long ago a Unix time was, or the time from one to another. */
export function ago(since, until = Date.now() / 1000) {
  const seconds = Math.max(0, until - since);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} days`;
}

/** When something is expected to start, in the words of the command line. */
export function startsIn({ earliest, latest }, now = Date.now() / 1000) {
  if (!earliest) return "";
  const soonest = earliest > now ? `in ${ago(now, earliest)}` : "";
  if (!latest) return soonest ? `${soonest} or later` : "later";
  if (latest < now) return "overdue";
  return soonest ? `${soonest} to ${ago(now, latest)}` : `within ${ago(now, latest)}`;
}

/** Date and time of a Unix time; empty for none. */
export const time = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString("en-GB") : "");

/** The time of day of a Unix time. */
export const clock = (time, seconds = false) => new Date(time * 1000).toTimeString().slice(0, seconds ? 8 : 5);

/** A reason's word, readable: `InsufficientMemory` becomes `Insufficient memory`. */
export function spaced(word) {
  const parts = word.split(/(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/);
  return parts.map((part, n) => (n && !/^[A-Z]{2}/.test(part) ? part.toLowerCase() : part)).join(" ");
}

const seen = new Map();

/** The number of a namespace's colour, the same while the page is open; null is a namespace that may not be seen. */
export function colour(namespace) {
  if (namespace === null) return "other";
  if (!seen.has(namespace)) seen.set(namespace, seen.size % 8);
  return seen.get(namespace);
}
