"""What a rollout is told whose new Pod waits for the slice of an old one."""

from typing import Any

import pytest

from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.surge import explain_surge, holders
from partita.models import Allocation
from partita.scheduling.cycle_result import Explained
from partita.scheduling.demand import Demand
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.views import PodView
from support.builders import START, a_state, partition_body, server_body
from support.claims import a_claiming_pod, claim_body, claim_entry, claiming_pod_body

WHY = WaitingReason(Reason.INSUFFICIENT_MEMORY, "needs 8.0 GiB of GPU memory")
HELD = {"shared-0": Allocation.model_validate(claim_entry())}


def of_deployment(name: str, revision: str) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": f"serve-{revision}", "uid": f"uid-{revision}"}
    return {"name": name, "owner": owner, "labels": {"pod-template-hash": revision}}


NEW = a_claiming_pod(**of_deployment("serve-b-2", "b"))
OLD = a_claiming_pod(**of_deployment("serve-a-1", "a"))


def test_surge_pods_are_told_to_write_max_surge_0_and_others_are_looked_at_once() -> None:
    entry = claim_entry("serve-a-1-gpu", pod="serve-a-1")
    state = a_state(partition_body(), server_body(allocations={"uid-serve-a-1-gpu": entry}))
    claims, looks = ClaimReconciler(state, Demand(state)), list[PodView]()
    for name in ("serve-a-1", "serve-b-1", "serve-b-2"):
        state.apply_pod(claiming_pod_body(**of_deployment(name, name[6])))
        state.apply_claim(claim_body(f"{name}-gpu", pod=name))
        claims.reconcile(f"uid-{name}-gpu", START)
    of_controller = state.pods_beside
    state.pods_beside = lambda pod: looks.append(pod) or of_controller(pod)
    for name in ("serve-b-1", "serve-b-2"):
        claims.explain(f"uid-{name}-gpu", Explained(WHY, 1, 0, 1, START))
        assert claims.record(f"uid-{name}-gpu").why == WaitingReason(
            Reason.NO_ROOM_FOR_SURGE,
            "the rollout of Deployment serve starts this Pod before Pod serve-a-1 ends, which has "
            "8.0 GiB on shared-0, and there is no room for both: write maxSurge: 0 and "
            "maxUnavailable: 1 in strategy.rollingUpdate; needs 8.0 GiB of GPU memory",
        )
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("pod", "beside", "why"),
    [
        (NEW, [(a_claiming_pod(**of_deployment("serve-b-1", "b")), HELD)], WHY),
        (NEW, [(OLD, {})], WHY),
        (NEW, [(a_claiming_pod(**of_deployment("serve-a-1", "a"), phase="Succeeded"), HELD)], WHY),
        (a_claiming_pod("job-1", owner={"kind": "Job", "name": "job"}), [(OLD, HELD)], WHY),
        (a_claiming_pod("alone"), [(OLD, HELD)], WHY),
        (NEW, [(OLD, HELD)], WaitingReason(Reason.NEVER_FITS, "needs 90.0 GiB")),
    ],
)
def test_others_are_told_nothing_about_rollouts(pod: PodView, beside: Any, why: WaitingReason):
    assert explain_surge(why, pod, lambda: holders(beside)) == why
