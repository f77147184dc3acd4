"""Runs the benchmark of the policies and fills docs/policies.md and the tables behind it.

Each part writes its figures into docs/policies/data/PART.json as soon as it has ended, so that
parts can be run one after the other, and one that was interrupted alone again.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

from bench.policies.pages import fill
from bench.policies.parts import PARTS, SEEDS, Plan
from bench.policies.scenes import TRACES, traces

DOCS = Path(__file__).parents[3] / "docs"
DATA = DOCS / "policies" / "data"


def main() -> int:
    """Run the parts asked for and write all pages."""
    parser = argparse.ArgumentParser(prog="make bench-policies", description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="run this part alone (repeatable)"
    )
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"samples of each workload ({SEEDS}); fewer to try"
    )
    parser.add_argument(
        "--policy",
        action="append",
        help="run this one alone (repeatable); keep the others' figures",
    )
    parser.add_argument("--report", action="store_true", help="run nothing: write the pages anew")
    arguments = parser.parse_args()
    if "default" not in traces():
        print(
            f"{TRACES}: copy the files of Alibaba's clusterdata, cluster-trace-gpu-v2023/csv, here",
            file=sys.stderr,
        )
        return 2
    DATA.mkdir(parents=True, exist_ok=True)
    for name in [] if arguments.report else arguments.only or list(PARTS):
        start = time.perf_counter()
        figures = PARTS[name](Plan(arguments.seeds, arguments.policy or ()))
        path = DATA / f"{name}.json"
        if arguments.policy and path.exists():
            figures = merged(json.loads(path.read_text(encoding="utf-8"))["figures"], figures)
        part = {
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "minutes": round((time.perf_counter() - start) / 60, 1),
            "figures": figures,
        }
        path.write_text(json.dumps(part) + "\n", encoding="utf-8")
        print(f"{name}: {part['minutes']} minutes")
    found: dict[str, Any] = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(DATA.glob("*.json"))
    }
    fill(DOCS, found)
    return 0


def merged(old: Any, new: Any) -> Any:
    """Return what is new in place of what is old, and of mappings what either has."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: merged(old[key], new[key]) if key in old else new[key] for key in new}}


if __name__ == "__main__":
    sys.exit(main())
