// A partition's jobs and workloads in four lists: waiting, running, finished and failed jobs.

import { keep, kept } from "./address.js";
import { el, Keyed, put, say } from "./dom.js";
import { ago, colour, number, spaced, startsIn } from "./words.js";

const AT_ONCE = 50; // rows shown until more are asked for
const PAUSE_MS = 500; // between a change and the request for a list of ended jobs

const LISTS = {
  waiting: { title: "Waiting", since: "Waits", why: "Why", empty: "Nothing is waiting." },
  running: { title: "Running", since: "Runs for", why: "Where", empty: "Nothing is running." },
  finished: { title: "Finished", since: "Ended", why: "Result", empty: "No job has finished." },
  failed: { title: "Failed", since: "Ended", why: "Why", empty: "No job has failed." },
};

/** The order in which jobs are served; those that can never run are last but for suspended ones. */
function place(a, b) {
  const late = (job) => (job.phase === "Suspended" || job.phase === "Gated" ? 2 : job.stuck ? 1 : 0);
  return (
    late(a) - late(b) || (a.position ?? Infinity) - (b.position ?? Infinity) || (a.since ?? 0) - (b.since ?? 0) ||
    (a.key < b.key ? -1 : 1)
  );
}

const LAST = "\uffff";

/** By what a list may be sorted, and the values; those of other namespaces come last. */
const ORDERS = {
  name: (job) => (job.namespace === null ? LAST : `${job.namespace}/${job.name}`),
  memory: (job) => job.memory ?? Infinity,
  since: (job) => -(job.since ?? -Infinity),
};

/** Compare two jobs by an order: a key of ORDERS, with a minus for the opposite one. */
const by = (order) => (a, b) => {
  const value = ORDERS[order.replace("-", "")];
  if (!value) return place(a, b);
  const [one, other] = order.startsWith("-") ? [value(b), value(a)] : [value(a), value(b)];
  return one < other ? -1 : one > other ? 1 : place(a, b);
};

const total = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);

export class JobLists {
  /** `get(path)` fetches JSON from the console's server. */
  constructor(partition, get) {
    Object.assign(this, { partition, get, list: "waiting", order: "", shown: AT_ONCE, filter: "", wanted: "" });
    this.jobs = { waiting: [], running: [] };
    this.counts = { waiting: 0, running: 0, finished: 0, failed: 0 };
    this.ended = { total: 0, rows: [] };
    this.tabs = Object.fromEntries(Object.keys(LISTS).map((name) => [name, this.tab(name)]));
    this.count = el("span", { class: "count" });
    this.why = el("th", { scope: "col" });
    this.heads = Object.fromEntries(Object.keys(ORDERS).map((name) => [name, this.head(name)]));
    const heads = [el("th", { scope: "col" }, "#"), ...Object.values(this.heads).map((head) => head.node), this.why];
    this.body = el("tbody");
    this.table = el("table", {}, el("thead", {}, el("tr", {}, ...heads)), this.body);
    this.empty = el("p", { class: "empty" });
    this.more = el("button", { type: "button", class: "more" });
    this.more.addEventListener("click", () => {
      this.shown += AT_ONCE;
      this.render();
      this.load();
    });
    this.rows = new Keyed(this.body, makeRow, updateRow);
    const tabs = el("div", { class: "tabs", role: "group", "aria-label": "Jobs and workloads by state" }, ...Object.values(this.tabs));
    this.recall();
    this.node = el("div", { class: "card queue" }, el("div", { class: "line" }, el("h3", {}, "Jobs and workloads"), tabs, this.count), this.table, this.empty, this.more);
  }

  tab(name) {
    const button = el("button", { type: "button", "data-list": name });
    button.addEventListener("click", () => {
      keep(`list.${this.partition}`, name === "waiting" ? "" : name);
      this.open(name, this.order);
    });
    return button;
  }

  /** The head of a column, which sorts by it: once, then in the opposite order, then no longer. */
  head(name) {
    const button = el("button", { type: "button" });
    button.addEventListener("click", () => {
      const order = { [name]: `-${name}`, [`-${name}`]: "" }[this.order] ?? name;
      keep(`sort.${this.partition}`, order);
      this.open(this.list, order);
    });
    return { button, node: el("th", { scope: "col" }, button) };
  }

  open(list, order) {
    Object.assign(this, { list, order, shown: AT_ONCE, ended: { total: 0, rows: [] }, wanted: "" });
    this.render();
    this.load();
  }

  /** Take list and order from the address. */
  recall() {
    const [list, order] = [kept(`list.${this.partition}`), kept(`sort.${this.partition}`)];
    this.list = list in LISTS ? list : "waiting";
    this.order = order.replace("-", "") in ORDERS ? order : "";
  }

  show(jobs, seen, filter) {
    this.jobs = { waiting: [], running: [], ...Object.groupBy(jobs, (job) => job.list) };
    this.counts = { waiting: this.jobs.waiting.length, running: this.jobs.running.length, finished: total(seen.finished), failed: total(seen.failed) };
    this.filter = filter;
    this.render();
    this.load();
  }

