"""`make bench-scale`: Kueue's scheduler benchmark, with SharedGPUJobs.

30 partitions of 20 units each get 15,000 jobs: 350 small ones, 100 medium and 50 large a
partition, at the pace at which Kueue's benchmark makes workloads. etcd, kube-apiserver and the
operator are real and processes of their own; nodes, GPUs and kubelet are simulated by this one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.scale.kueue import KueueError, KueueResult, run_kueue
from bench.scale.run import Result, run
from bench.scale.shape import shrunk

_EXAMPLES = """\
examples:
  make bench-scale                                  all 15,000 jobs, with their Pods
  make bench-scale ARGS=--no-pods                   what Kueue does: admission alone
  make bench-scale ARGS="--share 0.1"               a tenth of the jobs, to try it
  git clone --depth 1 --branch v0.19.2 https://github.com/kubernetes-sigs/kueue /tmp/kueue
  make bench-scale ARGS="--kueue /tmp/kueue"        with Pods, without, Kueue's own, and the ratios
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="bench.scale",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--no-pods",
        action="store_true",
        help="leave out the writes of Pods and their claims, the operator's and kubelet's: what is "
        "left is what Kueue's benchmark does",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="submit only this part of the jobs, at the same pace; for trying (default: 1)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument(
        "--kueue",
        type=Path,
        metavar="FOLDER",
        help="run without Pods as well, then build and run the benchmark of this checkout of Kueue, "
        "and compare",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="have cProfile write there what the operator does (which makes it slower)",
    )
    arguments = parser.parse_args()

    def tell(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    kinds = [False] if arguments.no_pods else [True, False] if arguments.kueue else [True]
    results = []
    for with_pods in kinds:
        result = run(
            classes=shrunk(arguments.share),
            share=arguments.share,
            with_pods=with_pods,
            profile=arguments.profile,
            tell=tell,
        )
        show(result)
        results.append(result)
    written: dict[str, Any] = {"runs": [result.dump() for result in results]}
    if arguments.kueue:
        try:
            kueue = run_kueue(arguments.kueue, share=arguments.share, tell=tell)
        except KueueError as error:
            sys.exit(str(error))
        compare(results, kueue)
        written["kueue"] = asdict(kueue)
    if arguments.json:
        arguments.json.write_text(json.dumps(written, indent=2) + "\n")


def show(result: Result) -> None:
    """Print a run's figures."""
    console = Console(width=100, highlight=False)
    pods = "with Pods" if result.with_pods else "without Pods"
    if result.share != 1:
        console.print(f"ONLY {result.share:g} of the jobs: no figure to compare with others.")
    console.print(
        f"{result.jobs} jobs {pods}: {result.wall:.1f} s, {result.rate:.1f} jobs a second; the "
        f"last was submitted after {result.submitting:.1f} s, and below {result.least:.1f} s "
        f"nobody can be done. {os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f}."
    )
    table = Table("class", "jobs", "median", "p99", "most", title="time to admission, seconds")
    for name, times in result.admission.items():
        row = (f"{seconds:.2f}" for seconds in (times.median, times.p99, times.most))
        table.add_row(name, str(times.jobs), *row)
    console.print(table)
    table = Table("process", "CPU seconds", "CPU ms a job", "peak memory, MB")
    for name, used in result.used.items():
        per_job = 1000 * used.cpu / result.jobs
        table.add_row(name, f"{used.cpu:.1f}", f"{per_job:.2f}", f"{used.peak:.0f}")
    console.print(table)
    table = Table("the operator's requests", "a job")
    for what, number in result.writes.items():
        table.add_row(what, f"{number:.2f}")
    table.add_row("all writes", f"{sum(result.writes.values()):.2f}")
    table.add_row("reads", f"{result.reads:.3f}")
    console.print(table)


def compare(results: list[Result], kueue: KueueResult) -> None:
    """Print Kueue's figures and ours beside each other."""
    table = Table("Kueue's benchmark", "Kueue")
    names = ("wall time, s", "manager's CPU, s", "manager's peak memory, MB")
    theirs = (kueue.working, kueue.cpu, kueue.peak)
    columns = [[f"{figure:.1f}" for figure in theirs]]
    for result in results:
        used = result.used["operator"]
        ours = (result.wall, used.cpu, used.peak)
        table.add_column("with Pods" if result.with_pods else "without Pods")
        columns.append([f"{figure:.1f}" for figure in ours])
        table.add_column("ratio")
        columns.append([f"{our / their:.2f}" for our, their in zip(ours, theirs, strict=True)])
    for row in zip(names, *columns, strict=True):
        table.add_row(*row)
    console = Console(width=100, highlight=False)
    console.print(table)
    waits = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in kueue.admission.items())
    console.print(
        f"Kueue's manager ran for {kueue.wall:.1f} s, start and stop included; its mean time to "
        f"admission: {waits}. It makes no Pods, and preempts and borrows where Partita does not."
    )


if __name__ == "__main__":
    main()
