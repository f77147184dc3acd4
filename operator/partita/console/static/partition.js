// One partition: figures, GPUs, namespaces, the last hours, policies and jobs.

import { el, Keyed, put, say, style } from "./dom.js";
import { makeGpu, updateGpu } from "./gpu.js";
import { HistoryChart } from "./history.js";
import { JobLists } from "./jobs.js";
import { amount, colour, many, number, percent, portion } from "./words.js";

export function makePartition(entity, get) {
  const id = `partition-${entity.name}`;
  const part = { title: el("h2", { id }), kind: el("span", { class: "kind" }), trouble: el("p", { class: "trouble", role: "status" }) };
  part.tiles = Object.fromEntries(["gpus", "allocated", "used", "running", "waiting"].map((name) => [name, tile(name)]));
  part.gpus = el("ul", { class: "gpus" });
  part.gpuParts = new Keyed(part.gpus, makeGpu, updateGpu);
  part.policies = el("ul", { class: "policies" });
  part.policyParts = new Keyed(part.policies, makePolicy, updatePolicy);
  part.legend = el("ul", { class: "legend", "aria-label": "Legend" });
  part.legendParts = new Keyed(part.legend, makeSign, updateSign);
  part.namespaces = el("ul", { class: "namespaces" });
  part.namespaceParts = new Keyed(part.namespaces, makeNamespace, updateNamespace);
  part.namespaceCard = el("div", { class: "card" }, el("div", { class: "line" }, el("h3", {}, "Namespaces")), part.namespaces);
  part.jobs = new JobLists(entity.name, get);
  part.timeline = new HistoryChart();
  part.lower = el(
    "div",
    { class: "lower" },
    part.timeline.node,
    el("div", { class: "card" }, el("div", { class: "line" }, el("h3", {}, "Policies")), part.policies),
  );
  part.node = el(
    "section",
    { "aria-labelledby": id },
    el("div", { class: "head" }, el("div", { class: "line" }, part.title, part.kind), el("dl", { class: "tiles" }, ...Object.values(part.tiles).map((t) => t.node))),
    part.trouble,
    part.gpus,
    part.legend,
    part.jobs.node,
    part.namespaceCard,
    part.lower,
  );
  return part;
}

export function updatePartition(part, seen, gpus, changed) {
  say(part.title, seen.name);
  say(part.kind, seen.exists ? seen.mode : "jobs or claims name it, but it does not exist");
  say(part.trouble, seen.trouble);
  part.trouble.hidden = !seen.trouble;
  part.lower.hidden = !seen.exists;
  part.tiles.gpus.show(`${gpus.filter((gpu) => gpu.state === "Ready").length} / ${seen.wanted}`, "GPUs ready");
  part.tiles.allocated.show(`${percent(seen.allocated, seen.allocatable)} %`, `allocated of ${amount(seen.allocatable)}`);
  part.tiles.used.show(seen.used === null ? "–" : `${percent(seen.used, seen.allocatable)} %`, "measured use");
  part.tiles.running.show(number(seen.running), "running");
  part.tiles.waiting.show(number(seen.waiting), seen.suspended ? `waiting, ${seen.suspended} held back` : "waiting");
  part.gpuParts.show(gpus, (gpu) => gpu.key, changed);
  part.legendParts.show(signs(gpus), (sign) => sign.key);
  part.namespaceCard.hidden = seen.namespaces.length === 0;
  part.namespaceParts.show(seen.namespaces, (one) => one.namespace);
  const policy = seen.policy;
  if (policy) {
    const shadows = seen.shadow.map((shadow) => ({ ...shadow, role: "shadow" }));
    part.policyParts.show([{ ...policy, name: policy.active, role: "active" }, ...shadows], (p) => `${p.role}/${p.name}`);
  }
}

function tile(name) {
  const value = el("dd");
  const label = el("dt");
  const show = (text, under) => (say(value, text), say(label, under));
  return { node: el("div", { class: "tile", "data-tile": name }, value, label), show };
}

