"""The Pods of a job: which of them are attempts, and which end without one."""

from jobs.job_objects import ALLOCATED, CLAIM, UID, looked, status, world, write
from partita.claims.claim_reconciler import ClaimReconciler
from partita.jobs.job_reconciler import JobReconciler
from partita.models import Outcome, Phase
from support.builders import START, allocation, gpus_up, job_body, pod_body, server_body, take
from support.claims import claim_body


def test_a_pod_without_the_allocation_is_no_attempt():
    state, jobs = world(*gpus_up(server_body()), job_body(), pod_body(node=""))
    made = looked(jobs)
    assert (made.attempts, made.delete_pods) == ((), ())
    assert list(jobs.demand.waiting["shared"]) == [UID]
    another = allocation(podUID="another")
    take(state, server_body(allocations={CLAIM: another}))
    made = looked(jobs)
    assert (made.attempts, made.read_missing) == ((), True)
    assert [pod.name for pod in made.delete_pods] == ["train-1"]
    take(state, server_body(allocations=ALLOCATED))
    assert [a.pod_uid for a in looked(jobs).attempts] == ["pod-train-1"]


def test_a_pod_that_is_deleted_with_its_gate_ends_its_attempt_if_it_was_allocated():
    state, jobs = world(*gpus_up(server_body(allocations=ALLOCATED)), job_body())
    pod = pod_body(node="")
    take(state, pod)
    take(state, pod, deleted=True)
    assert outcomes(jobs) == [Outcome.POD_DELETED]
    state, jobs = world(*gpus_up(server_body()), job_body(), pod)
    take(state, pod, deleted=True)
    assert outcomes(jobs) == []


def test_a_pod_that_another_controller_has_not_admitted_is_waited_for():
    held = pod_body(node="", gated=True)
    held["spec"]["schedulingGates"].append({"name": "kueue.x-k8s.io/admission"})
    state, jobs = world(*gpus_up(server_body()), job_body(), held)
    looked(jobs)
    assert jobs.demand.waiting["shared"] == {}
    assert (status(jobs).reason, status(jobs).phase) == ("SchedulingGated", Phase.QUEUED)
    assert "scheduling gate kueue.x-k8s.io/admission removes it" in status(jobs).message
    take(state, pod_body(node="", gated=True))
    looked(jobs)
    assert list(jobs.demand.waiting["shared"]) == [UID]


def test_a_pod_with_a_second_claim_of_partita_ends_and_is_not_tried_again():
    pod = pod_body(node="", gated=True)
    state, jobs = world(*gpus_up(server_body(allocations=ALLOCATED)), job_body(), pod)
    made_for = {"apiVersion": "v1", "kind": "Pod", "name": "train-1", "uid": "pod-train-1"}
    meta = {"ownerReferences": [made_for | {"controller": True}]}
    take(state, claim_body("forged", namespace="team-evil", metadata=meta))
    assert outcomes(jobs) == [None]
    state.queues.jobs.take()
    take(state, claim_body("train-1-gpu", metadata=meta))
    ClaimReconciler(state, jobs.demand).reconcile("uid-train-1-gpu", START)
    assert UID in state.queues.jobs.take()
    assert outcomes(jobs) == [Outcome.NOT_STARTED]
    write(state, jobs)
    take(state, pod, deleted=True)
    take(state, server_body())
    looked(jobs, 60)
    assert (status(jobs, 60).reason, jobs.demand.waiting["shared"]) == ("InvalidSpec", {})
    assert "write the amounts in spec.gpuMemory" in status(jobs, 60).message


def outcomes(jobs: JobReconciler) -> list[Outcome | None]:
    return [attempt.outcome for attempt in looked(jobs).attempts]
