// The use of one slice over the last hours: its memory, and for how much of the time kernels ran.

import { el, put, say, svg } from "./dom.js";
import { area, key, labels, line, placed, ticks, timeMarks } from "./history.js";
import { clock, gib, GIB } from "./words.js";

const SHORTEST = 60; // seconds that the chart shows at least
const [WIDE, HIGH] = [720, 150];

export class UseChart {
  constructor() {
    this.allocated = svg("path", { class: "allocated" });
    this.used = svg("path", { class: "measured" });
    this.busy = svg("path", { class: "queue-line" });
    this.grid = svg("g", { class: "grid" });
    this.title = svg("title");
    const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", preserveAspectRatio: "none" }, this.title, this.grid, this.allocated, this.used, this.busy);
    [this.memory, this.percent, this.times] = ["memory", "jobs", "times"].map((name) => el("div", { class: `axis ${name}`, "aria-hidden": "true" }));
    this.node = el(
      "div",
      { class: "timeline" },
      el("div", { class: "line" }, key("allocated", "Allocated"), key("measured", "Used"), key("queue-line", "Kernels run (right axis)")),
      el("div", { class: "plot" }, this.memory, picture, this.percent, this.times),
    );
  }

  /** Show samples: Unix time, allocated bytes, used bytes, and percent of the time. */
  show(samples) {
    if (!samples.length) return;
    const end = Math.ceil(Date.now() / 1000);
    const points = [...samples, [end, ...samples.at(-1).slice(1)]];
    const start = Math.min(points[0][0], end - SHORTEST);
    const memory = ticks(Math.max(...points.map(([, allocated, used]) => Math.max(allocated, used))) / GIB, 0.1);
    const bytes = memory.at(-1) * GIB;
    const x = (time) => (((time - start) / (end - start)) * WIDE).toFixed(1);
    const y = (share) => (HIGH - Math.min(1, share) * (HIGH - 2)).toFixed(1);
    const measured = points.filter((point) => point[3] !== null);
    put(this.allocated, "d", area(points, x, (point) => y(point[1] / bytes)));
    put(this.used, "d", area(points, x, (point) => y(point[2] / bytes)));
    put(this.busy, "d", line(measured, x, (point) => y(point[3] / 100)));
    this.grid.replaceChildren(...memory.map((tick) => svg("line", { x1: 0, x2: WIDE, y1: y(tick / memory.at(-1)), y2: y(tick / memory.at(-1)) })));
    labels(this.memory, memory, (tick) => (tick === memory.at(-1) ? `${tick} GiB` : String(tick)));
    labels(this.percent, [0, 50, 100], (tick) => (tick === 100 ? "100 %" : String(tick)));
    const [marks, seconds] = timeMarks(start, end);
    this.times.replaceChildren(...marks.map((time) => placed(clock(time, seconds), "left", (time - start) / (end - start))));
    const [, allocated, used, busy] = points.at(-1);
    const kernels = busy === null ? "the time in which kernels run is not measured" : `kernels run for ${busy} percent of the time`;
    say(this.title, `Since ${clock(start)}: now ${gib(used)} of ${gib(allocated)} GiB are used, and ${kernels}.`);
  }
}
