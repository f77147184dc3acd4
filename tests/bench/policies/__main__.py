"""Compares the policies; fills docs/policies.md and writes docs/policies/results.csv.

Each part writes its figures into docs/policies/data/PART.json as soon as it has ended, so that
parts can be run one after the other, and one that was interrupted alone again.
"""

import json
import platform
import time
from pathlib import Path

from bench import harness
from bench.policies.pages import fill
from bench.policies.parts import PARTS, SEEDS, Plan
from bench.policies.scenes import TRACES, traces

DOCS = Path(__file__).parents[3] / "docs"
DATA = DOCS / "policies" / "data"
EXAMPLES = f"""\
  make bench-policies                                    everything, in about an hour
  make bench-policies ARGS="--only times"                a part: {", ".join(PARTS)}
  make bench-policies ARGS="--seeds 1 --only at-once"    to try it; git restore docs/policies*
"""


def main() -> None:
    """Run the parts asked for and fill the page."""
    parser = harness.parser("policies", __doc__, EXAMPLES)
    parser.add_argument(
        "--only",
        choices=PARTS,
        metavar="PART",
        action="append",
        help="run this part alone, see below (repeatable)",
    )
    harness.add_number(parser, "--seeds", SEEDS, "samples of each workload; fewer to try")
    parser.add_argument("--report", action="store_true", help="run nothing: fill the page anew")
    given = parser.parse_args()
    if "default" not in traces():
        parser.error(
            f"copy the files of Alibaba's clusterdata, cluster-trace-gpu-v2023/csv, to {TRACES}"
        )
    DATA.mkdir(parents=True, exist_ok=True)
    for name in [] if given.report else given.only or list(PARTS):
        start = time.perf_counter()
        figures = PARTS[name](Plan(given.seeds))
        path = DATA / f"{name}.json"
        minutes = round((time.perf_counter() - start) / 60, 1)
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        part = {"machine": machine, "minutes": minutes, "figures": figures}
        path.write_text(json.dumps(part) + "\n", encoding="utf-8")
        print(f"{name}: {minutes} minutes")
    paths = sorted(DATA.glob("*.json"))
    fill(DOCS, {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths})


if __name__ == "__main__":
    main()
