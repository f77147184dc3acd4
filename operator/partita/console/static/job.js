// What the page of one job shows.

import { el } from "./dom.js";
import { amount, card, events, list, terminal, upTo } from "./parts.js";
import { ago, percent, spaced, time } from "./words.js";

export function describeJob(job, use, answers) {
  const reason = job.reason && job.reason !== job.phase ? [el("strong", {}, `${spaced(job.reason)} `)] : [];
  const state = job.phase === "Queued" && job.position ? `Queued, place ${job.position}` : job.phase;
  return [
    el("div", { class: "line" }, el("h1", {}, `${job.namespace}/${job.name}`), el("span", { class: "badge", "data-phase": job.phase }, state)),
    ...(reason.length || job.message ? [el("p", {}, ...reason, job.message)] : []),
    el("div", { class: "pair" }, card("Memory", memory(job)), card("Details", facts(job))),
    ...(job.use.length ? [card("Use of the slice", use)] : []),
    card("Logs and details in a terminal", commands(job)),
    card(attemptsTitle(job), attempts(job)),
    ...(job.completed ? [] : [card("What each policy would do now", answers)]),
    card("Events", events(job)),
  ];
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
  return terminal(lines);
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
