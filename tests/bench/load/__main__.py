"""`make bench-load`: what the operator does under long queues, bad input and crowds, and for hours.

As in bench-scale, etcd, kube-apiserver and the operator are real, and processes of their own;
nodes, GPUs and kubelet are simulated by this one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.load.cold_start import cold_start
from bench.load.fair import fair
from bench.load.figures import Figure, LoadError
from bench.load.invalid import invalid
from bench.load.never_fits import never_fits
from bench.load.soak import PEAK, soak
from bench.load.stage import Tell

_EXAMPLES = """\
scenes:
  cold-start   jobs wait, then the operator starts: how soon there is a first Pod, and its memory
  never-fits   beside jobs that wait, jobs that can never start: how soon their status says so
  fair         one namespace submits many jobs, then others one each: how soon these start
  invalid      bench-scale's jobs with and without invalid ones among them: is it slower
  soak         jobs come and go at half of a rate, for an hour: memory, and time per cycle

examples:
  make bench-load ARGS=cold-start
  make bench-load ARGS="cold-start --jobs 1000"
  make bench-load ARGS="soak --minutes 3 --samples samples.jsonl --json soak.json"
"""


Scene = Callable[[argparse.Namespace, Tell], list[Figure]]

SCENES: dict[str, Scene] = {
    "cold-start": lambda given, tell: cold_start(given.jobs, tell),
    "never-fits": lambda given, tell: never_fits(given.jobs, tell),
    "fair": lambda given, tell: fair(given.jobs, tell),
    "invalid": lambda given, tell: invalid(given.share, given.rounds, tell),
    "soak": lambda given, tell: soak(given.minutes, given.rate, given.samples, tell),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="bench.load",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenes", nargs="+", choices=SCENES, metavar="SCENE", help="which: see below"
    )
    parser.add_argument(
        "--jobs", type=int, default=10_000, metavar="N", help="that wait (default: %(default)s)"
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.1,
        metavar="PART",
        help="of bench-scale's jobs for invalid (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="of invalid, a run with and one without each (default: %(default)s)",
    )
    parser.add_argument(
        "--minutes", type=float, default=60, metavar="N", help="of soak (default: %(default)s)"
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=PEAK,
        metavar="JOBS",
        help="that bench-scale sustains a second with Pods: soak submits half as many "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--samples",
        type=argparse.FileType("w"),
        metavar="FILE",
        help="write soak's samples there, one a line",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    given = parser.parse_args()
    measured: dict[str, list[Figure]] = {}
    for name in given.scenes:
        measured[name] = play(name, SCENES[name], given)
        show(name, measured[name])
    if given.json:
        written = {
            name: [asdict(figure) for figure in figures] for name, figures in measured.items()
        }
        given.json.write_text(json.dumps(written, indent=2) + "\n")


def play(name: str, scene: Scene, given: argparse.Namespace) -> list[Figure]:
    """Return what a scene measured; end the program with its message where it failed."""
    try:
        return scene(given, partial(_tell, name))
    except (LoadError, RuntimeError, ExceptionGroup) as error:
        cause: BaseException = error
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        if not isinstance(cause, LoadError | RuntimeError):
            raise
        sys.exit(f"{name}: {cause}")


def _tell(name: str, text: str) -> None:
    sys.stderr.write(f"{name}: {text}\n")


def show(name: str, figures: list[Figure]) -> None:
    """Print what a scene measured."""
    console = Console(width=100, highlight=False)
    table = Table("figure", "measured", "at most", "", title=name)
    for figure in figures:
        most = "" if figure.most is None else f"{figure.most:g} {figure.unit}"
        verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
        table.add_row(figure.name, f"{figure.value:.2f} {figure.unit}", most, verdict)
    console.print(table)
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the end."
    )


if __name__ == "__main__":
    main()
