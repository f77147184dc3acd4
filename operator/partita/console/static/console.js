// The page: signs in, follows the cluster, shows what has changed, and opens the pages of jobs and workloads.

import { keep, kept } from "./address.js";
import { DetailPage } from "./detail.js";
import { el, Keyed, put, say } from "./dom.js";
import { addressOf, matches } from "./jobs.js";
import { makePartition, updatePartition } from "./partition.js";
import { fetchJson, follow, readEvents, Refused } from "./stream.js";
import { ago } from "./words.js";

const byId = (id) => document.getElementById(id);
const [board, detail, filter, form, jump, leave, live, notice, operator] = ["board", "detail", "filter", "sign-in", "jump", "leave", "live", "notice", "operator"].map(byId);

const MEASURED = 500; // updates whose times are kept, for those who look (performance.getEntries)

let entities = new Map();
let updates = 0;
let following = null;
let token = "";
let heard = 0; // Unix time of the last event
let lost = ""; // why there are no events; empty if there are

const get = (path, body) => fetchJson(token, path, body);
const read = (path, signal, onEvent) => readEvents(token, path, signal, onEvent);
const page = new DetailPage(byId("job"), get, read, (name) => {
  const found = [...entities.values()].find((one) => one.kind === "job" && one.namespace !== null && `${one.namespace}/${one.name}` === name);
  return found && addressOf(found);
});
const sections = new Keyed(board, (seen) => makePartition(seen, get), () => {});
const links = new Keyed(jump, () => ({ node: el("a") }), (part, seen) => {
  say(part.node, seen.name);
  put(part.node, "href", `#partition-${seen.name}`);
});
const byName = new Intl.Collator("en", { numeric: true });

/** Apply a patch to the entities and show them. */
function apply(text) {
  const start = performance.now();
  const patch = JSON.parse(text);
  const changed = new Set(Object.keys(patch.set ?? {}));
  if (patch.reset) entities = new Map();
  for (const [key, fields] of Object.entries(patch.set ?? {})) {
    const entity = { ...entities.get(key), ...fields, key };
    entities.set(key, entity);
    changed.add(entity.partition && `partition/${entity.partition}`);
  }
  for (const key of patch.gone ?? []) {
    const entity = entities.get(key);
    entities.delete(key);
    changed.add(entity?.partition && `partition/${entity.partition}`);
  }
  render(patch.reset ? null : changed);
  performance.measure("update", { start, end: performance.now() });
  if (++updates % MEASURED === 0) performance.clearMeasures("update");
}

/** Show the entities; `changed` has the keys to update, null for all. */
function render(changed) {
  const parts = { partition: [], gpu: [], job: [], feed: [] };
  for (const entity of entities.values()) parts[entity.kind]?.push(entity);
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
    part.jobs.show(jobs.get(seen.name) ?? [], seen, looked);
  }
  if (looked || board.hasAttribute("data-filter")) dim(looked, parts.gpu);
  const { staleSince: stale, operatorProblem: problem, leftOut = [] } = parts.feed[0] ?? {};
  operator.hidden = !problem || Boolean(stale || lost);
  say(operator, problem ? `${problem} Nothing is started until an operator runs.` : "");
  notice.hidden = !lost && !stale && !leftOut.length;
  if (lost) status("lost", "Reconnecting");
  else if (stale) status("lost", "No API server");
  else status("live", "Live");
  if (lost) say(notice, `${lost[0].toUpperCase()}${lost.slice(1)}: the page shows the state of ${ago(heard)} ago.`);
  else if (stale) say(notice, `The API server has not answered for ${ago(stale)}: the page shows the state of that time.`);
  else if (leftOut.length) say(notice, `Not all is shown: the console may not list ${leftOut.join(", ")}.`);
  if (partitions.length === 0) board.replaceChildren(el("p", { class: "empty" }, "This cluster has no GPUPartition: apply one, such as examples/10-partition.yaml."));
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

function status(word, text) {
  put(live, "data-state", word);
  say(live, text);
}

/** Follow the cluster until one signs out, or is refused. */
async function start() {
  following?.abort();
  following = new AbortController();
  status("wait", "Connecting");
  const on = {
    event(name, text) {
      const back = lost !== "";
      [heard, lost] = [Date.now() / 1000, ""];
      if (name === "state") apply(text);
      if (name === "history") remember(text, true);
      if (name === "points") remember(text, false);
      if (name === "still" || back) render(null);
      if (name !== "points") page.changed();
      if (!form.hidden || (board.hidden && !page.subject)) {
        form.hidden = true;
        route();
      }
      leave.hidden = token === "";
    },
    lost(why) {
      lost = why;
      if (entities.size) render(new Set());
      else status("lost", "Reconnecting");
    },
  };
  try {
    await follow(token, following.signal, on);
  } catch (error) {
    if (!(error instanceof Refused)) return;
    say(byId("refused"), token ? `Not signed in: ${error.message}.` : "");
    signOut();
  }
}

/** Show what the address names: a job, a workload, or everything. */
function route() {
  const [, kind, namespace, name] = location.hash.match(/^#\/(jobs|workloads)\/([^/]+)\/([^/]+)$/) ?? [];
  if (!form.hidden || !entities.size) return;
  if (page.subject) page.close();
  board.hidden = name !== undefined;
  jump.hidden = filter.parentElement.hidden = board.hidden;
  detail.hidden = true;
  if (name !== undefined) page.open(kind, decodeURIComponent(namespace), decodeURIComponent(name));
  else byId(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

/** Take filter, lists and their order from the address. */
function recall() {
  filter.value = kept("filter");
  for (const part of sections.parts.values()) part.jobs.recall();
  if (entities.size) render(null);
}

function search() {
  keep("filter", filter.value.trim());
  render(null);
}

function signOut() {
  following?.abort();
  token = "";
  entities = new Map();
  sections.show([], (seen) => seen.name);
  links.show([], (seen) => seen.name);
  if (page.subject) page.close();
  board.hidden = leave.hidden = notice.hidden = operator.hidden = true;
  form.hidden = false;
  status("out", "Signed out");
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
addEventListener("hashchange", route);
addEventListener("popstate", recall);
filter.addEventListener("input", search);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !board.hidden && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    filter.focus();
  }
  if (event.key === "Escape") {
    detail.hidden = true;
    if (document.activeElement === filter) {
      filter.value = "";
      search();
    }
  }
});

// The details of a slice are shown beside it, for a pointer and for the keyboard.
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

recall();
start();
