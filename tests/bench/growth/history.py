"""What it costs that a run of an application ends for which thousands of jobs are queued.

Prints JSON, for memory is measured of a whole process. `named` jobs say how much memory they need,
`history` jobs take it from the history of their application:

    python -m bench.growth.history JOBS named
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import orjson

from bench.scale.meters import usage
from partita.garbage_collection import collect_rarely
from partita.informer.state import State
from partita.models.quantities import format_time
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.profile_updates import renew_requests
from support.builders import (
    START,
    gpus_up,
    job_body,
    partition_body,
    profile_body,
    server_body,
    take,
)

__all__ = ["MEMORY", "RunEnds", "measure"]

MEMORY: dict[str, dict[str, Any]] = {"named": {"gpuMemory": "30Gi"}, "history": {"gpuMemory": None}}
"""What jobs say of their memory."""
STEPS = 256
"""Of the profile; no ApplicationProfile has more."""
RUNS = 3
NOW = START + timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class RunEnds:
    """What one size took."""

    jobs: int
    memory: str
    looked_at: int
    """Jobs that were looked at again after a run has ended."""
    seconds: float
    """Processor time from the new profile to the last request."""
    peak: float
    """Memory of the process at most, MB."""


def measure(count: int, memory: str) -> RunEnds:
    """Measure one size in this process."""
    collect_rarely()
    state = State()
    for body in (partition_body(), *gpus_up(server_body()), a_profile(1)):
        take(state, body)
    for number in range(count):
        own = {"creationTimestamp": format_time(START + timedelta(milliseconds=number))}
        body = job_body(f"job-{number}", metadata=own, application="resnet", **MEMORY[memory])
        take(state, orjson.loads(orjson.dumps(body)))  # no text is shared, as from the wire
    jobs = JobReconciler(state)
    jobs.refresh_largest("shared")
    look_at_what_changed(state, jobs)
    looked_at, began = 0, time.process_time()
    for run in range(RUNS):
        take(state, a_profile(2 + run))
        looked_at += look_at_what_changed(state, jobs)
    seconds = (time.process_time() - began) / RUNS
    asked = jobs.waiting["shared"].values()
    assert {job.profile.runs for job in asked if job.profile} == {1 + RUNS}
    assert len(asked) == count
    return RunEnds(count, memory, looked_at // RUNS, seconds, usage(os.getpid()).peak)


def a_profile(runs: int) -> dict[str, Any]:
    """Return the profile after so many runs."""
    body = profile_body(duration=f"{60 + runs}s", runs=runs)
    body["spec"]["measurements"][0]["steps"] = [
        {"gpuMemory": (1 << 30) + (runs << 20) + step, "gpuUtilization": 30 + step / 100}
        for step in range(STEPS)
    ]
    return body


def look_at_what_changed(state: State, jobs: JobReconciler) -> int:
    """Do what the loop does before its cycles; return how many jobs were looked at."""
    uids = state.queues.jobs.take()
    uids |= renew_requests(state.queues.applications.take(), state, jobs.waiting)
    for uid in uids:
        jobs.reconcile(uid, NOW)
    return len(uids)


if __name__ == "__main__":
    json.dump(asdict(measure(int(sys.argv[1]), sys.argv[2])), sys.stdout)
