"""How the operator's work grows with its cluster: 1,000 to 50,000 jobs queued on 10 to 1,000 GPUs.

What is measured is what the operator does beside its requests, in processor time, which other
work on the machine disturbs least; each size has a process of its own, so that memory is its own.

    PYTHONPATH=tests .venv/bin/python -m bench.growth
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeVar

import orjson
from rich.console import Console
from rich.table import Table

from bench.scale.meters import usage
from partita.collector import collect_rarely
from partita.models.base import format_time
from partita.scheduling.cycle import CycleResult, Memory, run_cycle
from partita.scheduling.jobs import Jobs
from partita.scheduling.reasons import Reason
from partita.scheduling.runner import PolicyRunner
from partita.scheduling.state import State
from scheduling.builders import (
    GIB,
    START,
    allocation,
    gpus_up,
    job_body,
    partition_body,
    server_body,
    take,
)

SIZES = ((1_000, 10), (10_000, 100), (50_000, 1_000))
NAMESPACES = 20
T = TypeVar("T")
NOW = START + timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Growth:
    """What one size took: seconds of processor time, and MB."""

    jobs: int
    gpus: int
    read: float
    """All objects of the first lists are taken in."""
    planned: float
    """Each job is looked at, and queued."""
    first_cycle: float
    """All GPUs are given out."""
    told: float
    """Each job that waits gets a status that says why."""
    full_cycle: float
    """Nothing is free: the cycle that most changes cause."""
    never_fits: float
    """One more job comes that can never fit, and is told so."""
    peak: float


def measure(count: int, gpus: int) -> Growth:
    """Measure one size in this process."""
    collect_rarely()
    partition = partition_body(gpus=gpus)
    names = [f"shared-{n}" for n in range(gpus)]
    servers = list(gpus_up(*(server_body(name) for name in names)))
    # As they come from the wire: no text is shared between two of them.
    lines = [orjson.dumps(body) for body in [partition, *servers]]
    lines += [orjson.dumps(a_body(n)) for n in range(count)]
    state = State()
    jobs = Jobs(state)
    memory: list[Memory] = []
    # Not asyncio.run(): at its end it writes the result out, for an error that it suppresses.
    loop = asyncio.new_event_loop()

    def read() -> None:
        for line in lines:
            take(state, orjson.loads(line))

    def plan() -> None:
        jobs.refresh_largest("shared")
        for uid in state.dirty.take_jobs():
            jobs.look(uid, NOW)
        memory.append(Memory(PolicyRunner(state.partitions["shared"].spec.policy)))

    def cycle() -> CycleResult:
        return loop.run_until_complete(
            run_cycle(
                state.partitions["shared"],
                state,
                waiting=jobs.waiting["shared"],
                released={},
                memory=memory[0],
                now=NOW,
            )
        )

    def tell(result: CycleResult) -> None:
        position = 0
        for job in result.order:
            if why := result.why.get(job.id):
                position += 1
                jobs.explain(job.id, why, NOW, position=position)
                assert jobs.status(job.id, NOW) is not None

    def never_fits() -> None:
        take(state, a_body(count, gpuMemory="400Gi"))
        jobs.look(f"uid-job-{count}", NOW)
        said = jobs.status(f"uid-job-{count}", NOW)
        assert said is not None
        assert said[0].reason == Reason.NEVER_FITS

    read_time, _ = timed(read)
    lines.clear()
    planned, _ = timed(plan)
    first_cycle, result = timed(cycle)
    told, _ = timed(lambda: tell(result))
    assert len(result.placed) == gpus
    book(state, jobs, result)
    full_cycle, second = timed(cycle)
    assert not second.placed
    never, _ = timed(never_fits)
    loop.close()
    peak = usage(os.getpid()).peak
    return Growth(count, gpus, read_time, planned, first_cycle, told, full_cycle, never, peak)


def a_body(number: int, **spec: Any) -> dict[str, Any]:
    """Return a job that takes most of a GPU."""
    own = {"creationTimestamp": format_time(START + timedelta(milliseconds=number))}
    asked = {"gpuMemory": "30Gi", **spec}
    namespace = f"team-{number % NAMESPACES}"
    return job_body(f"job-{number}", namespace=namespace, metadata=own, **asked)


def book(state: State, jobs: Jobs, result: CycleResult) -> None:
    """Have the ledgers say what was placed."""
    for job, (gpu,) in result.placed:
        server = state.servers[gpu]
        ledger = {job.id: allocation(job.name, namespace=job.namespace, memory=30 * GIB)}
        body = server_body(gpu, allocations=ledger, metadata={"uid": server.metadata.uid})
        body["metadata"]["resourceVersion"] = str(int(server.metadata.resource_version) + 10**6)
        take(state, body)
        jobs.placed(job.id, ())


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the processor time of some work, and what it returned."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def main() -> None:
    """Measure each size in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", type=int, nargs=2, metavar=("JOBS", "GPUS"), help="one size, JSON")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    if arguments.one:
        json.dump(asdict(measure(*arguments.one)), sys.stdout)
        return
    grown = []
    for count, gpus in SIZES:
        sys.stderr.write(f"{count} jobs on {gpus} GPUs\n")
        command = [sys.executable, "-m", "bench.growth", "--one", str(count), str(gpus)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        grown.append(Growth(**json.loads(done.stdout)))
    if arguments.json:
        json.dump([asdict(g) for g in grown], sys.stdout, indent=2)
        return
    table = Table(title="processor time, in brackets per job")
    for column in ("jobs", "GPUs", "read", "planned", "first cycle", "told", "full cycle"):
        table.add_column(column, justify="right")
    table.add_column("never fits", justify="right")
    table.add_column("peak memory", justify="right")
    for g in grown:
        times = (g.read, g.planned, g.first_cycle, g.told, g.full_cycle)
        cells = (f"{t:.2f} s ({1e6 * t / g.jobs:.0f} µs)" for t in times)
        tail = (f"{1000 * g.never_fits:.1f} ms", f"{g.peak:.0f} MB")
        table.add_row(f"{g.jobs:,}", f"{g.gpus:,}", *cells, *tail)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
