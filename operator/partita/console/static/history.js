// The last hours: memory allocated and used as areas, the number that wait as a line.

import { Chart, ticks } from "./chart.js";
import { el, say } from "./dom.js";
import { amount, clock, percent } from "./words.js";

const HOURS = 6;
const MOST = (HOURS * 3600) / 15;

export class HistoryChart extends Chart {
  constructor() {
    const whole = el("span", { class: "count" });
    super("card timeline", "Waiting", { before: [el("h3", {}, "History")], after: [whole] });
    Object.assign(this, { points: [], whole });
  }

  add(points, reset) {
    this.points = (reset ? points : [...this.points, ...points]).slice(-MOST);
    const seen = this.points.filter(([time]) => time >= Date.now() / 1000 - HOURS * 3600);
    const waiting = ticks(Math.max(0, ...seen.map((point) => point[3])), 1);
    this.draw(seen, waiting, (tick) => (tick === waiting.at(-1) ? `${tick} waiting` : String(tick)));
    this.describe(described(seen));
    say(this.whole, seen.length ? `${amount(seen.at(-1)[4])} allocatable` : "");
  }
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
