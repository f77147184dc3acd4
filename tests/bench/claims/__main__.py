"""`make bench-claims`: what Pods with claims cost, with and without the scheduling gate.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and the operator are real, and
processes of their own; nodes, GPUs and kubelet are simulated by this one.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from bench.claims.binding import binding
from bench.claims.mistakes import mistakes
from bench.claims.waiting import waiting
from bench.load.__main__ import Scene, play, show
from bench.scenes import chosen

_EXAMPLES = """\
scenes:
  gated     many Pods wait behind the gate partita.dev/allocation: CPU of kube-scheduler and others
  ungated   the same without the gate
  binding   from submission until a Pod is bound: SharedGPUJobs, and Pods with claims
  mistakes  until Pods and claims that cannot get a slice are told why

examples:
  make bench-claims                        all of them, with 10,000 Pods
  make bench-claims ARGS="binding"
  make bench-claims ARGS="gated ungated --pods 500"
"""

SCENES: dict[str, Scene] = {
    "gated": lambda given, tell: waiting(given.pods, gated=True, tell=tell),
    "ungated": lambda given, tell: waiting(given.pods, gated=False, tell=tell),
    "binding": lambda given, tell: binding(given.samples, tell),
    "mistakes": lambda given, tell: mistakes(given.samples, tell),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="bench.claims",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help="which: see below (default: all)"
    )
    parser.add_argument(
        "--pods", type=int, default=10_000, metavar="N", help="that wait (default: %(default)s)"
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=200,
        metavar="N",
        help="of each kind in binding and mistakes (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    given = parser.parse_args()
    scenes = chosen(parser, given.scenes, SCENES)
    measured = {}
    for name in scenes:
        measured[name] = play(name, SCENES[name], given)
        show(name, measured[name])
    if given.json:
        written = {name: [asdict(figure) for figure in found] for name, found in measured.items()}
        given.json.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
