"""A small cluster and the reconciler of its jobs, for tests."""

from typing import Any

from partita.jobs.job_reconciler import JobReconciler
from partita.jobs.lifecycle import Plan
from partita.models import SharedGPUJobStatus
from partita.store.state import State
from support.builders import a_state, allocation, at, job_body, partition_body, take

UID = "uid-train"
CLAIM = "claim-train"
"""UID of the claim of its first attempt."""
ALLOCATED = {CLAIM: allocation()}
UNSCHEDULABLE = {"reason": "Unschedulable", "message": "0/1 nodes are available"}


def world(*bodies: dict[str, Any]) -> tuple[State, JobReconciler]:
    state = a_state(partition_body(), *bodies)
    jobs = JobReconciler(state)
    jobs.refresh_largest("shared")
    return state, jobs


def looked(jobs: JobReconciler, now: float = 0) -> Plan:
    """Look at the job; it is there."""
    made = jobs.reconcile(UID, at(now))
    assert made is not None
    return made


def wish(jobs: JobReconciler, now: float = 0) -> tuple[SharedGPUJobStatus, float]:
    """The status that is wished for, and how long it may wait."""
    found = jobs.status(UID, at(now))
    assert found is not None
    return found


def status(jobs: JobReconciler, now: float = 0) -> SharedGPUJobStatus:
    return wish(jobs, now)[0]


def write(state: State, jobs: JobReconciler, now: float = 0, **spec: Any) -> None:
    """Write the status that is wished for, as the operator would."""
    take(state, job_body(status=status(jobs, now).dump(), **spec))
