"""What is decided about claims is written, and the state follows."""

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from partita.claims.claim_allocations import ClaimAllocations
from partita.claims.claim_lifecycle import CLEARED_WITHIN, RefusedMemory
from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.refused_memories import add_refused
from partita.kube.errors import UnavailableError
from partita.pods.claim_allocation import claim_allocation, slice_parameters
from partita.scheduling.demand import Demand
from partita.times import Times
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
    profile_body,
    server_body,
)
from support.claims import claim_body, claim_entry, claiming_pod_body
from support.fake_kube import FakeKube, Notes

UID = "uid-serve-1-gpu"
RUNNING, ENDED = (pod_status(p, started=START, finished=START) for p in ("Running", "Succeeded"))

CLEARED = {"status": {"allocation": None, "reservedFor": None}}


class World:
    """A Pod on a node, for which its claim is allocated and reserved, and a ledger."""

    def __init__(self, ledger: dict[str, Any], pod: dict[str, Any], **server_spec: Any) -> None:
        slices = [slice_parameters(an_allocation(), a_server())]
        allocated = claim_allocation(UID, "gpu", slices, "node-1", START)
        reserved = [{"resource": "pods", "name": "serve-1", "uid": "uid-serve-1"}]
        claim = claim_body(status={"allocation": allocated, "reservedFor": reserved})
        server = server_body(allocations=ledger, **server_spec)
        user = claiming_pod_body(node="node-1", status=pod)
        self.kube, self.notes = FakeKube(server, user, claim), Notes()
        self.state = a_state(partition_body(), *gpus_up(server))
        self.state.apply_pod(user)
        self.state.apply_claim(claim)
        self.claims = ClaimReconciler(self.state, Demand(self.state))

    async def carry_out(self) -> list[tuple[str, str]]:
        """Carry out the plan; return what is written."""
        api: Any = self.kube
        events: Any = self.notes
        self.state.now = lambda: START + CLEARED_WITHIN
        plan = self.claims.reconcile
        writer = ClaimAllocations(api, self.state, self.claims, events, plan=plan)
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
    world.state.apply_claim(world.kube.bump("serve-1-gpu", CLEARED))
    assert await world.carry_out() == [("evict", "serve-1")]
    said = "AllocationCleared: it is evicted: the allocation of its claim was cleared"
    assert world.notes.said == [said]
    assert not world.claims.record(UID).plan.release


@pytest.mark.parametrize(("status", "why", "told"), [
    (429, "it would violate the pod's disruption budget.", ["NotEvicted"]),
    (500, "more than one PodDisruptionBudget", ["NotEvicted"]),
    (429, "Too many requests, please try again later.", []),
])  # fmt: skip
async def test_only_a_budget_protects_a_pod_and_its_claim_is_looked_at_again(status, why, told):
    world = World({"claim-other": allocation("other", memory=35 * GIB)}, RUNNING)
    world.kube.errors = [UnavailableError("evict", status, why)]
    await world.carry_out()
    assert world.state.queues.jobs.processing == (set() if told else {UID})
    assert [said.partition(": ")[0] for said in world.notes.said] == told


async def test_a_pod_that_has_ended_unseen_keeps_its_logs() -> None:
    world = World({UID: claim_entry()}, RUNNING)
    assert await world.carry_out() == []
    world.state.apply_claim(world.kube.bump("serve-1-gpu", CLEARED))
    world.kube.bump("serve-1", {"status": ENDED})
    assert await world.carry_out() == []


async def test_a_pod_runs_on_while_its_gpu_server_cannot_be_read() -> None:
    world = World({UID: claim_entry()}, RUNNING, mode="OfALaterVersion")
    assert world.state.allocated(UID) == {}
    assert await world.carry_out() == []


async def test_a_pod_that_a_budget_has_protected_is_a_victim_again_later() -> None:
    world = World({UID: claim_entry()}, RUNNING)
    partitions, later = world.state.queues.partitions, START + timedelta(seconds=Times().protected)
    world.claims.reconcile(UID, START)
    world.claims.not_evicted(UID, START)
    partitions.take()
    assert world.claims.requeue_at(UID, START) == later
    world.claims.reconcile(UID, later)
    assert partitions.take() == {"shared"}


async def test_a_pod_whose_memory_belongs_to_another_by_now_is_evicted() -> None:
    world = World({"claim-other": allocation("other", memory=35 * GIB)}, RUNNING)
    assert await world.carry_out() == [("evict", "serve-1")]
    (said,) = world.notes.said
    assert said.startswith("NotInLedger: it is evicted: ")
    assert "has no room for it any more" in said


async def test_a_claim_that_is_deleted_while_it_is_prepared_is_let_go() -> None:
    world = World({UID: claim_entry()}, {})
    world.state.apply_pod(world.kube.bump("serve-1", {"spec": {"nodeName": None}}))
    claim = world.kube.bump("serve-1-gpu", CLEARED)
    world.state.apply_claim(claim)
    world.kube.meanwhile = lambda: world.state.apply_claim(claim, deleted=True)
    with capture_logs() as logs:
        assert await world.carry_out() == [("patch", "serve-1-gpu")]
    assert logs == []


async def test_refused_memory_is_added_to_a_profile_that_no_watch_has_told_of() -> None:
    kube, state = FakeKube(profile_body()), a_state()
    refused = RefusedMemory("team-a", "resnet", GIB)
    for _ in range(2):
        assert await add_refused(kube, state, refused, START)  # type: ignore[arg-type]
    assert state.profiles.refused("team-a", "resnet") == GIB
