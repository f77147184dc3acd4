"""Which claims are kept, and which Pods they have.

Owner references are no proof: whoever may write a claim sets them.
"""

from typing import Any

import pytest

from partita.store.state import State
from store.objects import versioned
from support.builders import a_state, job_body, owner, partition_body, server_body, take
from support.claims import claim_body, claim_entry, claiming_pod_body, job_claim_body

OF_JOB = {"ownerReferences": [owner("SharedGPUJob", "train")]}


def pods_of(state: State, uid: str = "uid-serve-1-gpu") -> list[str]:
    return [pod.name for pod in state.pods_of(uid)]


def state_with(*claims: dict[str, Any], pods: tuple[dict[str, Any], ...]) -> State:
    state = State()
    for pod in pods:
        state.apply_pod(pod)
    for claim in claims:
        state.apply_claim(claim)
    return state


def test_a_claim_made_for_a_pod_is_that_pods_before_the_pods_status_names_it() -> None:
    pod = claiming_pod_body(status={"resourceClaimStatuses": []})
    assert pods_of(state_with(claim_body(), pods=(pod,))) == ["serve-1"]


def test_a_claim_that_a_pod_names_is_that_pods() -> None:
    mine = claim_body("mine", pod="")
    users = [claiming_pod_body(name, claim="mine") for name in ("b", "a")]
    assert pods_of(state_with(mine, pods=(*users,)), "uid-mine") == ["a", "b"]


def test_of_too_many_pods_those_that_use_the_claim_come_first() -> None:
    pods = [claiming_pod_body(f"a-{n}", claim="mine") for n in range(300)]
    pods += [claiming_pod_body("bound", claim="mine", node="node-a")]
    pods += [claiming_pod_body("over", claim="mine", node="node-a", phase="Succeeded")]
    reserved = [{"resource": "pods", "name": "over", "uid": "uid-over"}]
    mine = claim_body("mine", pod="", status={"reservedFor": reserved})
    found = pods_of(state_with(mine, pods=(*pods,)), "uid-mine")
    assert (len(found) < 70, {"bound", "over"} <= {*found}) == (True, True)


def test_a_claim_never_has_a_pod_of_another_namespace() -> None:
    forged = claim_body(namespace="team-evil")
    assert pods_of(state_with(forged, pods=(claiming_pod_body(),))) == []


def test_an_owner_that_does_not_control_the_claim_is_not_its_pod() -> None:
    forged = claim_body()
    forged["metadata"]["ownerReferences"][0]["controller"] = False
    pod = claiming_pod_body(status={"resourceClaimStatuses": []})
    assert pods_of(state_with(forged, pods=(pod,))) == []


def test_a_pod_in_the_ledger_stays_the_claims_when_the_claims_owner_is_changed() -> None:
    moved = claim_body(pod="other")
    state = state_with(moved, pods=(claiming_pod_body(), claiming_pod_body("other")))
    state.apply_server(
        server_body("shared-0", status={"allocations": {"uid-serve-1-gpu": claim_entry()}})
    )
    assert pods_of(state) == ["other", "serve-1"]


class TestClaimsOfJobs:
    def test_a_claim_is_kept_with_its_job_and_does_not_wait_for_a_gpu(self) -> None:
        state = a_state(partition_body(), job_body())
        state.queues.jobs.take()
        take(state, job_claim_body(attempt=2))
        (found,) = state.claims_of_user("uid-train")
        assert (found.job, found.job_uid, found.attempt) == ("train", "uid-train", 2)
        assert state.claim_named("team-a", "train-2.partita.dev") is found
        assert state.user_of("claim-train-2") == "uid-train"
        assert list(state.claims_of("shared")) == []
        assert state.queues.jobs.take() == {"uid-train"}

    @pytest.mark.parametrize("name", ["train-x.partita.dev", "other-2.partita.dev"])
    def test_another_name_is_of_no_attempt(self, name: str) -> None:
        state = a_state(claim_body(name, pod="", metadata=OF_JOB))
        assert [claim.attempt for claim in state.claims_of_user("uid-train")] == [0]

    def test_a_claim_that_a_user_could_have_made_is_of_no_job(self) -> None:
        state = a_state(partition_body(), claim_body("train-1", pod="", metadata=OF_JOB))
        assert state.claims_of_user("uid-train") == []
        assert list(state.claims_of("shared")) == ["uid-train-1"]

    def test_without_the_owner_reference_it_stays_with_its_job(self) -> None:
        state = a_state(job_claim_body(), job_claim_body(metadata={"ownerReferences": []}))
        assert [claim.uid for claim in state.claims_of_user("uid-train")] == ["claim-train"]

    def test_an_older_version_changes_nothing(self) -> None:
        state = a_state(versioned(job_claim_body(allocated=True), 2))
        state.queues.jobs.take()
        take(state, versioned(job_claim_body(), 1))
        assert [claim.allocation is None for claim in state.claims_of_user("uid-train")] == [False]
        assert state.queues.jobs.take() == set()

    def test_a_deleted_claim_leaves_nothing(self) -> None:
        state = a_state(job_claim_body())
        state.queues.jobs.take()
        take(state, job_claim_body(), deleted=True)
        assert (state.claims, state.claims_of_user("uid-train")) == ({}, [])
        assert state.claim_named("team-a", "train-1.partita.dev") is None
        assert state.queues.jobs.take() == {"uid-train"}


def test_claims_of_probe_pods_are_not_kept() -> None:
    state = a_state(claim_body("shared-0-probe.partita.dev", pod="shared-0-probe"))
    assert state.claims == {}
