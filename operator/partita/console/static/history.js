// The last hours: memory allocated and used as areas, the number that wait as a line.

import { el, put, say, svg } from "./dom.js";
import { clock, gib, GIB, percent } from "./words.js";

const HOURS = 6;
const MOST = (HOURS * 3600) / 15;
const SHORTEST = 60; // seconds that the chart shows at least
const [WIDE, HIGH] = [720, 150];
const TIME_STEPS = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];

export class HistoryChart {
  constructor() {
    this.points = [];
    this.allocated = svg("path", { class: "allocated" });
    this.used = svg("path", { class: "measured" });
    this.waiting = svg("path", { class: "queue-line" });
    this.grid = svg("g", { class: "grid" });
    this.title = svg("title");
    this.picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", preserveAspectRatio: "none" }, this.title, this.grid, this.allocated, this.used, this.waiting);
    [this.memory, this.jobs, this.times] = ["memory", "jobs", "times"].map((name) => el("div", { class: `axis ${name}`, "aria-hidden": "true" }));
    this.whole = el("span", { class: "count" });
    this.node = el(
      "div",
      { class: "card timeline" },
      el("div", { class: "line" }, el("h3", {}, "History"), key("allocated", "Allocated"), key("measured", "Used"), key("queue-line", "Waiting (right axis)"), this.whole),
      el("div", { class: "plot" }, this.memory, this.picture, this.jobs, this.times),
    );
  }

  add(points, reset) {
    this.points = (reset ? points : [...this.points, ...points]).slice(-MOST);
    this.draw();
  }

  draw() {
    const now = Math.ceil(Date.now() / 1000);
    const seen = this.points.filter(([time]) => time >= now - HOURS * 3600);
    if (seen.length) seen.push([now, ...seen.at(-1).slice(1)]);
    const start = Math.min(seen[0]?.[0] ?? now, now - SHORTEST);
    const memory = ticks(Math.max(0, ...seen.map(([, allocated, used]) => Math.max(allocated, used ?? 0))) / GIB, 0.1);
    const jobs = ticks(Math.max(0, ...seen.map((point) => point[3])), 1);
    const x = (time) => (((time - start) / (now - start)) * WIDE).toFixed(1);
    const y = (share) => (HIGH - share * (HIGH - 2)).toFixed(1);
    const bytes = memory.at(-1) * GIB;
    put(this.allocated, "d", area(seen, x, (point) => y(point[1] / bytes)));
    put(this.used, "d", area(seen.filter((point) => point[2] !== null), x, (point) => y(point[2] / bytes)));
    put(this.waiting, "d", line(seen, x, (point) => y(point[3] / jobs.at(-1))));
    this.grid.replaceChildren(...memory.map((tick) => svg("line", { x1: 0, x2: WIDE, y1: y(tick / memory.at(-1)), y2: y(tick / memory.at(-1)) })));
    labels(this.memory, memory, (tick) => (tick === memory.at(-1) ? `${tick} GiB` : String(tick)));
    labels(this.jobs, jobs, (tick) => (tick === jobs.at(-1) ? `${tick} waiting` : String(tick)));
    const [marks, seconds] = timeMarks(start, now);
    this.times.replaceChildren(...marks.map((time) => placed(clock(time, seconds), "left", (time - start) / (now - start))));
    say(this.whole, seen.length ? `${gib(seen.at(-1)[4])} GiB allocatable` : "");
    say(this.title, described(seen));
  }
}

/** Round numbers from 0 to at least `most`, four or five of them, whose steps are `least` or more. */
export function ticks(most, least) {
  const rough = Math.max(most / 4, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough - 1e-9);
  const count = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, n) => Number((n * step).toPrecision(6)));
}

/** Round times between two times, at most seven, and whether they need seconds, which take more room. */
export function timeMarks(start, end) {
  const step = TIME_STEPS.find((seconds) => (end - start) / seconds <= (seconds < 60 ? 3 : 6)) ?? 7200;
  const marks = [];
  for (let time = Math.ceil(start / step) * step; time <= end; time += step) marks.push(time);
  return [marks, step < 60];
}

export function placed(text, side, share) {
  const label = el("span", {}, text);
  label.style.setProperty(side, `${(100 * share).toFixed(1)}%`);
  return label;
}

export function labels(axis, values, text) {
  axis.replaceChildren(...values.map((value) => placed(text(value), "bottom", value / values.at(-1))));
}

export function key(name, text) {
  return el("span", { class: "key" }, el("i", { class: name }), text);
}

export function line(points, x, y) {
  let path = "";
  for (const [n, point] of points.entries()) {
    path += n === 0 ? `M${x(point[0])} ${y(point)}` : `H${x(point[0])}V${y(point)}`;
  }
  return path;
}

export function area(points, x, y) {
  if (points.length === 0) return "";
  return `${line(points, x, y)}V${HIGH}H${x(points[0][0])}Z`;
}

function described(points) {
  if (points.length === 0) return "Nothing is known of the last hours yet.";
  const [, allocated, used, waiting, whole] = points.at(-1);
  const most = Math.max(...points.map((point) => point[3]));
  return (
    `Since ${clock(points[0][0])}: now ${percent(allocated, whole)} percent of the memory is allocated and ` +
    `${used === null ? "its use is not measured" : `${percent(used, whole)} percent is used`}; ${waiting} wait, at most ${most} waited.`
  );
}
