"""What is written before a Pod is deleted, so that MPS terminates its clients before any signal."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from jobs.job_objects import ALLOCATED, CLAIM, UID, world
from jobs.plans import NOW, around, attempt, with_attempts
from partita.jobs.lifecycle import Plan, plan_job
from partita.models import Outcome, Phase, SharingMode
from partita.models.quantities import format_time
from partita.store.views import PodView
from support.builders import (
    START,
    a_pod,
    at,
    job_body,
    node_body,
    pod_body,
    pod_status,
    server_body,
    take,
    view_of,
)

GRACE = 40


def running(
    number: int = 1,
    *,
    deleted: datetime | None = None,
    grace: int = GRACE,
    node: str = "node-1",
    **metadata: Any,
) -> PodView:
    if deleted is not None:
        metadata |= {"deletionTimestamp": format_time(deleted), "deletionGracePeriodSeconds": grace}
    body = pod_body(attempt=number, status=pod_status("Running"), metadata=metadata, node=node)
    body["spec"]["terminationGracePeriodSeconds"] = GRACE
    return view_of(body)


def plan(pod: PodView, outcome: Outcome | None = Outcome.SUSPENDED, **fields: Any) -> Plan:
    fields = {"allocated": 1, "mode": SharingMode.MPS, **fields}
    return plan_job(with_attempts(attempt(1, outcome)), around(pod, **fields), NOW)


def after(made: Plan, pod: PodView, seconds: float = 1, **fields: Any) -> Plan:
    """Plan again once the marks are in the ledger."""
    fields = {"allocated": 1, "mode": SharingMode.MPS, **fields}
    context = around(pod, **fields)
    context = replace(context, allocated={**context.allocated, **made.marks})
    job = with_attempts(attempt(1, Outcome.SUSPENDED))
    return plan_job(job, context, NOW + timedelta(seconds=seconds))


def test_the_ledger_is_marked_before_the_pod_is_deleted():
    pod = running()
    made = plan(pod)
    (mark,) = made.marks.values()
    assert (mark.releasing_since, mark.release_deadline) == (NOW, NOW + timedelta(seconds=GRACE))
    unmarked = mark.model_copy(update={"releasing_since": None, "release_deadline": None})
    assert unmarked == around(pod, allocated=1).allocated["shared-0"]
    assert (made.delete_pods, made.release) == ((), False)
    then = after(made, pod)
    assert (then.delete_pods, then.marks, then.release) == ((pod,), {}, False)


def test_all_gpus_of_a_job_are_marked_first():
    pod = running()
    made = plan(pod, servers=2)
    assert set(made.marks) == {"shared-0", "shared-1"}
    half = replace(made, marks={"shared-0": made.marks["shared-0"]})
    then = after(half, pod, servers=2)
    assert (then.delete_pods, set(then.marks)) == ((), {"shared-1"})


def test_a_pod_that_somebody_else_deletes_is_marked_until_kubelet_kills_it():
    killed = NOW + timedelta(seconds=25)
    made = plan(running(deleted=killed), outcome=None)
    (mark,) = made.marks.values()
    assert (mark.releasing_since, mark.release_deadline) == (NOW, killed)
    assert (made.delete_pods, made.release) == ((), False)


def test_a_mark_is_written_once_although_the_clocks_differ():
    made = plan(running())
    for shift in (-2, 0, 5):
        pod = running(deleted=NOW + timedelta(seconds=GRACE + shift))
        assert after(made, pod).marks == {}


def test_a_pod_that_the_api_server_is_removing_is_not_marked_again():
    """A watch shows a Pod whose grace period was set to 0 for a moment before it is gone."""
    made = plan(running())
    assert after(made, running(deleted=NOW, grace=0)).marks == {}
    kept = running(deleted=NOW, grace=0, finalizers=["batch.kubernetes.io/job-tracking"])
    (mark,) = after(made, kept).marks.values()
    assert mark.release_deadline == NOW


def test_a_shorter_grace_period_is_marked_before_it_is_given():
    slow = running(deleted=NOW + timedelta(seconds=GRACE))
    made = plan(slow, outcome=None)
    context = around(slow, allocated=1, mode=SharingMode.MPS, preemption_grace=10)
    context = replace(context, allocated=dict(made.marks))
    job = with_attempts(attempt(1, Outcome.PREEMPTED))
    sooner = plan_job(job, context, NOW + timedelta(seconds=2))
    (mark,) = sooner.marks.values()
    assert (mark.releasing_since, mark.release_deadline) == (NOW, NOW + timedelta(seconds=12))
    assert sooner.delete_pods == ()
    then = plan_job(job, replace(context, allocated=dict(sooner.marks)), NOW + timedelta(seconds=3))
    assert (then.delete_pods, then.grace, then.marks) == ((slow,), 10, {})


def test_without_mps_a_pod_is_deleted_at_once():
    pod = running()
    made = plan(pod, mode=SharingMode.TIME_SLICING)
    assert (made.delete_pods, made.marks) == ((pod,), {})


def test_nothing_is_marked_for_a_node_that_is_gone_or_a_pod_on_no_node():
    gone = running()
    made = plan(gone, node_exists=lambda _: False)
    assert (made.delete_pods, made.grace, made.marks) == ((gone,), 0, {})
    unbound = running(node="")
    made = plan(unbound)
    assert (made.delete_pods, made.marks) == ((unbound,), {})


@pytest.mark.parametrize("number", [1, 3])
def test_an_allocation_of_another_attempt_is_not_marked(number: int):
    made = plan(running(number, deleted=NOW), outcome=None, allocated=2)
    assert made.marks == {}


def test_a_job_that_ends_by_itself_costs_no_mark():
    finished = a_pod(status=pod_status("Succeeded"))
    assert plan(finished, Outcome.SUCCEEDED).marks == {}
    assert plan(running(), outcome=None).marks == {}


@pytest.mark.parametrize(("mode", "servers"), [("MPS", {"shared-0"}), ("TimeSlicing", set())])
def test_the_pod_of_a_deleted_job_is_marked_once_it_is_deleted_too(mode: str, servers: set[str]):
    pod = pod_body(status=pod_status("Running", started=START))
    state, jobs = world(node_body(), server_body(mode=mode, allocations=ALLOCATED), job_body(), pod)
    assert jobs.reconcile(UID, at(1)) is not None
    take(state, job_body(), deleted=True)
    jobs.reconcile(UID, at(2))
    assert not any(jobs.demand.marks.values()), "kubelet does not end it yet"
    metadata = {"deletionTimestamp": format_time(at(32)), "resourceVersion": "1000000"}
    take(state, pod_body(status=pod_status("Running", started=START), metadata=metadata))
    jobs.reconcile(UID, at(2))
    marked = {name: marks[CLAIM] for name, marks in jobs.demand.marks.items() if marks}
    assert set(marked) == servers
    assert all(a.release_deadline == at(32) for a in marked.values())
    assert not any(jobs.demand.releases.values())


@pytest.mark.parametrize("code", [1, 137, 143])
def test_what_a_termination_on_purpose_causes_is_no_failure_of_the_program(code: int):
    said = "RuntimeError: CUDA error: the MPS client has been terminated by the server"
    status = pod_status("Failed", exit_code=code, message=said, started=at(2), finished=at(60))
    pod = a_pod(status=status, metadata={"deletionTimestamp": format_time(at(90))})
    made = plan(pod, outcome=None)
    assert made.attempts[-1].outcome is Outcome.POD_DELETED
    assert made.wants_gpu is False
    assert (made.phase, made.reason) == (Phase.QUEUED, "Ending")
