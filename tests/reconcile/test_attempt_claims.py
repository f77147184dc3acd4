"""Which claims of a job are deleted, and which are created again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from partita.informer.own_claims import OwnClaim
from partita.informer.views import PodView
from partita.models import Allocation
from partita.reconcile.attempt_claims import AttemptClaims, plan_claims
from support.builders import allocation, pod_body, pod_status, view_of


def claim(attempt: int = 1, *, allocated: bool = True, deleting: bool = False) -> OwnClaim:
    name = f"train-{attempt}.shared-0.partita.dev"
    return OwnClaim(name, name, "team-a", 1, "uid-train", attempt, allocated, deleting)


def pod(attempt: int = 1, phase: str = "Pending", node: str = "", **fields: Any) -> PodView:
    body = pod_body(metadata={"name": f"train-{attempt}"}, status=pod_status(phase))
    return replace(view_of(body), node=node, own_claims=(claim(attempt).name,), **fields)


def plan(
    *claims: OwnClaim, pods: tuple[PodView, ...] = (), attempt: int = 0, release: bool = False
) -> AttemptClaims:
    entry = Allocation.model_validate(allocation(attempt=attempt)) if attempt else None
    allocated = {"shared-0": entry} if entry is not None else {}
    return plan_claims(claims, pods, allocated, release=release)


def test_a_running_attempt_keeps_its_claim() -> None:
    running = pod(phase="Running", node="node-1")
    assert plan(claim(), pods=(running,), attempt=1) == AttemptClaims()
    assert plan(claim(), attempt=1) == AttemptClaims()  # its Pod is not created yet


def test_a_claim_that_no_attempt_needs_is_deleted() -> None:
    assert plan(claim(), claim(2), attempt=2) == AttemptClaims(delete=(claim(),))
    assert plan(claim()) == AttemptClaims(delete=(claim(),))
    assert plan(claim(), attempt=1, release=True) == AttemptClaims(delete=(claim(),))
    assert plan(claim(deleting=True)) == AttemptClaims()


def test_a_claim_is_not_deleted_under_a_pod_that_may_run() -> None:
    ending = pod(phase="Running", node="node-1", deleting=True)
    assert plan(claim(), pods=(ending,), attempt=1, release=True) == AttemptClaims()
    over = pod(phase="Succeeded", node="node-1")
    assert plan(claim(), pods=(over,)) == AttemptClaims(delete=(claim(),))


@pytest.mark.parametrize("lacking", [(), (claim(allocated=False),)], ids=["gone", "cleared"])
def test_a_pod_that_waits_gets_its_claim_again(lacking: tuple[OwnClaim, ...]) -> None:
    assert plan(*lacking, pods=(pod(),), attempt=1) == AttemptClaims(restore=1)


@pytest.mark.parametrize(
    "other",
    [
        pod(node="node-1"),
        pod(deleting=True),
        pod(phase="Succeeded"),
    ],
    ids=["bound", "being deleted", "over"],
)
def test_another_pod_gets_none(other: PodView) -> None:
    assert plan(pods=(other,), attempt=1).restore is None


def test_a_claim_that_is_being_deleted_is_waited_for() -> None:
    assert plan(claim(deleting=True), pods=(pod(),), attempt=1) == AttemptClaims()
