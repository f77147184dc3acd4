// What the page of one job or workload shows. A workload is a Pod with a claim of a slice.

import { el } from "./dom.js";
import { card, events, list, terminal, upTo } from "./parts.js";
import { ago, amount, percent, spaced, startsIn, time } from "./words.js";

const STATES = { Gated: "Not admitted yet", Queued: "Waits", Assigned: "Starts", Running: "Runs", Ending: "Ends" };

/** `parts` are cards that stay while the subject changes: use, answers, log, changes. */
export function describe(subject, parts, addressOf) {
  const state = subject.claim ? STATES[subject.phase] : subject.phase;
  const marks = [
    el("span", { class: "badge", "data-phase": subject.phase }, subject.phase === "Queued" && subject.position ? `${state}, place ${subject.position}` : state),
    ...(subject.lasting ? [el("span", { class: "badge", "data-mark": "service" }, "Service")] : []),
    ...(subject.idleSince ? [el("span", { class: "badge", "data-mark": "idle" }, `Idle for ${ago(subject.idleSince)}`)] : []),
  ];
  const reason = subject.reason && subject.reason !== subject.phase ? [el("strong", {}, `${spaced(subject.reason)} `)] : [];
  return [
    el("div", { class: "line" }, el("h1", {}, `${subject.namespace}/${subject.name}`), ...marks),
    ...(reason.length || subject.message ? [el("p", {}, ...reason, subject.message)] : []),
    ...(subject.advice ? [el("p", { class: "advice" }, el("strong", {}, "To change: "), subject.advice)] : []),
    el("div", { class: "pair" }, card("Memory", memory(subject)), card("Details", facts(subject))),
    ...(subject.claim ? [card("What it asks for", settings(subject))] : []),
    ...((subject.server && !subject.completed) || subject.slowed ? [card("Neighbours", neighbours(subject, addressOf))] : []),
    ...(subject.use.length ? [parts.use] : []),
    ...(subject.changes.length ? [parts.changes] : []),
    ...(subject.pod || subject.attempts?.some((attempt) => attempt.pod) ? [parts.log] : []),
    card("In a terminal", commands(subject)),
    ...(subject.claim ? [] : [card(attemptsTitle(subject), attempts(subject))]),
    ...(subject.completed ? [] : [parts.answers]),
    card("Events", events(subject)),
  ];
}

function memory(subject) {
  const { requested, peak } = subject;
  const [allocated, limit] = subject.server ? [subject.memory, subject.memoryLimit] : [null, null];
  const whole = limit ?? allocated ?? requested?.memory ?? 0;
  const used = subject.used ?? peak;
  const fill = el("i");
  fill.style.width = `${Math.min(100, percent(used ?? 0, whole))}%`;
  const meter = el("div", { class: "meter", role: "img", "aria-label": `${amount(used)} used of ${amount(whole)}` }, fill);
  return el(
    "div",
    {},
    ...(whole && (allocated !== null || !subject.claim) ? [meter] : []),
    list([
      ["Requested", requested && (requested.slice || (requested.memory === null ? "not given: a whole GPU until its use is known" : upTo(requested.memory, requested.limit)))],
      ["Allocated", allocated === null ? "" : upTo(allocated, limit)],
      ["Used now", subject.used === null ? "" : amount(subject.used)],
      ["Most used", peak !== null ? amount(peak) : subject.claim ? "" : "not measured yet"],
      ["Needs", subject.needs],
      ["Kernels run", subject.utilization === null ? "" : `${subject.utilization} % of the time`],
      ["Limited by", subject.enforcement === "Driver" ? "the driver" : subject.enforcement && "MPS and the framework"],
    ]),
  );
}

function starts({ expected }) {
  const when = expected && startsIn(expected);
  if (!when) return expected ? `nothing can be said: ${expected.reason}` : "";
  return expected.latest ? `${when}, with ${Math.round(100 * expected.probability)} % probability` : `${when}: ${expected.reason}`;
}