/** What the colours and bands of the GPUs mean. */
function signs(gpus) {
  const slices = gpus.flatMap((gpu) => gpu.slices);
  if (slices.length === 0) return [];
  const spaces = [...new Set(slices.map((slice) => slice.namespace))].filter((name) => name !== null).sort();
  const found = spaces.map((name) => ({ key: `namespace ${name}`, text: name, colour: colour(name) }));
  if (slices.some((slice) => slice.namespace === null)) found.push({ key: "other", text: "another namespace", colour: "other" });
  return [
    ...found,
    { key: "width", text: "width: memory allocated to a job or workload", sign: "width" },
    { key: "used", text: "lower band: the part of it that is used", sign: "used" },
    { key: "over", text: "more used than allocated", sign: "over" },
    ...(slices.some((slice) => slice.lasting) ? [{ key: "lasting", text: "service: never ends by itself", sign: "lasting" }] : []),
    ...(slices.some((slice) => slice.idleSince) ? [{ key: "idle", text: "idle: no kernel runs", sign: "idle" }] : []),
  ];
}

function makeSign() {
  const part = { swatch: el("i", { class: "swatch" }), text: el("span") };
  part.node = el("li", {}, part.swatch, part.text);
  return part;
}

function updateSign(part, sign) {
  put(part.swatch, "data-colour", sign.colour ?? null);
  put(part.swatch, "data-sign", sign.sign ?? null);
  say(part.text, sign.text);
}

/** The resources that a namespace may have its largest share of, in words. */
const RESOURCES = { memory: "the memory", places: "the places", clients: "the MPS clients" };

function makeNamespace() {
  const part = { name: el("strong"), share: el("p"), memory: el("p"), jobs: el("p"), fill: el("i") };
  part.meter = el("div", { class: "meter" }, part.fill);
  part.node = el("li", {}, part.name, part.meter, part.share, part.memory, part.jobs);
  return part;
}

function updateNamespace(part, one) {
  const limited = [];
  if (one.memory !== null) limited.push(percent(one.usedMemory, one.memory));
  if (one.jobs !== null) limited.push(percent(one.usedJobs, one.jobs));
  const full = Math.max(0, ...limited) >= 100;
  const share = Math.round(100 * one.share);
  say(part.name, one.namespace);
  style(part.fill, "width", `${Math.min(100, share)}%`);
  put(part.meter, "data-full", full ? "" : null);
  say(part.share, `has ${share} % of ${RESOURCES[one.resource]}`);
  say(part.memory, one.memory === null ? `${amount(one.usedMemory)} allocated, no limit` : `${portion(one.usedMemory, one.memory)} of its quota`);
  say(part.jobs, one.jobs === null ? `${many(one.usedJobs, "job")}, no limit` : `${one.usedJobs} of ${many(one.jobs, "job")}`);
}

function makePolicy(policy) {
  const part = { name: el("strong"), role: el("span", { class: "role", "data-role": policy.role }), figures: el("p") };
  part.fill = el("i");
  part.meter = el("div", { class: "meter" }, part.fill);
  part.message = el("p", { class: "refused" });
  part.node = el("li", {}, el("div", { class: "line" }, part.name, part.role), part.meter, part.figures, part.message);
  return part;
}

function updatePolicy(part, policy) {
  const active = policy.role === "active";
  say(part.name, policy.name);
  say(part.role, active ? "active" : "shadow");
  part.meter.hidden = active;
  if (active) {
    const figures = [`objective ${policy.objective}`, `decided ${many(policy.cycles, "cycle")}`];
    if (policy.fallbacks) figures.push(many(policy.fallbacks, "fallback"));
    if (policy.rejected) figures.push(`${many(policy.rejected, "placement")} refused by the guard`);
    if (policy.name !== policy.wanted) figures.push(`instead of ${policy.wanted}`);
    say(part.figures, figures.join(" · "));
    say(part.message, policy.healthy ? "" : policy.message || "it cannot decide, so its fallback decides");
    return;
  }
  const share = percent(policy.agreed, policy.cycles);
  style(part.fill, "width", `${share}%`);
  put(part.meter, "title", `${share} %`);
  const failures = policy.failures ? ` · ${many(policy.failures, "failure")}` : "";
  say(part.figures, policy.cycles ? `would have decided the same in ${share} % of ${many(policy.cycles, "cycle")}${failures}` : `has not decided yet${failures}`);
  say(part.message, policy.message);
}
