"""The claims of the operator's own Pods, as the operator keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from partita.kube.kinds import CLAIMS
from partita.store.missing import forget_missing
from partita.store.state import State
from support.builders import a_state, job_body, meta, owner

NAME = "train-2.shared-0.partita.dev"


def claim_body(name: str = NAME, version: int = 1, **fields: Any) -> dict[str, Any]:
    own = {"uid": "claim", "namespace": "team-a", "resourceVersion": str(version)}
    own |= {"ownerReferences": [owner("SharedGPUJob", "train")], **fields.pop("metadata", {})}
    exactly = {"deviceClassName": "shared.gpu.partita.dev"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return {"metadata": meta(name, **own), "spec": spec, "status": {}, **fields}


@pytest.fixture
def state() -> State:
    made = a_state(job_body())
    made.queues.jobs.take()
    return made


def test_a_claim_of_a_job_does_not_wait_for_a_gpu(state: State) -> None:
    state.apply_claim(claim_body())
    assert state.claims == {}
    (found,) = state.own_claims.of("uid-train")
    assert (found.attempt, found.allocated, found.deleting) == (2, False, False)
    assert state.own_claims.named("team-a", NAME) is found
    assert state.queues.jobs.take() == {"uid-train"}


def test_newer_versions_replace_older_ones(state: State) -> None:
    state.apply_claim(claim_body(version=2, status={"allocation": {"devices": {}}}))
    state.queues.jobs.take()
    state.apply_claim(claim_body(version=1))
    (found,) = state.own_claims.of("uid-train")
    assert found.allocated
    assert state.queues.jobs.take() == set()
    state.apply_claim(claim_body(version=3), deleted=True)
    assert list(state.own_claims.of("uid-train")) == []
    assert state.own_claims.named("team-a", NAME) is None
    assert state.queues.jobs.take() == {"uid-train"}


def test_a_claim_that_a_list_lacks_is_gone(state: State) -> None:
    state.apply_claim(claim_body())
    assert forget_missing(state, CLAIMS, [], 9) == 1
    assert list(state.own_claims.of("uid-train")) == []


@pytest.mark.parametrize(
    ("name", "attempt"),
    [(NAME, 2), ("train-x.shared-0.partita.dev", 0), ("other-2.shared-0.partita.dev", 0)],
)
def test_the_attempt_follows_from_the_name(state: State, name: str, attempt: int) -> None:
    state.apply_claim(claim_body(name))
    (found,) = state.own_claims.of("uid-train")
    assert found.attempt == attempt
