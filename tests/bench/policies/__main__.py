"""Runs the benchmark and writes docs/policies.md, docs/policies.json and the plots."""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import dqn_learning
from bench.policies import sections
from bench.policies.plots import draw
from bench.policies.report import render
from bench.policies.scenes import missing_traces
from bench.policies.targets import targets

DOCS = Path(__file__).parents[3] / "docs"

SECTIONS: dict[str, Callable[[], Any]] = {
    "study": sections.study,
    "strict": sections.strict,
    "unseen": sections.unseen,
    "saturation": sections.saturation,
    "bounds": sections.bounds,
    "optimal": sections.optimal,
    "speed": sections.speed,
    "times": sections.times,
    "learning": dqn_learning.learning,
}


def main() -> int:
    """Run the sections asked for; the others keep what an earlier run found."""
    parser = argparse.ArgumentParser(prog="make bench-policies", description=__doc__)
    parser.add_argument(
        "--only",
        choices=SECTIONS,
        action="append",
        help="run this section alone (repeatable); what the others found is kept",
    )
    parser.add_argument(
        "--report", action="store_true", help="run nothing: write tables and plots anew"
    )
    arguments = parser.parse_args()
    if problem := missing_traces():
        print(problem, file=sys.stderr)
        return 2
    path = DOCS / "policies.json"
    chosen = [] if arguments.report else arguments.only or list(SECTIONS)
    for name in chosen:
        start = time.perf_counter()
        section = SECTIONS[name]()
        found = _read(path)  # now: other sections may have been run meanwhile
        found[name] = section
        found.setdefault("seconds", {})[name] = round(time.perf_counter() - start, 1)
        found["machine"] = (
            f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
        )
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    found = _read(path)
    found["targets"] = [target._asdict() for target in targets(found)]
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw(found, DOCS / "images" / "policies")
    (DOCS / "policies.md").write_text(render(found), encoding="utf-8")
    for target in found["targets"]:
        print(f"{'met   ' if target['met'] else 'MISSED'} {target['what']}: {target['measured']}")
    return 0


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


if __name__ == "__main__":
    sys.exit(main())
