// The last hours: memory allocated and used as areas, jobs waiting as a line.

import { el, put, say, svg } from "./dom.js";
import { clock, gib, percent } from "./words.js";

const HOURS = 6;
const MOST = (HOURS * 3600) / 15;
const [WIDE, HIGH, FOOT] = [720, 150, 18];

export class Timeline {
  constructor() {
    this.points = [];
    this.allocated = svg("path", { class: "allocated" });
    this.used = svg("path", { class: "measured" });
    this.waiting = svg("path", { class: "queue-line" });
    this.grid = svg("g", { class: "grid" });
    this.title = svg("title");
    this.picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH + FOOT}`, role: "img", preserveAspectRatio: "none" }, this.title, this.grid, this.allocated, this.used, this.waiting);
    this.times = el("div", { class: "times", "aria-hidden": "true" });
    this.most = el("span");
    this.node = el(
      "div",
      { class: "card timeline" },
      el("div", { class: "line" }, el("h3", {}, `Last ${HOURS} hours`), key("allocated", "Allocated"), key("measured", "Used"), key("queue-line", "Waiting"), this.most),
      this.picture,
      this.times,
    );
    this.most.className = "count";
  }

  add(points, reset) {
    this.points = (reset ? points : [...this.points, ...points]).slice(-MOST);
    this.draw();
  }

  draw() {
    const now = Math.ceil(Date.now() / 1000);
    const start = now - HOURS * 3600;
    const seen = this.points.filter(([time]) => time >= start);
    const top = Math.max(1, ...seen.map(([, allocated, used, , whole]) => Math.max(allocated, used ?? 0, whole)));
    const longest = Math.max(1, ...seen.map((point) => point[3]));
    const x = (time) => (((time - start) / (HOURS * 3600)) * WIDE).toFixed(1);
    const y = (share) => (HIGH - share * (HIGH - 6)).toFixed(1);
    put(this.allocated, "d", area(seen, x, (point) => y(point[1] / top)));
    put(this.used, "d", area(seen.filter((point) => point[2] !== null), x, (point) => y(point[2] / top)));
    put(this.waiting, "d", line(seen, x, (point) => y(point[3] / longest)));
    this.grid.replaceChildren(
      ...[0, 0.5, 1].map((share) => svg("line", { x1: 0, x2: WIDE, y1: y(share), y2: y(share) })),
    );
    const marks = Array.from({ length: HOURS + 1 }, (_, hour) => el("span", {}, clock(start + hour * 3600)));
    this.times.replaceChildren(...marks);
    say(this.most, seen.length ? `up to ${gib(top)} GiB · ${Math.max(...seen.map((point) => point[3]))} waiting` : "");
    say(this.title, told(seen));
  }
}

function key(name, text) {
  return el("span", { class: "key" }, el("i", { class: name }), text);
}

function line(points, x, y) {
  let path = "";
  for (const [n, point] of points.entries()) {
    path += n === 0 ? `M${x(point[0])} ${y(point)}` : `H${x(point[0])}V${y(point)}`;
  }
  return path;
}

function area(points, x, y) {
  if (points.length === 0) return "";
  return `${line(points, x, y)}V${HIGH}H${x(points[0][0])}Z`;
}

function told(points) {
  if (points.length === 0) return "Nothing is known of the last hours yet.";
  const [, allocated, used, waiting, whole] = points.at(-1);
  const most = Math.max(...points.map((point) => point[3]));
  return (
    `Since ${clock(points[0][0])}: now ${percent(allocated, whole)} percent of the memory is allocated and ` +
    `${used === null ? "none measured" : `${percent(used, whole)} percent used`}; ${waiting} jobs wait, at most ${most} did.`
  );
}
