// One GPU: its state, and a bar of what may be allocated, cut into the slices of jobs and workloads.

import { el, Keyed, put, say, style } from "./dom.js";
import { addressOf } from "./jobs.js";
import { ago, amount, colour, many, percent, portion } from "./words.js";

const OTHER = "another namespace";

export function makeGpu(gpu) {
  const part = { name: el("h4"), state: el("span", { class: "badge" }), mps: el("span", { class: "mps" }) };
  part.where = el("p", { class: "where" });
  part.bar = el("div", { class: "bar", role: "group" });
  part.free = el("span", { class: "free" });
  part.sum = el("p", { class: "sum" });
  part.names = el("ul", { class: "names" });
  part.nameParts = new Keyed(part.names, makeName, updateName);
  part.message = el("p", { class: "where" });
  part.unknown = el("p", { class: "unknown", role: "status" });
  part.node = el(
    "li",
    { class: "gpu", "data-gpu": gpu.name },
    el("div", { class: "line" }, part.name, part.state, part.mps),
    part.where,
    part.message,
    part.bar,
    part.names,
    part.sum,
    part.unknown,
  );
  part.slices = new Keyed(part.bar, makeSlice, updateSlice);
  part.bar.addEventListener("keydown", (event) => move(event, part.bar));
  return part;
}

export function updateGpu(part, gpu) {
  say(part.name, gpu.name);
  say(part.state, gpu.state);
  put(part.state, "data-state", gpu.state);
  say(part.mps, gpu.mps && `MPS ${gpu.mps.toLowerCase()} · ${many(gpu.clients, "client")}`);
  put(part.mps, "data-state", gpu.mps);
  const limits = gpu.enforcement === "Driver" && "limits of the driver";
  say(part.where, [gpu.product, gpu.node, limits].filter(Boolean).join(" · ") || "not reported yet");
  say(part.message, gpu.message);
  const unknown = `Unknown processes: ${gpu.unknown}, ${amount(gpu.unknownMemory)}`;
  say(part.unknown, gpu.unknown ? unknown : "");
  const free = Math.max(0, gpu.allocatable - gpu.allocated);
  put(part.bar, "aria-label", `Slices of ${gpu.name}, ${amount(free)} free; arrow keys move between them`);
  const whole = Math.max(gpu.allocatable, gpu.allocated, 1);
  part.slices.show(
    gpu.slices.map((slice) => ({ ...slice, share: slice.memory / whole })),
    (slice) => slice.id,
  );
  part.nameParts.show(gpu.slices, (slice) => slice.id);
  say(part.free, percent(free, whole) >= 12 ? `${amount(free)} free` : "");
  style(part.free, "flex-grow", String(free / whole));
  if (part.bar.lastChild !== part.free) part.bar.append(part.free);
  if (!part.bar.querySelector('[tabindex="0"]')) part.bar.querySelector(".slice")?.setAttribute("tabindex", "0");
  const use = gpu.used === null ? "" : ` · ${amount(gpu.used)} used · ${gpu.utilization} % busy`;
  say(part.sum, `${portion(gpu.allocated, gpu.allocatable)} allocated${use}`);
}

function makeSlice() {
  const part = { label: el("span", { class: "label" }), fill: el("i"), used: el("span", { class: "used" }) };
  part.used.append(part.fill);
  part.node = el("button", { class: "slice", type: "button", tabindex: "-1" }, part.label, part.used);
  part.node.addEventListener("click", (event) => {
    if (part.address && event.pointerType !== "touch") location.hash = part.address;
  });
  return part;
}

function updateSlice(part, slice) {
  const hidden = slice.namespace === null;
  part.address = hidden ? "" : addressOf(slice);
  const over = !hidden && slice.used > (slice.limit ?? slice.memory);
  const borrows = !hidden && !over && slice.used > slice.memory;
  style(part.node, "flex-grow", String(slice.share));
  put(part.node, "data-colour", colour(slice.namespace));
  put(part.node, "data-over", over ? "" : null);
  put(part.node, "data-lasting", slice.lasting ? "" : null);
  put(part.node, "data-idle", slice.idleSince ? "" : null);
  say(part.label, hidden ? OTHER : slice.name);
  style(part.fill, "width", hidden ? "0" : `${Math.min(100, percent(slice.used, slice.memory))}%`);
  const detail = hidden
    ? [OTHER, `${amount(slice.memory)} allocated`]
    : [
        `${slice.namespace}/${slice.name}`,
        `${amount(slice.memory)} allocated${slice.limit ? `, may use ${amount(slice.limit)}` : ""}`,
        ...(slice.used === null ? [] : [`${amount(slice.used)} used${over ? ", more than allocated" : borrows ? ", more than guaranteed" : ""}`]),
        `at most ${slice.threads} % of the threads`,
        ...(slice.attempt > 1 ? [`attempt ${slice.attempt}`] : []),
        ...(slice.workload ? [`${slice.lasting ? "service of" : "of"} ${slice.workload}`] : []),
        ...(slice.idleSince ? [`idle: no kernel has run for ${ago(slice.idleSince)}`] : []),
      ];
  put(part.node, "aria-label", detail.join(", "));
}

// A narrow bar cuts names off: on a small screen they are listed below it.
function makeName() {
  const part = { swatch: el("i", { class: "swatch" }), name: el("a"), memory: el("span") };
  part.node = el("li", {}, part.swatch, part.name, part.memory);
  return part;
}

function updateName(part, slice) {
  const hidden = slice.namespace === null;
  put(part.swatch, "data-colour", colour(slice.namespace));
  const marks = [slice.lasting ? "service" : "", slice.idleSince ? "idle" : ""].filter(Boolean).join(", ");
  say(part.name, hidden ? OTHER : marks ? `${slice.name} (${marks})` : slice.name);
  put(part.name, "href", hidden ? null : addressOf(slice));
  say(part.memory, amount(slice.memory));
}

function move(event, bar) {
  const slices = [...bar.querySelectorAll(".slice")];
  const at = slices.indexOf(event.target);
  const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: slices.length - 1 };
  const to = slices[steps[event.key]];
  if (at < 0 || !to) return;
  event.preventDefault();
  slices[at].setAttribute("tabindex", "-1");
  to.setAttribute("tabindex", "0");
  to.focus();
}
