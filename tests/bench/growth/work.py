"""What the operator does beside its requests, in processor time: other work disturbs that least.

Prints JSON, for memory is measured of a whole process:

    python -m bench.growth.work JOBS GPUS
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeVar

import orjson

from bench.scale.meters import usage
from partita.decide.cycle import run_cycle
from partita.decide.cycle_result import CycleResult
from partita.decide.partition_state import PartitionState
from partita.decide.policy_runner import PolicyRunner
from partita.garbage_collection import collect_rarely
from partita.informer.state import State
from partita.models.quantities import format_time
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.reasons import Reason
from support.builders import (
    GIB,
    START,
    allocation,
    gpus_up,
    job_body,
    partition_body,
    server_body,
    take,
)

__all__ = ["Work"]

NAMESPACES = 20
T = TypeVar("T")
NOW = START + timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Work:
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


def measure(count: int, gpus: int) -> Work:
    """Measure one size in this process."""
    collect_rarely()
    partition = partition_body(gpus=gpus)
    names = [f"shared-{n}" for n in range(gpus)]
    servers = list(gpus_up(*(server_body(name) for name in names)))
    # As they come from the wire: no text is shared between two of them.
    lines = [orjson.dumps(body) for body in [partition, *servers]]
    lines += [orjson.dumps(a_body(n)) for n in range(count)]
    state = State()
    jobs = JobReconciler(state)
    memory: list[PartitionState] = []
    # Not asyncio.run(): at its end it writes the result out, for an error that it suppresses.
    loop = asyncio.new_event_loop()

    def read() -> None:
        for line in lines:
            take(state, orjson.loads(line))

    def plan() -> None:
        jobs.refresh_largest("shared")
        for uid in state.queues.jobs.take():
            jobs.reconcile(uid, NOW)
        memory.append(PartitionState(PolicyRunner(state.partitions["shared"].spec.policy)))

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
                jobs.explain(job.id, why, NOW, generation=1, position=position)
                assert jobs.status(job.id, NOW) is not None

    def never_fits() -> None:
        take(state, a_body(count, gpuMemory="400Gi"))
        jobs.reconcile(f"uid-job-{count}", NOW)
        said = jobs.status(f"uid-job-{count}", NOW)
        assert said is not None
        assert said[0].reason == Reason.NEVER_FITS

    read_time, _ = timed(read)
    lines.clear()
    planned, _ = timed(plan)
    first_cycle, result = timed(cycle)
    told, _ = timed(lambda: tell(result))
    assert len(result.placed) == gpus
    allocate(state, jobs, result)
    full_cycle, second = timed(cycle)
    assert not second.placed
    never, _ = timed(never_fits)
    loop.close()
    peak = usage(os.getpid()).peak
    return Work(count, gpus, read_time, planned, first_cycle, told, full_cycle, never, peak)


def a_body(number: int, **spec: Any) -> dict[str, Any]:
    """Return a job that takes most of a GPU."""
    own = {"creationTimestamp": format_time(START + timedelta(milliseconds=number))}
    asked = {"gpuMemory": "30Gi", **spec}
    namespace = f"team-{number % NAMESPACES}"
    return job_body(f"job-{number}", namespace=namespace, metadata=own, **asked)


def allocate(state: State, jobs: JobReconciler, result: CycleResult) -> None:
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


if __name__ == "__main__":
    json.dump(asdict(measure(int(sys.argv[1]), int(sys.argv[2]))), sys.stdout)
