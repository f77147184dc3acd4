// A chart over time: memory allocated and used as areas on the left axis, a line on the right one.

import { el, put, say, svg } from "./dom.js";
import { clock, GIB } from "./words.js";

const SHORTEST = 60; // seconds that a chart shows at least
const [WIDE, HIGH] = [720, 150];
const TIME_STEPS = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];

export class Chart {
  /** `line` is the title of the line; `before` and `after` are elements beside the legend. */
  constructor(kind, line, { before = [], after = [] } = {}) {
    this.allocated = svg("path", { class: "allocated" });
    this.used = svg("path", { class: "measured" });
    this.line = svg("path", { class: "queue-line" });
    this.grid = svg("g", { class: "grid" });
    this.title = svg("title");
    const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", preserveAspectRatio: "none" }, this.title, this.grid, this.allocated, this.used, this.line);
    [this.left, this.right, this.times] = ["memory", "jobs", "times"].map((name) => el("div", { class: `axis ${name}`, "aria-hidden": "true" }));
    this.node = el(
      "div",
      { class: kind },
      el("div", { class: "line" }, ...before, key("allocated", "Allocated"), key("measured", "Used"), key("queue-line", `${line} (right axis)`), ...after),
      el("div", { class: "plot" }, this.left, picture, this.right, this.times),
    );
  }

  /**
   * Draw points: Unix time, allocated bytes, used bytes (null if unknown), value of the line.
   *
   * The last one holds until now. `marks` are the values on the right axis, with their texts by `text`.
   * Returns the time at which the chart begins.
   */
  draw(points, marks, text) {
    const end = Math.ceil(Date.now() / 1000);
    const shown = points.length ? [...points, [end, ...points.at(-1).slice(1)]] : [];
    const start = Math.min(shown[0]?.[0] ?? end, end - SHORTEST);
    const memory = ticks(Math.max(0, ...shown.map(([, allocated, used]) => Math.max(allocated, used ?? 0))) / GIB, 0.1);
    const bytes = memory.at(-1) * GIB;
    const x = (time) => (((time - start) / (end - start)) * WIDE).toFixed(1);
    const y = (share) => (HIGH - Math.min(1, share) * (HIGH - 2)).toFixed(1);
    const known = (place) => shown.filter((point) => point[place] !== null);
    put(this.allocated, "d", area(shown, x, (point) => y(point[1] / bytes)));
    put(this.used, "d", area(known(2), x, (point) => y(point[2] / bytes)));
    put(this.line, "d", steps(known(3), x, (point) => y(point[3] / marks.at(-1))));
    this.grid.replaceChildren(...memory.map((tick) => svg("line", { x1: 0, x2: WIDE, y1: y(tick / memory.at(-1)), y2: y(tick / memory.at(-1)) })));
    labels(this.left, memory, (tick) => (tick === memory.at(-1) ? `${tick} GiB` : String(tick)));
    labels(this.right, marks, text);
    const [moments, seconds] = timeMarks(start, end);
    this.times.replaceChildren(...moments.map((time) => placed(clock(time, seconds), "left", (time - start) / (end - start))));
    return start;
  }

  describe(text) {
    say(this.title, text);
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
function timeMarks(start, end) {
  const step = TIME_STEPS.find((seconds) => (end - start) / seconds <= (seconds < 60 ? 3 : 6)) ?? 7200;
  const marks = [];
  for (let time = Math.ceil(start / step) * step; time <= end; time += step) marks.push(time);
  return [marks, step < 60];
}

function placed(text, side, share) {
  const label = el("span", {}, text);
  label.style.setProperty(side, `${(100 * share).toFixed(1)}%`);
  return label;
}

function labels(axis, values, text) {
  axis.replaceChildren(...values.map((value) => placed(text(value), "bottom", value / values.at(-1))));
}

function key(name, text) {
  return el("span", { class: "key" }, el("i", { class: name }), text);
}

function steps(points, x, y) {
  let path = "";
  for (const [n, point] of points.entries()) {
    path += n === 0 ? `M${x(point[0])} ${y(point)}` : `H${x(point[0])}V${y(point)}`;
  }
  return path;
}

function area(points, x, y) {
  if (points.length === 0) return "";
  return `${steps(points, x, y)}V${HIGH}H${x(points[0][0])}Z`;
}
