"""What jobs that have finished cost those that are active: they stay until somebody deletes them.

Prints JSON, for memory is measured of a whole process:

    python -m bench.growth.finished FINISHED
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import orjson

from bench.cluster import resident_mebibytes
from bench.growth.work import NOW, a_body, allocate, timed
from partita.decide.cycle import run_cycle
from partita.decide.cycle_result import CycleResult
from partita.decide.partition_state import PartitionState
from partita.decide.policy_runner import PolicyRunner
from partita.garbage_collection import collect_rarely
from partita.informer.state import State
from partita.models.quantities import format_time
from partita.operator.metrics.collector import partition_samples
from partita.partitions.partition_status import partition_status
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.profile_updates import renew_requests
from support.builders import (
    START,
    gpus_up,
    partition_body,
    pod_body,
    pod_status,
    profile_body,
    server_body,
    take,
)

__all__ = ["FINISHED", "Finished", "measure"]

Json = dict[str, Any]

FINISHED = (0, 10_000, 100_000)
"""Finished jobs; issue 19."""
ACTIVE, GPUS = 1_000, 100
ROUNDS = 20
"""Of which the mean is taken."""
APPLICATION = "resnet"


@dataclass(frozen=True, slots=True)
class Finished:
    """What one size took: seconds of processor time, and MB."""

    finished: int
    start: float
    """All objects of the first lists are read, and each job is looked at."""
    event: float
    """The Pod of a running job ends, and so does the profile of its application change."""
    cycle: float
    """Nothing is free: the cycle that most changes cause."""
    status: float
    """The partition's status is computed, as it is once a second."""
    scrape: float
    """Prometheus reads the numbers of jobs."""
    collection: float
    """A full run of Python's garbage collector, after the start."""
    memory: float
    """Resident, once nothing is left to be done."""


def measure(count: int) -> Finished:
    """Measure one size in this process."""
    state = State(archives=True)
    jobs = JobReconciler(state)
    loop = asyncio.new_event_loop()

    def start() -> None:
        for body in from_the_wire(count):
            take(state, body)
        jobs.refresh_largest("shared")
        look(state, jobs)

    took, _ = timed(start)
    made, _ = timed(lambda: deque(from_the_wire(count), maxlen=0))
    partition = state.partitions["shared"]
    memory = PartitionState(PolicyRunner(partition.spec.policy))

    def cycle() -> CycleResult:
        waiting = jobs.waiting["shared"]
        return loop.run_until_complete(
            run_cycle(partition, state, waiting=waiting, released={}, memory=memory, now=NOW)
        )

    result = cycle()
    assert len(result.placed) == GPUS
    allocate(state, jobs, result)
    collect_rarely()
    ends = iter(result.placed)

    def event() -> None:
        job, _ = next(ends)
        ended = pod_status("Succeeded", started=START, finished=NOW)
        take(state, pod_body(job.name, namespace=job.namespace, status=ended))
        take(state, profile_body(APPLICATION, namespace=job.namespace, runs=next(runs)))
        look(state, jobs)

    runs = iter(range(2, 10**6))
    kept = Finished(
        finished=count,
        start=took - made,
        event=mean(event),
        cycle=mean(cycle),
        status=mean(lambda: partition_status(partition, state, memory.runner, NOW)),
        scrape=mean(lambda: list(partition_samples(state))),
        collection=mean(gc.collect),
        memory=resident_mebibytes(os.getpid()) * 2**20 / 1e6,
    )
    loop.close()
    return kept


def from_the_wire(count: int) -> Iterator[Json]:
    """Yield these objects as an API server's answer has them: no two share a text."""
    for body in first_lists(count):
        yield orjson.loads(orjson.dumps(body))


def first_lists(count: int) -> Iterator[Json]:
    """Yield the objects that are there when the operator starts."""
    yield partition_body(gpus=GPUS)
    yield from gpus_up(*(server_body(f"shared-{n}") for n in range(GPUS)))
    for number in range(ACTIVE):
        yield a_body(number, application=APPLICATION)
    for number in range(ACTIVE, ACTIVE + count):
        yield from finished_job(number)


def finished_job(number: int) -> Iterator[Json]:
    """Yield a job that has finished, and its Pod."""
    body = a_body(number, application=APPLICATION)
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    began, ended = (format_time(START + timedelta(minutes=m)) for m in (1, 2))
    pod = pod_body(name, namespace=namespace, status=pod_status("Succeeded"))
    gpu = "GPU-00000000-0000-4000-8000-000000000000"
    attempt = {
        "number": 1,
        "pod": f"{name}-1",
        "podUID": pod["metadata"]["uid"],
        "node": "node-1",
        "gpus": [gpu],
        "servers": ["shared-0"],
        "memory": "30Gi",
        "queuedTime": began,
        "bookedTime": began,
        "startTime": began,
        "endTime": ended,
        "outcome": "Succeeded",
    }
    types = {"Scheduled": "JobFinished", "Complete": "Succeeded"}
    body["status"] = {
        "observedGeneration": 1,
        "phase": "Succeeded",
        "reason": "Succeeded",
        "startTime": began,
        "completionTime": ended,
        "attempts": [attempt],
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": ended}
            for kind, reason in types.items()
        ],
    }
    yield body
    yield pod


def look(state: State, jobs: JobReconciler) -> None:
    """Do what the loop does with changed jobs before a cycle and for their statuses."""
    uids = state.queues.jobs.take()
    uids |= renew_requests(state.queues.applications.take(), state, jobs.waiting)
    for uid in uids:
        jobs.reconcile(uid, NOW)
        jobs.status(uid, NOW)


def mean(work: Callable[[], object]) -> float:
    """Return the mean processor time of some work."""
    work()
    began = time.process_time()
    for _ in range(ROUNDS):
        work()
    return (time.process_time() - began) / ROUNDS


if __name__ == "__main__":
    json.dump(asdict(measure(int(sys.argv[1]))), sys.stdout)
