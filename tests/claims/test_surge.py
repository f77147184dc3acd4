"""What a rollout is told whose new Pod waits for the slice of an old one."""

from typing import Any

import pytest

from partita.claims.surge import explain_surge
from partita.models import Allocation
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.views import PodView
from support.claims import a_claiming_pod, claim_entry

WHY = WaitingReason(Reason.INSUFFICIENT_MEMORY, "needs 8.0 GiB of GPU memory")
HELD = {"shared-0": Allocation.model_validate(claim_entry())}


def of_deployment(name: str, revision: str, **fields: Any) -> PodView:
    owner = {"kind": "ReplicaSet", "name": f"serve-{revision}", "uid": f"uid-{revision}"}
    return a_claiming_pod(name, owner=owner, labels={"pod-template-hash": revision}, **fields)


NEW, OLD = of_deployment("serve-b-2", "b"), of_deployment("serve-a-1", "a")


def test_a_surge_pod_is_told_to_write_max_surge_0() -> None:
    why = explain_surge(WHY, NEW, [(OLD, HELD)])
    assert why.reason is Reason.NO_ROOM_FOR_SURGE
    assert why.message == (
        "the rollout of Deployment serve starts this Pod before Pod serve-a-1 ends, which has "
        "8.0 GiB on shared-0, and there is no room for both: write maxSurge: 0 and "
        "maxUnavailable: 1 in strategy.rollingUpdate; needs 8.0 GiB of GPU memory"
    )


@pytest.mark.parametrize(
    ("pod", "beside"),
    [
        (NEW, []),
        (NEW, [(of_deployment("serve-b-1", "b"), HELD)]),
        (NEW, [(OLD, {})]),
        (NEW, [(of_deployment("serve-a-1", "a", phase="Succeeded"), HELD)]),
        (a_claiming_pod("job-1", owner={"kind": "Job", "name": "job"}), [(OLD, HELD)]),
        (a_claiming_pod("alone"), []),
    ],
)
def test_other_pods_are_told_nothing_about_rollouts(pod: PodView, beside: Any) -> None:
    assert explain_surge(WHY, pod, beside) == WHY


def test_a_pod_that_waits_for_something_else_is_told_that() -> None:
    never = WaitingReason(Reason.NEVER_FITS, "needs 90.0 GiB")
    assert explain_surge(never, NEW, [(OLD, HELD)]) == never
