// The page: signs in, follows the cluster, and shows what has changed.

import { el, Keyed, put, say } from "./dom.js";
import { makePartition, updatePartition } from "./partition.js";
import { matches } from "./queue.js";
import { follow, Refused } from "./stream.js";
import { ago } from "./words.js";

const byId = (id) => document.getElementById(id);
const [board, detail, filter, form, jump, leave, live, notice] = ["board", "detail", "filter", "sign-in", "jump", "leave", "live", "notice"].map(byId);

const MEASURED = 500; // updates whose times are kept, for those who look (performance.getEntries)

let scene = new Map();
let updates = 0;
let following = null;
let token = "";

const sections = new Keyed(board, makePartition, () => {});
const links = new Keyed(jump, () => ({ node: el("a") }), (part, seen) => {
  say(part.node, seen.name);
  put(part.node, "href", `#partition-${seen.name}`);
});
const byName = new Intl.Collator("en", { numeric: true });

/** Take a patch into the scene and show it. */
function apply(text) {
  const start = performance.now();
  const patch = JSON.parse(text);
  const changed = new Set(Object.keys(patch.set ?? {}));
  if (patch.reset) scene = new Map();
  for (const [key, fields] of Object.entries(patch.set ?? {})) {
    const entity = { ...scene.get(key), ...fields, key };
    scene.set(key, entity);
    changed.add(entity.partition && `partition/${entity.partition}`);
  }
  for (const key of patch.gone ?? []) {
    const entity = scene.get(key);
    scene.delete(key);
    changed.add(entity?.partition && `partition/${entity.partition}`);
  }
  render(patch.reset ? null : changed);
  performance.measure("update", { start, end: performance.now() });
  if (++updates % MEASURED === 0) performance.clearMeasures("update");
}

/** Show the scene; `changed` has the keys that are to be looked at, null for all. */
function render(changed) {
  const parts = { partition: [], gpu: [], job: [], feed: [] };
  for (const entity of scene.values()) parts[entity.kind]?.push(entity);
  const partitions = parts.partition.sort((a, b) => byName.compare(a.name, b.name));
  const gpus = Map.groupBy(parts.gpu, (gpu) => gpu.partition);
  const jobs = Map.groupBy(parts.job, (job) => job.partition);
  const looked = filter.value.trim().toLowerCase();
  sections.show(partitions, (seen) => seen.name);
  links.show(partitions.length > 1 ? partitions : [], (seen) => seen.name);
  for (const seen of partitions) {
    if (changed !== null && !changed.has(seen.key)) continue;
    const part = sections.parts.get(seen.name);
    const own = (gpus.get(seen.name) ?? []).sort((a, b) => byName.compare(a.name, b.name));
    updatePartition(part, seen, own, changed);
    part.queue.show(jobs.get(seen.name) ?? [], looked);
  }
  if (looked || board.hasAttribute("data-filter")) dim(looked, parts.gpu);
  const stale = parts.feed[0]?.staleSince;
  notice.hidden = !stale;
  if (stale) say(notice, `The API server has not answered for ${ago(stale)}: this is how it was then.`);
  if (partitions.length === 0) board.replaceChildren(el("p", { class: "empty" }, "There is no GPUPartition yet: apply one, such as examples/10-partition.yaml."));
  else board.querySelector(":scope > .empty")?.remove();
}

function dim(looked, gpus) {
  board.toggleAttribute("data-filter", looked !== "");
  for (const gpu of gpus) {
    const part = sections.parts.get(gpu.partition)?.gpuParts.parts.get(gpu.key);
    for (const slice of gpu.slices) part?.slices.parts.get(slice.id)?.node.toggleAttribute("data-match", matches(slice, looked));
  }
}

function remember(text, whole) {
  for (const [name, points] of Object.entries(JSON.parse(text))) {
    sections.parts.get(name)?.timeline.add(points, whole);
  }
}

function state(word, text) {
  put(live, "data-state", word);
  say(live, text);
}

/** Follow the cluster until one signs out, or is refused. */
async function start() {
  following?.abort();
  following = new AbortController();
  state("wait", "Connecting");
  const on = {
    event(name, text) {
      state("live", "Live");
      if (name === "scene") apply(text);
      if (name === "history") remember(text, true);
      if (name === "points") remember(text, false);
      if (name === "still") render(null);
      form.hidden = true;
      board.hidden = false;
      leave.hidden = token === "";
    },
    lost: () => state("lost", "Reconnecting"),
  };
  try {
    await follow(token, following.signal, on);
  } catch (error) {
    if (!(error instanceof Refused)) return;
    say(byId("refused"), token ? `Not signed in: ${error.message}.` : "");
    signOut();
  }
}

function signOut() {
  following?.abort();
  token = "";
  scene = new Map();
  sections.show([], (seen) => seen.name);
  links.show([], (seen) => seen.name);
  board.hidden = leave.hidden = notice.hidden = true;
  form.hidden = false;
  state("out", "Signed out");
  byId("token").focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  say(byId("refused"), "");
  start();
});
leave.addEventListener("click", signOut);
filter.addEventListener("input", () => render(null));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    filter.focus();
  }
  if (event.key === "Escape") {
    detail.hidden = true;
    if (document.activeElement === filter) {
      filter.value = "";
      render(null);
    }
  }
});

// What a slice has to tell is shown beside it, for a pointer and for the keyboard alike.
for (const name of ["pointerover", "focusin"]) {
  board.addEventListener(name, (event) => {
    const slice = event.target.closest?.(".slice");
    detail.hidden = !slice;
    if (!slice) return;
    detail.replaceChildren(...slice.getAttribute("aria-label").split(", ").map((text) => el("div", {}, text)));
    const at = slice.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left), innerWidth - detail.offsetWidth - 8);
    detail.style.left = `${left}px`;
    detail.style.top = `${at.bottom + detail.offsetHeight + 8 < innerHeight ? at.bottom + 6 : at.top - detail.offsetHeight - 6}px`;
  });
}
for (const name of ["pointerleave", "focusout"]) board.addEventListener(name, () => (detail.hidden = true));
addEventListener("scroll", () => (detail.hidden = true), { passive: true });

start();
