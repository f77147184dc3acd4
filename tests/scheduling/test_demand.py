"""A run of a known application ends: what its queued jobs ask for follows, at little cost."""

from typing import Any

import pytest

from partita.claims.claim_reconciler import ClaimReconciler
from partita.jobs.job_reconciler import JobReconciler
from partita.models.quantities import format_time
from partita.scheduling.avoided_nodes import AVOIDED_FOR
from partita.scheduling.snapshot import gpus_of
from partita.scheduling.waiting_jobs import WaitingJobs
from partita.store.state import State
from support.builders import (
    GIB,
    START,
    a_state,
    allocation,
    gpus_up,
    job_body,
    partition_body,
    profile_body,
    server_body,
    take,
)
from support.claims import claim_body, claiming_pod_body

HISTORY: dict[str, Any] = {"gpuMemory": None}
"""Takes its memory from the history of its application."""


def world(
    *bodies: dict[str, Any], server: dict[str, Any] | None = None
) -> tuple[State, JobReconciler]:
    gpus = gpus_up(server or server_body())
    state = a_state(partition_body(), profile_body(), *gpus, *bodies)
    jobs = JobReconciler(state)
    jobs.refresh_largest("shared")
    look_at_all(state, jobs)
    return state, jobs


def look_at_all(state: State, jobs: JobReconciler) -> None:
    for uid in state.queues.jobs.take():
        jobs.reconcile(uid, START)
    state.queues.applications.take()
    state.queues.partitions.take()


def a_job(name: str = "train", **fields: Any) -> dict[str, Any]:
    return job_body(name, application="resnet", **fields)


def renew(state: State, jobs: JobReconciler) -> set[str]:
    """Return what is to be looked at."""
    return jobs.demand.renew(state.queues.applications.take())


def test_what_waits_behind_those_considered_causes_no_cycle():
    state, jobs = world()
    jobs.demand.waiting["shared"] = WaitingJobs(1)
    for name, deleted, cycle in (("a", False, True), ("b", False, False), ("a", True, True)):
        take(state, a_job(name), deleted=deleted)
        jobs.reconcile(f"uid-{name}", START)
        assert bool(state.queues.partitions.take()) is cycle


def test_jobs_of_one_application_and_its_allocations_share_one_profile():
    allocated = server_body(allocations={"claim-runs": allocation("runs", application="resnet")})
    bodies = (a_job("runs"), a_job("a"), a_job("b", **HISTORY))
    state, jobs = world(*bodies, server=allocated)
    (gpu,) = gpus_of(state.partitions["shared"], state)
    one, other = (jobs.demand.waiting["shared"][uid] for uid in ("uid-a", "uid-b"))
    assert one.profile is not None
    assert one.profile is other.profile is gpu.running[0].profile


def test_jobs_that_name_their_memory_get_the_new_profile_without_a_look():
    state, jobs = world(*(a_job(f"job-{n}") for n in range(20)), job_body("other"))
    before = dict(jobs.demand.waiting["shared"])
    take(state, profile_body(duration="90s", peak="36Gi", runs=2))
    assert renew(state, jobs) == set()
    assert state.queues.jobs.take() == set()
    assert state.queues.partitions.take() == {"shared"}
    renewed = {uid for uid, job in jobs.demand.waiting["shared"].items() if job is not before[uid]}
    assert renewed == {f"uid-job-{n}" for n in range(20)}
    (profile,) = {id(jobs.demand.waiting["shared"][uid].profile) for uid in renewed}
    assert profile == id(state.profiles.profile("team-a", "resnet"))
    assert {jobs.demand.waiting["shared"][uid].duration for uid in renewed} == {90}


def test_jobs_that_take_their_memory_from_it_are_looked_at():
    state, jobs = world(a_job("named"), a_job(**HISTORY))
    take(state, profile_body(peak="10Gi", runs=2))
    assert renew(state, jobs) == {"uid-train"}
    jobs.reconcile("uid-train", START)
    assert jobs.demand.waiting["shared"]["uid-train"].memory == 11 * GIB


