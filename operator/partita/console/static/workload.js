// What the page of one workload shows: a Pod with a claim of a slice.

import { el } from "./dom.js";
import { amount, card, events, list, slower, terminal, upTo } from "./parts.js";
import { ago, percent, spaced, time } from "./words.js";

const STATES = { Gated: "Not admitted yet", Queued: "Waits", Assigned: "Starts", Running: "Runs", Ending: "Ends" };

export function describeWorkload(workload, use, answers) {
  const state = workload.phase === "Queued" && workload.position ? `Waits, place ${workload.position}` : STATES[workload.phase];
  const marks = [
    ...(workload.lasting ? [el("span", { class: "badge", "data-mark": "service" }, "Service")] : []),
    ...(workload.idleSince ? [el("span", { class: "badge", "data-mark": "idle" }, `Idle for ${ago(workload.idleSince)}`)] : []),
  ];
  const reason = workload.reason ? [el("strong", {}, `${spaced(workload.reason)} `)] : [];
  return [
    el("div", { class: "line" }, el("h1", {}, `${workload.namespace}/${workload.name}`), el("span", { class: "badge", "data-phase": workload.phase }, state), ...marks),
    ...(reason.length || workload.message ? [el("p", {}, ...reason, workload.message)] : []),
    ...(workload.advice ? [el("p", { class: "advice" }, el("strong", {}, "To change: "), workload.advice)] : []),
    el("div", { class: "pair" }, card("Memory", memory(workload)), card("Details", facts(workload))),
    card("What it asks for", settings(workload)),
    ...(workload.use.length ? [card("Use of the slice", use)] : []),
    card("What each policy would do now", answers),
    card("Logs and details in a terminal", commands(workload)),
    card("Events", events(workload)),
  ];
}

function memory(workload) {
  const whole = workload.limit ?? workload.memory ?? 0;
  const fill = el("i");
  fill.style.width = `${Math.min(100, percent(workload.used ?? 0, whole))}%`;
  const meter = el("div", { class: "meter", role: "img", "aria-label": `${amount(workload.used)} used of ${amount(whole)}` }, fill);
  const wanted = workload.slice || (workload.memory === null ? "not given: a whole GPU until its use is known" : upTo(workload.memory, workload.limit));
  return el(
    "div",
    {},
    ...(workload.server && whole ? [meter] : []),
    list([
      [workload.server ? "Allocated" : "Requested", workload.server ? upTo(workload.memory, workload.limit) : wanted],
      ["Used now", workload.used === null ? "" : amount(workload.used)],
      ["Most used", workload.peak === null ? "" : amount(workload.peak)],
      ["Kernels run", workload.utilization === null ? "" : `${workload.utilization} % of the time`],
      ["Limited by", workload.enforcement === "Driver" ? "the driver" : workload.enforcement && "MPS and the framework"],
    ]),
  );
}

function facts(workload) {
  return list([
    ["Partition", workload.exists ? workload.partition : `${workload.partition} (does not exist)`],
    ["Application", workload.application],
    ["Created", time(workload.created)],
    ["Allocated", time(workload.allocated)],
    ["Node", workload.node],
    ["GPU", workload.server],
    ["Threads", workload.threads ? `at most ${workload.threads} %` : ""],
    ["Beside", workload.server ? workload.beside.join(", ") || "nothing else" : ""],
    ["Slowdown", slower(workload.slowdown)],
    ["Pod", workload.pod || "none"],
    ["Claim", workload.claim],
  ]);
}

function settings(workload) {
  if (!workload.settings.length) return el("p", { class: "empty" }, "Its claim is deleted.");
  return el("dl", { class: "facts" }, ...workload.settings.flatMap(([name, value, source]) =>
    [el("dt", {}, name), el("dd", {}, value, el("span", { class: "source" }, source))]));
}

function commands(workload) {
  const { namespace, pod, claim } = workload;
  const lines = pod ? [`partita explain pod/${pod} -n ${namespace}`, `kubectl -n ${namespace} logs ${pod}`, `kubectl -n ${namespace} describe pod ${pod}`] : [];
  return terminal([...lines, `kubectl -n ${namespace} describe resourceclaim ${claim}`]);
}
