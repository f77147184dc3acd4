"""What is decided about claims is written, and the state follows."""

from typing import Any

from partita.claims.claim_allocations import ClaimAllocations
from partita.claims.claim_lifecycle import CLEARED_WITHIN
from partita.claims.claim_reconciler import ClaimReconciler
from partita.models.quantities import format_time
from partita.scheduling.demand import Demand
from support.builders import START, a_state, partition_body, pod_status, server_body
from support.claims import claim_allocation_body, claim_body, claim_entry, claiming_pod_body
from support.fake_kube import FakeKube

UID = "uid-serve-1-gpu"


async def test_a_slice_of_a_pod_that_has_ended_is_free_although_its_reservation_stays() -> None:
    status = {
        "allocation": {**claim_allocation_body(), "allocationTimestamp": format_time(START)},
        "reservedFor": [{"resource": "pods", "name": "serve-1", "uid": "uid-serve-1"}],
    }
    ended = pod_status("Succeeded", started=START, finished=START)
    claim, pod = claim_body(status=status), claiming_pod_body(node="node-1", status=ended)
    state = a_state(partition_body(), server_body(allocations={UID: claim_entry()}))
    state.apply_pod(pod)
    state.apply_claim(claim)
    kube = FakeKube(pod, claim)
    claims = ClaimReconciler(state, Demand(state))
    api: Any = kube
    events: Any = None
    now = START + CLEARED_WITHIN
    writer = ClaimAllocations(api, state, claims, events, now=lambda: now)
    state.queues.jobs.start(UID)
    await writer.carry_out(UID)
    assert kube.objects[claim["metadata"]["name"]]["status"] == {}
    assert state.claims[UID].allocation is None
    assert claims.plan_of(UID).release