def test_so_are_those_that_the_history_kept_out_of_the_queue():
    state, jobs = world(a_job(**HISTORY))
    take(state, profile_body(peak="60Gi", runs=2))
    for uid in renew(state, jobs):
        jobs.reconcile(uid, START)
    assert jobs.demand.waiting["shared"] == {}
    take(state, profile_body(peak="10Gi", runs=3))
    assert renew(state, jobs) == {"uid-train"}


def test_a_history_that_is_deleted_is_taken_back():
    state, jobs = world(a_job("named"), a_job(**HISTORY))
    take(state, profile_body(), deleted=True)
    assert renew(state, jobs) == {"uid-train"}
    named = jobs.demand.waiting["shared"]["uid-named"]
    assert (named.profile, named.duration) == (None, None)


@pytest.mark.parametrize("spec", [{}, HISTORY])
def test_jobs_that_are_over_or_of_other_namespaces_are_left_alone(spec: dict[str, Any]):
    over = a_job("over", status={"phase": "Succeeded"}, **spec)
    state, jobs = world(over, a_job("other", namespace="team-b", **spec))
    before = dict(jobs.demand.waiting["shared"])
    take(state, profile_body(duration="90s", runs=2))
    assert renew(state, jobs) == set()
    assert jobs.demand.waiting["shared"] == before
    assert state.queues.partitions.take() == set()


def test_claims_are_looked_at_also_if_the_history_kept_them_out_of_the_queue():
    pod = claiming_pod_body(annotations={"partita.dev/application": "resnet"})
    state, jobs = world()
    take(state, profile_body(peak="60Gi"))
    state.apply_pod(pod)
    state.apply_claim(claim_body(memory=None))
    claims = ClaimReconciler(state, jobs.demand)
    claims.reconcile("uid-serve-1-gpu", START)
    assert jobs.demand.waiting["shared"] == {}
    take(state, profile_body(peak="10Gi", runs=2))
    assert renew(state, jobs) == {"uid-serve-1-gpu"}
    claims.reconcile("uid-serve-1-gpu", START)
    assert jobs.demand.waiting["shared"]["uid-serve-1-gpu"].memory == 11 * GIB


def test_a_new_pod_of_a_controller_avoids_the_node_that_rejected_another():
    owner = {"kind": "ReplicaSet", "name": "serve-7d9f", "uid": "r"}
    labels = {"pod-template-hash": "7d9f"}
    why = {"phase": "Failed", "reason": "TopologyAffinityError", "startTime": format_time(START)}
    pods = [claiming_pod_body("serve-1", owner=owner, labels=labels, node="node-1", status=why)]
    pods.append(claiming_pod_body("serve-2", owner=owner, labels=labels))
    pods.append(claiming_pod_body("other", owner=owner | {"name": "other"}))
    state, jobs = world()
    for other in gpus_up(server_body("shared-1", node="node-2")):
        take(state, other)
    jobs.refresh_largest("shared")
    claims = ClaimReconciler(state, jobs.demand)
    for pod in pods:
        name = pod["metadata"]["name"]
        state.apply_pod(pod)
        state.apply_claim(claim_body(f"{name}-gpu", pod=name))
        claims.reconcile(f"uid-{name}-gpu", START)
    found = jobs.demand.waiting["shared"]
    assert {uid: job.nodes for uid, job in found.items()} == {
        "uid-serve-2-gpu": {"node-2"},
        "uid-other-gpu": set(),
    }
    for later_or_set_back in (START + AVOIDED_FOR, START - 2 * AVOIDED_FOR):
        for name in ("serve-1", "serve-2"):
            claims.reconcile(f"uid-{name}-gpu", later_or_set_back)
        assert found["uid-serve-2-gpu"].nodes == set()
