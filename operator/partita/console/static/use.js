// The use of one slice over the last hours: its memory, and for how much of the time kernels ran.

import { Chart } from "./chart.js";
import { clock, portion } from "./words.js";

export class UseChart extends Chart {
  constructor() {
    super("timeline", "Kernels run");
  }

  /** Show samples: Unix time, allocated bytes, used bytes, and percent of the time. */
  show(samples) {
    if (!samples.length) return;
    const start = this.draw(samples, [0, 50, 100], (tick) => (tick === 100 ? "100 %" : String(tick)));
    const [, allocated, used, busy] = samples.at(-1);
    const kernels = busy === null ? "the time in which kernels run is not measured" : `kernels run for ${busy} percent of the time`;
    this.describe(`Since ${clock(start)}: now ${portion(used, allocated)} are used, and ${kernels}.`);
  }
}
