"""`make bench-growth`: the operator with 1,000 to 50,000 jobs queued on 10 to 1,000 GPUs.

First its own work, in processor time; then the end of a run of an application for which 10,000 jobs
are queued; then what finished jobs cost those that are active; then a cold start on the embedded
API server, with simulated nodes, each in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.growth.cold_start import ColdStart, measure_cold_start
from bench.growth.finished import FINISHED, Finished
from bench.growth.history import MEMORY, RunEnds
from bench.growth.work import Work

SIZES = ((1_000, 10), (10_000, 100), (50_000, 1_000))
"""Jobs and GPUs; issue 7."""
OF_ONE_APPLICATION = 10_000
"""Jobs that are queued when a run of their application ends; issue 14."""


def main() -> None:
    """Measure all sizes, and print three tables."""
    parser = argparse.ArgumentParser(
        prog="bench.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    console = Console(width=140)
    works, starts = [], []
    for jobs, gpus in SIZES:
        sys.stderr.write(f"{jobs} jobs on {gpus} GPUs: work\n")
        command = [sys.executable, "-m", "bench.growth.work", str(jobs), str(gpus)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        works.append(Work(**json.loads(done.stdout)))
    console.print(table_of_work(works))
    ends = []
    for memory in MEMORY:
        sys.stderr.write(f"{OF_ONE_APPLICATION} jobs of one application, memory {memory}\n")
        size = [str(OF_ONE_APPLICATION), memory]
        command = [sys.executable, "-m", "bench.growth.history", *size]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        ends.append(RunEnds(**json.loads(done.stdout)))
    console.print(table_of_ends(ends))
    kept = []
    for count in FINISHED:
        sys.stderr.write(f"{count} finished jobs\n")
        command = [sys.executable, "-m", "bench.growth.finished", str(count)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        kept.append(Finished(**json.loads(done.stdout)))
    console.print(table_of_finished(kept))
    for jobs, gpus in SIZES:
        sys.stderr.write(f"{jobs} jobs on {gpus} GPUs: cold start\n")
        starts.append(asyncio.run(measure_cold_start(jobs, gpus)))
    console.print(table_of_starts(starts))
    load = os.getloadavg()[0]
    console.print(f"{os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}.")
    if arguments.json:
        measured = {"work": works, "run_ends": ends, "finished": kept, "cold_start": starts}
        figures = {name: [*map(asdict, rows)] for name, rows in measured.items()}
        arguments.json.write_text(json.dumps(figures, indent=2))


def table_of_work(works: list[Work]) -> Table:
    """Show the operator's own work."""
    table = Table(title="processor time, in brackets per job")
    columns = ("jobs", "GPUs", "read", "planned", "first cycle", "told", "full cycle")
    for column in (*columns, "never fits", "peak memory"):
        table.add_column(column, justify="right")
    for w in works:
        times = (w.read, w.planned, w.first_cycle, w.told, w.full_cycle)
        cells = (f"{t:.2f} s ({1e6 * t / w.jobs:.0f} µs)" for t in times)
        tail = (f"{1000 * w.never_fits:.1f} ms", f"{w.peak:.0f} MB")
        table.add_row(f"{w.jobs:,}", f"{w.gpus:,}", *cells, *tail)
    return table


def table_of_ends(ends: list[RunEnds]) -> Table:
    """Show what it costs that a run ends for whose application jobs are queued."""
    table = Table(title="a run of the queued jobs' application ends")
    for column in ("jobs", "memory", "looked at", "processor time", "peak memory"):
        table.add_column(column, justify="right")
    for e in ends:
        tail = (f"{e.looked_at:,}", f"{e.seconds:.2f} s", f"{e.peak:.0f} MB")
        table.add_row(f"{e.jobs:,}", e.memory, *tail)
    return table


def table_of_finished(kept: list[Finished]) -> Table:
    """Show what finished jobs cost those that are active."""
    table = Table(title="processor time and memory beside finished jobs")
    columns = ("finished", "start", "event", "cycle", "status", "scrape", "collection", "memory")
    for column in columns:
        table.add_column(column, justify="right")
    for k in kept:
        times = (k.event, k.cycle, k.status, k.scrape, k.collection)
        cells = (f"{1000 * t:.1f} ms" for t in times)
        table.add_row(f"{k.finished:,}", f"{k.start:.2f} s", *cells, f"{k.memory:.0f} MB")
    return table


def table_of_starts(starts: list[ColdStart]) -> Table:
    """Show the cold starts."""
    table = Table(title="cold start on the embedded API server")
    columns = ("jobs", "GPUs", "ready", "first Pod", "all GPUs given", "full cycle", "peak memory")
    for column in columns:
        table.add_column(column, justify="right")
    for s in starts:
        times = (f"{t:.1f} s" for t in (s.ready, s.first_pod, s.all_given))
        tail = (f"{1000 * s.cycle:.0f} ms", f"{s.peak:.0f} MB")
        table.add_row(f"{s.jobs:,}", f"{s.gpus:,}", *times, *tail)
    return table


if __name__ == "__main__":
    main()