  get remote() {
    return this.list === "finished" || this.list === "failed";
  }

  /** Ask for the rows of a list of ended jobs, unless they are those that were asked for last. */
  load() {
    const wanted = `${this.list} ${this.order} ${this.counts[this.list]} ${this.filter} ${this.shown}`;
    if (!this.remote || wanted === this.wanted) return;
    const first = this.wanted === "";
    this.wanted = wanted;
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const rows = [];
      const query = new URLSearchParams({ partition: this.partition, outcome: this.list, text: this.filter, order: this.order });
      try {
        let found;
        do {
          query.set("offset", rows.length);
          found = await this.get(`ended?${query}`);
          rows.push(...found.rows);
        } while (rows.length < Math.min(this.shown, found.total) && found.rows.length);
        if (wanted === this.wanted) this.ended = { total: found.total, rows: rows.map((row) => ({ ...row, key: `${row.namespace}/${row.name}` })) };
      } catch (error) {
        if (wanted === this.wanted) this.ended = { total: 0, rows: [], problem: `The list cannot be loaded: ${error.message}.` };
      }
      this.render();
    }, first ? 0 : PAUSE_MS);
  }

  render() {
    const list = LISTS[this.list];
    for (const [name, button] of Object.entries(this.tabs)) {
      say(button, `${LISTS[name].title} ${number(this.counts[name])}`);
      put(button, "aria-pressed", String(name === this.list));
    }
    const found = this.remote ? this.ended.rows : this.jobs[this.list].filter((job) => matches(job, this.filter)).sort(by(this.order));
    const count = this.remote ? this.ended.total : found.length;
    const rows = found.slice(0, this.shown);
    for (const [name, head] of Object.entries(this.heads)) {
      say(head.button, { name: "Name", memory: "Memory", since: list.since }[name]);
      put(head.node, "aria-sort", { [name]: "ascending", [`-${name}`]: "descending" }[this.order] ?? null);
    }
    say(this.why, list.why);
    put(this.table, "data-list", this.list);
    this.rows.show(rows.map((job) => ({ ...job, list: this.list })), (job) => job.key);
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    say(this.empty, this.ended.problem || (this.counts[this.list] && this.filter ? "Nothing in this list matches the filter." : list.empty));
    say(this.count, this.filter ? `${count} of ${this.counts[this.list]}` : count > rows.length ? `${rows.length} of ${number(count)} shown` : "");
    this.more.hidden = count <= rows.length;
    say(this.more, `Show more (${number(count - rows.length)} left)`);
  }
}

/** Whether a job or slice is one that is searched for; those of other namespaces have no names. */
export function matches(job, filter) {
  if (!filter) return true;
  if (job.namespace === null) return false;
  return `${job.namespace}/${job.name} ${job.workload ?? ""} ${job.reason ?? ""} ${job.message ?? ""}`.toLowerCase().includes(filter);
}

/** The address of the page of a job or workload. */
export const addressOf = (job) => `#/${job.workload ? "workloads" : "jobs"}/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`;

function makeRow() {
  const part = { place: el("td", { class: "place" }), name: el("a"), space: el("span", { class: "space" }), of: el("span", { class: "of" }) };
  part.asks = el("td", { class: "asks" });
  part.since = el("td", { class: "since" });
  part.reason = el("strong", { class: "reason" });
  part.message = el("span", { class: "message" });
  part.node = el(
    "tr",
    {},
    part.place,
    el("td", { class: "job" }, part.space, part.name, part.of),
    part.asks,
    part.since,
    el("td", { class: "why" }, part.reason, part.message),
  );
  return part;
}

function updateRow(part, job) {
  const hidden = job.namespace === null;
  const ended = job.list === "finished" || job.list === "failed";
  put(part.node, "data-hidden", hidden ? "" : null);
  say(part.place, job.stuck ? "–" : (job.position ?? ""));
  say(part.name, hidden ? "another namespace" : job.name);
  put(part.name, "href", hidden ? null : addressOf(job));
  say(part.space, hidden ? "" : job.namespace);
  put(part.space, "data-colour", colour(job.namespace));
  const idle = job.idleSince ? `idle for ${ago(job.idleSince)}` : "";
  const starts = job.starts && startsIn(job.starts);
  say(part.of, hidden ? "" : [job.workload, job.lasting ? "service" : "", idle, starts && `starts ${starts}`].filter(Boolean).join(" · "));
  put(part.of, "data-idle", idle ? "" : null);
  say(part.asks, job.asks);
  say(part.since, hidden || !job.since ? "" : ended ? `${ago(job.since)} ago` : ago(job.since));
  const reason = job.reason || (job.phase === "Suspended" ? "Suspended" : job.phase === "Assigned" ? "Starting" : job.phase === "Ending" ? "Ending" : "");
  say(part.reason, hidden ? "" : spaced(reason));
  put(part.reason, "data-stuck", job.stuck || job.list === "failed" ? "" : null);
  const message = job.message || (job.attempts > 1 ? `after ${job.attempts} attempts` : "");
  say(part.message, hidden ? "" : message);
}
