// The jobs that wait, in the queue's order, each with its reason.

import { el, Keyed, put, say } from "./dom.js";
import { ago, colour, many, spaced } from "./words.js";

const AT_ONCE = 50; // rows shown until one asks for more

/** The order in which they are served: suspended ones last. */
function place(a, b) {
  const late = (job) => (job.phase === "Suspended" ? 1 : 0);
  return (
    late(a) - late(b) || (a.position ?? Infinity) - (b.position ?? Infinity) || (a.since ?? 0) - (b.since ?? 0) ||
    (a.key < b.key ? -1 : 1)
  );
}

export class Queue {
  constructor() {
    this.shown = AT_ONCE;
    this.title = el("h3", {}, "Queue");
    this.count = el("span", { class: "count" });
    this.body = el("tbody");
    const head = ["#", "Job", "Asks for", "Waits", "Why"].map((text) => el("th", { scope: "col" }, text));
    this.table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), this.body);
    this.empty = el("p", { class: "empty" });
    this.more = el("button", { type: "button", class: "more" });
    this.more.addEventListener("click", () => {
      this.shown += AT_ONCE;
      this.render();
    });
    this.node = el("div", { class: "card queue" }, el("div", { class: "line" }, this.title, this.count), this.table, this.empty, this.more);
    this.rows = new Keyed(this.body, makeRow, updateRow);
    this.jobs = [];
    this.filter = "";
  }

  show(jobs, filter) {
    this.jobs = jobs;
    this.filter = filter;
    this.render();
  }

  render() {
    const found = this.jobs.filter((job) => matches(job, this.filter)).sort(place);
    const rows = found.slice(0, this.shown);
    this.rows.show(rows, (job) => job.key);
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    say(this.empty, this.jobs.length ? "No job in the queue matches the filter." : "Nobody waits.");
    say(this.count, this.filter ? `${found.length} of ${this.jobs.length}` : this.jobs.length ? many(this.jobs.length, "job") : "");
    this.more.hidden = found.length <= this.shown;
    say(this.more, `Show more (${found.length - rows.length} left)`);
  }
}

/** Whether a job or slice is one that is looked for; others' have no names to look for. */
export function matches(job, filter) {
  if (!filter) return true;
  if (job.namespace === null) return false;
  return `${job.namespace}/${job.name} ${job.reason ?? ""} ${job.message ?? ""}`.toLowerCase().includes(filter);
}

function makeRow() {
  const part = { place: el("td", { class: "place" }), name: el("strong"), space: el("span", { class: "space" }) };
  part.asks = el("td", { class: "asks" });
  part.since = el("td", { class: "since" });
  part.reason = el("strong", { class: "reason" });
  part.message = el("span", { class: "message" });
  part.node = el(
    "tr",
    {},
    part.place,
    el("td", { class: "job" }, part.space, part.name),
    part.asks,
    part.since,
    el("td", { class: "why" }, part.reason, part.message),
  );
  return part;
}

const STUCK = new Set(["PartitionNotFound", "PartitionUnreadable", "NamespaceNotAllowed", "InvalidSpec", "NeverFits", "PodForbidden", "AdmissionWebhookFailed"]);

function updateRow(part, job) {
  const hidden = job.namespace === null;
  put(part.node, "data-hidden", hidden ? "" : null);
  say(part.place, job.position ?? "–");
  say(part.name, hidden ? "another namespace" : job.name);
  say(part.space, hidden ? "" : job.namespace);
  put(part.space, "data-colour", colour(job.namespace));
  say(part.asks, job.asks);
  say(part.since, hidden ? "" : ago(job.since));
  const reason = job.reason || (job.phase === "Suspended" ? "Suspended" : "");
  say(part.reason, hidden ? "" : spaced(reason));
  put(part.reason, "data-stuck", STUCK.has(job.reason) ? "" : null);
  say(part.message, hidden ? "" : (job.message ?? ""));
}
