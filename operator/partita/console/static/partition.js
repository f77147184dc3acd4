// One partition: figures, GPUs, the last hours, policies and the queue.

import { el, Keyed, put, say, style } from "./dom.js";
import { makeGpu, updateGpu } from "./gpu.js";
import { Queue } from "./queue.js";
import { Timeline } from "./timeline.js";
import { gib, many, number, percent } from "./words.js";

export function makePartition(entity) {
  const id = `partition-${entity.name}`;
  const part = { title: el("h2", { id }), kind: el("span", { class: "kind" }), trouble: el("p", { class: "trouble", role: "status" }) };
  part.tiles = Object.fromEntries(["gpus", "allocated", "used", "running", "waiting"].map((name) => [name, tile(name)]));
  part.gpus = el("ul", { class: "gpus" });
  part.gpuParts = new Keyed(part.gpus, makeGpu, updateGpu);
  part.policies = el("ul", { class: "policies" });
  part.policyParts = new Keyed(part.policies, makePolicy, updatePolicy);
  part.queue = new Queue();
  part.timeline = new Timeline();
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
    part.lower,
    part.queue.node,
  );
  return part;
}

export function updatePartition(part, seen, gpus, changed) {
  say(part.title, seen.name);
  say(part.kind, seen.exists ? seen.mode : "jobs ask for it, and it does not exist");
  say(part.trouble, seen.trouble);
  part.trouble.hidden = !seen.trouble;
  part.lower.hidden = !seen.exists;
  part.tiles.gpus.show(`${gpus.filter((gpu) => gpu.state === "Ready").length} / ${seen.wanted}`, "GPUs ready");
  part.tiles.allocated.show(`${percent(seen.allocated, seen.allocatable)} %`, `allocated of ${gib(seen.allocatable)} GiB`);
  part.tiles.used.show(`${percent(seen.used, seen.allocatable)} %`, "measured use");
  part.tiles.running.show(number(seen.running), "running");
  part.tiles.waiting.show(number(seen.waiting), seen.suspended ? `waiting, ${seen.suspended} suspended` : "waiting");
  part.gpuParts.show(gpus, (gpu) => gpu.key, changed);
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
    const figures = [`decided ${many(policy.cycles, "cycle")}`];
    if (policy.fallbacks) figures.push(many(policy.fallbacks, "fallback"));
    if (policy.rejected) figures.push(`${many(policy.rejected, "placement")} refused by the guard`);
    if (policy.name !== policy.wanted) figures.push(`instead of ${policy.wanted}`);
    say(part.figures, figures.join(" · "));
    say(part.message, policy.healthy ? "" : policy.message || "it does not decide: its fallback does");
    return;
  }
  const share = percent(policy.agreed, policy.cycles);
  style(part.fill, "width", `${share}%`);
  put(part.meter, "title", `${share} %`);
  const failures = policy.failures ? ` · ${many(policy.failures, "failure")}` : "";
  say(part.figures, policy.cycles ? `would have decided the same in ${share} % of ${many(policy.cycles, "cycle")}${failures}` : `has not decided yet${failures}`);
  say(part.message, policy.message);
}
