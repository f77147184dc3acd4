// The page of one job, at the address #/jobs/NAMESPACE/NAME.

import { el } from "./dom.js";
import { ago, gib, percent, spaced, time } from "./words.js";

const PAUSE_MS = 1000; // between a change in the cluster and the next request

export class JobPage {
  /** `get(path)` fetches JSON from the console's server. */
  constructor(node, get) {
    Object.assign(this, { node, get, job: null, last: "", timer: 0 });
  }

  open(namespace, name) {
    this.job = { namespace, name };
    this.last = "";
    this.node.replaceChildren(el("p", { class: "empty" }, "Loading"));
    this.node.hidden = false;
    document.title = `${namespace}/${name} – Partita`;
    this.load();
  }

  close() {
    this.job = null;
    this.node.hidden = true;
    this.node.replaceChildren();
    clearTimeout(this.timer);
    this.timer = 0;
    document.title = "Partita";
  }

  /** Something in the cluster has changed: ask again, at most once a second. */
  changed() {
    if (this.job && !this.timer) this.timer = setTimeout(() => this.load(), PAUSE_MS);
  }

  async load() {
    this.timer = 0;
    const { job } = this;
    let parts;
    try {
      const found = await this.get(`job?${new URLSearchParams(job)}`);
      const text = JSON.stringify(found);
      if (text === this.last) return;
      this.last = text;
      parts = describe(found);
    } catch (error) {
      this.last = "";
      parts = [back(), el("h1", {}, `${job.namespace}/${job.name}`), el("p", { class: "trouble" }, `This job cannot be shown: ${error.message}.`)];
    }
    if (job === this.job) this.node.replaceChildren(...parts);
  }
}

const back = () => el("p", {}, el("a", { href: "#" }, "← All jobs"));

const amount = (bytes) => (bytes === null || bytes === undefined ? "–" : `${gib(bytes)} GiB`);

/** A guarantee, and the ceiling if it is above that. */
const upTo = (bytes, limit) => (limit ? `${amount(bytes)} (up to ${amount(limit)})` : amount(bytes));

function describe(job) {
  const reason = job.reason && job.reason !== job.phase ? [el("strong", {}, `${spaced(job.reason)} `)] : [];
  const state = job.phase === "Queued" && job.position ? `Queued, place ${job.position}` : job.phase;
  return [
    back(),
    el("div", { class: "line" }, el("h1", {}, `${job.namespace}/${job.name}`), el("span", { class: "badge", "data-phase": job.phase }, state)),
    ...(reason.length || job.message ? [el("p", {}, ...reason, job.message)] : []),
    el("div", { class: "pair" }, card("Memory", memory(job)), card("Details", facts(job))),
    card("Logs and details in a terminal", commands(job)),
    card(attemptsTitle(job), attempts(job)),
    card("Events", events(job)),
  ];
}

const card = (title, ...content) => el("section", { class: "card" }, el("h2", {}, title), ...content);

function list(pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

function memory(job) {
  const whole = job.limit ?? job.allocated ?? job.requested.memory ?? 0;
  const used = job.used ?? job.peak;
  const fill = el("i");
  fill.style.width = `${Math.min(100, percent(used ?? 0, whole))}%`;
  const meter = el("div", { class: "meter", role: "img", "aria-label": `${amount(used)} used of ${amount(whole)}` }, fill);
  return el(
    "div",
    {},
    ...(whole ? [meter] : []),
    list([
      ["Requested", job.requested.slice ?? (job.requested.memory === null ? "not given: a whole GPU until its use is known" : upTo(job.requested.memory, job.requested.limit))],
      ["Allocated", job.allocated === null ? "" : upTo(job.allocated, job.limit)],
      ["Used now", job.used === null ? "" : amount(job.used)],
      ["Most used", job.peak === null ? "not measured yet" : amount(job.peak)],
    ]),
  );
}

function facts(job) {
  const at = job.assignment ?? {};
  const { requested } = job;
  return list([
    ["Partition", job.partition],
    ["Submitted", time(job.created)],
    ["Started", time(job.started)],
    ["Ended", time(job.completed)],
    ["Node", at.node],
    ["GPUs", (at.servers ?? []).join(", ")],
    ["GPU UUIDs", (at.gpus ?? []).join(", ")],
    ["Pod", at.pod],
    ["Beside", (at.beside ?? []).join(", ")],
    ["Threads", at.threadPercent ?? requested.threads ? `at most ${at.threadPercent ?? requested.threads} %` : ""],
    ["Number of GPUs", requested.gpus > 1 ? requested.gpus : ""],
    ["Processes", requested.processes > 1 ? requested.processes : ""],
    ["Priority", requested.priority || ""],
  ]);
}

function commands(job) {
  const lines = [`partita logs ${job.name} -n ${job.namespace}`, `partita explain ${job.name} -n ${job.namespace}`];
  const pod = job.assignment?.pod ?? job.attempts.find((attempt) => attempt.pod)?.pod;
  if (pod) lines.push(`kubectl -n ${job.namespace} logs ${pod}`);
  lines.push(`kubectl -n ${job.namespace} describe sharedgpujob ${job.name}`);
  return el("ul", { class: "commands" }, ...lines.map((line) => el("li", {}, el("code", {}, line))));
}

function attemptsTitle(job) {
  const shown = job.attempts.length;
  return shown < job.attemptCount ? `Attempts, the latest ${shown} of ${job.attemptCount}` : "Attempts";
}

function attempts(job) {
  if (!job.attempts.length) return el("p", { class: "empty" }, "It has not been started yet.");
  return el("ol", { class: "attempts" }, ...job.attempts.map((attempt) => {
    const ran = attempt.started && attempt.ended ? `, ran for ${ago(attempt.started, attempt.ended)}` : "";
    const outcome = attempt.outcome ? spaced(attempt.outcome) : attempt.started ? "Running" : "Starting";
    return el(
      "li",
      {},
      el("div", { class: "line" }, el("strong", {}, `Attempt ${attempt.number}: ${outcome}`), el("span", { class: "kind" }, `${time(attempt.started)}${ran}`)),
      ...(attempt.message ? [el("p", { class: "said" }, attempt.message)] : []),
      list([
        ["GPU", [attempt.servers.join(", "), attempt.node].filter(Boolean).join(" on ")],
        ["Memory", `${upTo(attempt.memory, attempt.limit)} allocated, ${attempt.peak === null ? "use not measured" : `at most ${amount(attempt.peak)} used`}`],
        ["Pod", attempt.pod],
        ["Exit code", attempt.exitCode],
        ["Reason", attempt.reason],
      ]),
    );
  }));
}

function events(job) {
  if (job.eventsProblem) return el("p", { class: "empty" }, job.eventsProblem);
  if (!job.events.length) return el("p", { class: "empty" }, "There are none. Kubernetes keeps Events for an hour by default.");
  return el("ul", { class: "events" }, ...job.events.map((event) =>
    el("li", {}, el("strong", { "data-type": event.type }, spaced(event.reason)), el("span", { class: "kind" }, time(Date.parse(event.time) / 1000)), el("p", { class: "said" }, event.message))));
}
