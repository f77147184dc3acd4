"""A claim of several GPUs gets all of them or none, whatever comes between the writes."""

from types import SimpleNamespace
from typing import Any

import pytest

from partita.claims.claim_lifecycle import ClaimPlan
from partita.claims.claim_reconciler import ClaimReconciler
from partita.jobs.job_reconciler import JobReconciler
from partita.process.cycle_writer import CycleWriter
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.ledger import LedgerChanges
from partita.scheduling.snapshot import gpus_of
from partita.store.state import State
from partita.times import Times
from partita_policies.types import Job
from support.builders import START, a_state, gpus_up, partition_body, server_body
from support.claims import claim_body, claim_request, claiming_pod_body
from support.fake_kube import DOWN, FakeKube

UID, NAME = "uid-serve-1-gpu", "serve-1-gpu"
GPUS = ("shared-0", "shared-1")
ASKS = Job(UID, f"team-a/{NAME}", "team-a", memory=1, gpus=2, alone=True)


class World:
    """A Pod with a claim of two GPUs, and what an operator knows of them.

    Parameters
    ----------
    kube
        What an earlier operator has left.
    """

    def __init__(self, kube: FakeKube | None = None) -> None:
        self.partition = partition_body(gpus=2, sharing={"mode": "Exclusive"})
        gpus = [server_body(name, mode="Exclusive") for name in GPUS]
        claim = claim_body(requests=[claim_request(count=2)])
        self.kube = kube or FakeKube(*gpus, claim, claiming_pod_body())
        there = [self.kube.objects[name] for name in GPUS]
        self.state: State = a_state(self.partition, *gpus_up(*there))
        self.state.apply_pod(self.kube.objects["serve-1"])
        self.state.apply_claim(self.kube.objects[NAME])
        jobs = JobReconciler(self.state)
        self.claims = ClaimReconciler(self.state, jobs.demand)
        events: Any = SimpleNamespace(inform=lambda *_: None)
        api: Any = self.kube
        self.writer = CycleWriter(
            api, self.state, jobs, self.claims, events, now=lambda: START, times=Times(0.01)
        )

    def plan(self) -> ClaimPlan:
        return self.claims.reconcile(UID, START)

    async def place(self) -> None:
        """Write what a cycle has decided."""
        partition = self.state.partitions["shared"]
        gpus = {gpu.id: gpu for gpu in gpus_of(partition, self.state)}
        result = CycleResult(placed=[(ASKS, GPUS)], allocated=gpus)
        await self.writer.write(partition, result, LedgerChanges())

    async def give_back(self) -> None:
        """Write the releases that a cycle takes up."""
        changes = LedgerChanges()
        changes.release(UID, self.state.allocated(UID))
        await self.writer.write(None, CycleResult(), changes)

    @property
    def entries(self) -> list[dict[str, Any]]:
        ledgers = [self.kube.objects[name]["status"].get("allocations", {}) for name in GPUS]
        return [ledger[UID] for ledger in ledgers if ledger.get(UID)]

    @property
    def allocation(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kube.objects[NAME]["status"].get("allocation", {})
        return found


async def test_it_gets_a_device_on_each_gpu() -> None:
    world = World()
    assert world.plan().wants_gpu
    await world.place()
    assert [entry.get("storesUsage", True) for entry in world.entries] == [True, False]
    devices = world.allocation["devices"]
    assert [(one["request"], one["pool"]) for one in devices["results"]] == [
        ("gpu", name) for name in GPUS
    ]
    assert [one["opaque"]["parameters"]["gpu"] for one in devices["config"]] == [
        world.state.servers[name].status.uuid for name in GPUS
    ]
    said = world.kube.objects[NAME]["metadata"]["annotations"]["partita.dev/status"]
    assert said == "Allocated: 37.2 GiB on shared-0, shared-1 (node node-1)"


@pytest.mark.parametrize("restarted", [False, True])
async def test_what_has_only_a_part_of_its_gpus_gives_it_back(*, restarted: bool) -> None:
    world = World()
    world.plan()
    world.kube.errors = [None, DOWN]
    await world.place()
    assert (len(world.entries), world.allocation) == (1, {})
    if restarted:
        world = World(world.kube)
    plan = world.plan()
    assert (plan.release, plan.allocate, plan.wants_gpu) == (True, False, False)
    await world.give_back()
    assert world.entries == []
    assert world.plan().wants_gpu
    await world.place()
    assert len(world.entries) == len(world.allocation["devices"]["results"]) == 2