function facts(subject) {
  const { claim } = subject;
  return list([
    ["Partition", subject.exists ? subject.partition : `${subject.partition} (does not exist)`],
    ["Application", subject.application],
    [claim ? "Created" : "Submitted", time(subject.created)],
    ["Starts", starts(subject)],
    ["Started", time(subject.started)],
    ["Ended", time(subject.completed)],
    ["Allocated", claim ? time(subject.since) : ""],
    ["Node", subject.node],
    [claim ? "GPU" : "GPUs", subject.server],
    ["GPU UUIDs", subject.uuids?.join(", ")],
    ["Pod", subject.pod || (claim ? "none" : "")],
    ["Claim", claim],
    ["Threads", subject.threads ? `at most ${subject.threads} %` : ""],
    ["Number of GPUs", !claim && subject.gpus > 1 ? subject.gpus : ""],
    ["Processes", subject.processes > 1 ? subject.processes : ""],
    ["Priority", (!claim && subject.priority) || ""],
  ]);
}

function neighbours({ server, completed, beside, slowed }, addressOf) {
  const names = (beside ?? []).map((name) => {
    const address = addressOf(name);
    return el("li", {}, address ? el("a", { href: address }, name) : name);
  });
  const none = beside ? "No other job or workload." : "Not known: you may not read the GPUServer.";
  const list = names.length ? el("ul", { class: "beside" }, ...names) : el("p", { class: "empty" }, none);
  return el("div", {}, ...(server && !completed ? [list] : []), ...(slowed ? [el("p", { class: "said" }, slowed)] : []));
}

function settings({ settings }) {
  if (!settings.length) return el("p", { class: "empty" }, "Its claim is deleted.");
  return el("dl", { class: "facts" }, ...settings.flatMap(({ name, value, source }) =>
    [el("dt", {}, name), el("dd", {}, value, el("span", { class: "source" }, source))]));
}

function commands({ namespace, name, claim, attempts = [], changes, ...subject }) {
  const pod = subject.pod || attempts.find((attempt) => attempt.pod)?.pod;
  const logs = pod ? [`kubectl -n ${namespace} logs ${pod}`] : [];
  if (!claim) return terminal([`partita logs ${name} -n ${namespace}`, `partita explain ${name} -n ${namespace}`, ...changes.map((change) => `partita ${change} ${name} -n ${namespace}`), ...logs, `kubectl -n ${namespace} describe sharedgpujob ${name}`]);
  const ofPod = pod ? [`partita explain pod/${pod} -n ${namespace}`, ...logs, `kubectl -n ${namespace} describe pod ${pod}`] : [];
  return terminal([...ofPod, `kubectl -n ${namespace} describe resourceclaim ${claim}`]);
}

function attemptsTitle(job) {
  const shown = job.attempts.length;
  return shown < job.attemptCount ? `Attempts, the latest ${shown} of ${job.attemptCount}` : "Attempts";
}

function attempts(job) {
  if (!job.attempts.length) return el("p", { class: "empty" }, "It has not been started yet.");
  return el("ol", { class: "attempts" }, ...job.attempts.map((attempt) => {
    const ran = attempt.startTime && attempt.endTime ? `, ran for ${ago(attempt.startTime, attempt.endTime)}` : "";
    const outcome = attempt.outcome ? spaced(attempt.outcome) : attempt.startTime ? "Running" : "Starting";
    const peak = attempt.outcome ? attempt.peakMemory : job.measured;
    return el(
      "li",
      {},
      el("div", { class: "line" }, el("strong", {}, `Attempt ${attempt.number}: ${outcome}`), el("span", { class: "kind" }, `${time(attempt.startTime)}${ran}`)),
      ...(attempt.message ? [el("p", { class: "said" }, attempt.message)] : []),
      list([
        ["GPU", [attempt.servers.join(", "), attempt.node].filter(Boolean).join(" on ")],
        ["Memory", `${upTo(attempt.memory, attempt.memoryLimit)} allocated, ${peak === null ? "use not measured" : `at most ${amount(peak)} used`}`],
        ["Pod", attempt.pod],
        ["Exit code", attempt.exitCode],
        ["Reason", attempt.reason],
      ]),
    );
  }));
}
