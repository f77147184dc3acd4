"""What is decided about claims is written, and the state follows."""

from typing import Any

from structlog.testing import capture_logs

from partita.claims.claim_allocations import ClaimAllocations
from partita.claims.claim_lifecycle import CLEARED_WITHIN
from partita.claims.claim_reconciler import ClaimReconciler
from partita.pods.claim_allocation import claim_allocation, slice_parameters
from partita.scheduling.demand import Demand
from support.builders import (
    GIB,
    START,
    a_server,
    a_state,
    allocation,
    an_allocation,
    gpus_up,
    partition_body,
    pod_status,
    server_body,
)
from support.claims import claim_body, claim_entry, claiming_pod_body
from support.fake_kube import FakeKube, Notes

UID = "uid-serve-1-gpu"
RUNNING, ENDED = (pod_status(p, started=START, finished=START) for p in ("Running", "Succeeded"))


class World:
    """A Pod on a node, for which its claim is allocated and reserved, and a ledger."""

    def __init__(self, ledger: dict[str, Any], pod: dict[str, Any]) -> None:
        slices = [slice_parameters(an_allocation(), a_server())]
        allocated = claim_allocation(UID, "gpu", slices, "node-1", START)
        reserved = [{"resource": "pods", "name": "serve-1", "uid": "uid-serve-1"}]
        claim = claim_body(status={"allocation": allocated, "reservedFor": reserved})
        server, user = server_body(allocations=ledger), claiming_pod_body(node="node-1", status=pod)
        self.kube, self.notes = FakeKube(server, user, claim), Notes()
        self.state = a_state(partition_body(), *gpus_up(server))
        self.state.apply_pod(user)
        self.state.apply_claim(claim)
        self.claims = ClaimReconciler(self.state, Demand(self.state))

    async def carry_out(self) -> list[tuple[str, str]]:
        """Carry out the plan; return what is written."""
        api: Any = self.kube
        events: Any = self.notes
        now = START + CLEARED_WITHIN
        plan = self.claims.reconcile
        writer = ClaimAllocations(api, self.state, self.claims, events, plan=plan, now=lambda: now)
        self.state.queues.jobs.start(UID)
        await writer.carry_out(UID)
        return [(verb, name) for verb, name, _ in self.kube.writes]


async def test_a_slice_of_a_pod_that_has_ended_is_free_although_its_reservation_stays() -> None:
    world = World({UID: claim_entry()}, ENDED)
    assert await world.carry_out() == [("patch", "serve-1-gpu")]
    assert world.state.claims[UID].allocation is None
    assert world.claims.record(UID).plan.release


async def test_a_running_pod_whose_allocation_is_cleared_is_evicted() -> None:
    world = World({UID: claim_entry()}, RUNNING)
    assert await world.carry_out() == []
    cleared = {"status": {"allocation": None, "reservedFor": None}}
    world.state.apply_claim(world.kube.bump("serve-1-gpu", cleared))
    assert await world.carry_out() == [("evict", "serve-1")]
    said = "AllocationCleared: it is evicted: the allocation of its claim was cleared"
    assert world.notes.said == [said]
    assert not world.claims.record(UID).plan.release


async def test_a_pod_whose_memory_belongs_to_another_by_now_is_evicted() -> None:
    world = World({"claim-other": allocation("other", memory=35 * GIB)}, RUNNING)
    assert await world.carry_out() == [("evict", "serve-1")]
    (said,) = world.notes.said
    assert said.startswith("NotInLedger: it is evicted: ")
    assert "has no room for it any more" in said


async def test_a_claim_that_is_deleted_while_it_is_prepared_is_let_go() -> None:
    world = World({UID: claim_entry()}, {})
    world.state.apply_pod(world.kube.bump("serve-1", {"spec": {"nodeName": None}}))
    cleared = {"status": {"allocation": None, "reservedFor": None}}
    claim = world.kube.bump("serve-1-gpu", cleared)
    world.state.apply_claim(claim)
    world.kube.meanwhile = lambda: world.state.apply_claim(claim, deleted=True)
    with capture_logs() as logs:
        assert await world.carry_out() == [("patch", "serve-1-gpu")]
    assert logs == []
