"""The claim of a job's attempt is allocated like any other, and then the Pod is started."""

from itertools import product
from typing import Any

import pytest

from partita.claims.claim_allocations import ClaimAllocations
from partita.claims.claim_lifecycle import ClaimPlan, plan_attempt_claim
from partita.claims.claim_reconciler import ClaimReconciler
from partita.constants import ALLOCATION_GATE
from partita.jobs.job_reconciler import JobReconciler
from partita.kube.errors import ConflictError
from partita.times import Times
from support.builders import (
    DELETING,
    START,
    a_pod,
    a_state,
    allocation,
    an_allocation,
    job_body,
    partition_body,
    pod_body,
    pod_status,
    server_body,
    take,
)
from support.claims import a_job_claim, claim_request, job_claim_body
from support.fake_kube import DOWN, FakeKube
from support.polling import until

UID, CLAIM, POD, JOB = "claim-train", "train-1.partita.dev", "train-1", "uid-train"
STARTED = [("patch", CLAIM), ("patch", POD)]
ENTRY = an_allocation()
OTHER_ENTRY = an_allocation(podUID="pod-another")
PODS = [
    a_pod(attempt=attempt, gated=gated, node=node, status=status, metadata=metadata)
    for attempt, gated, node, status, metadata in product(
        (1, 2), (True, False), ("", "node-1"), (None, pod_status("Succeeded")), ({}, DELETING)
    )
]
CLAIMS = [
    a_job_claim(allocated=allocated, requests=[claim_request(count=gpus)], metadata=metadata)
    for allocated, gpus, metadata in product((True, False), (1, 2), ({}, DELETING))
]
LEDGERS = [[], [ENTRY], [OTHER_ENTRY], [ENTRY, ENTRY], [ENTRY, OTHER_ENTRY]]


def test_only_a_pod_that_all_ledgers_name_is_started() -> None:
    for pod, claim, entries in product(PODS, CLAIMS, LEDGERS):
        ledger = {f"shared-{n}": entry for n, entry in enumerate(entries)}
        waits = pod.alive and not (pod.deleting or pod.node or claim.deleting)
        starts = waits and entries == [ENTRY] * claim.count and pod.attempt == 1
        # Everything else about an attempt is planned with its job.
        assert plan_attempt_claim(claim, (a_pod(attempt=3), pod), ledger) == ClaimPlan(
            allocate=starts and claim.allocation is None,
            ungate=pod if starts and claim.allocation and pod.gated else None,
        )


class World:
    """A job whose attempt is in the ledgers, and its Pod that waits for its start."""

    def __init__(
        self,
        *,
        gpus: int = 1,
        gated: bool = True,
        server: Any = None,
        told: bool = True,
        **job: Any,
    ) -> None:
        self.pod = pod_body(gated=gated, node="")
        self.claim = job_claim_body(requests=[claim_request(count=gpus)])
        self.partition = partition_body(sharing={"oversubscription": True})
        self.job = job_body(gpus=gpus, **job)
        self.state = a_state(self.partition, self.pod, self.claim, *([self.job] if told else []))
        for n in range(gpus):
            ledger = {UID: allocation(threadPercent=50)}
            take(self.state, server_body(f"shared-{n}", allocations=ledger, **(server or {})))
        self.kube = FakeKube(self.pod, self.claim)
        self.kube.times = Times(retry_after=0.01)
        self.jobs = JobReconciler(self.state)
        self.queue = self.state.queues.jobs

    async def carry_out(self) -> list[tuple[str, str]]:
        """Carry out the plan; return what is written."""
        api: Any = self.kube
        self.state.now = lambda: START
        writer = ClaimAllocations(
            api,
            self.state,
            ClaimReconciler(self.state, self.jobs.demand),
            None,  # type: ignore[arg-type]
            plan=self.jobs.plan_claim,
        )
        before = len(self.kube.writes)
        self.queue.start(JOB)
        await writer.carry_out(JOB)
        return [(verb, name) for verb, name, _ in self.kube.writes[before:]]

    def devices(self) -> dict[str, Any]:
        """What the node is told."""
        return self.kube.objects[CLAIM]["status"]["allocation"]["devices"]


async def test_the_claim_is_allocated_before_the_gate_is_removed_and_once() -> None:
    world = World(gpus=2)
    assert await world.carry_out() == STARTED
    assert await world.carry_out() == []
    assert world.queue.processing == set()
    found = [(result["driver"], result["pool"]) for result in world.devices()["results"]]
    assert found == [("gpu.partita.dev", "shared-0"), ("gpu.partita.dev", "shared-1")]
    patch = world.kube.writes[0][2]  # it has its finalizer, and what is said is said by the job
    assert (patch["metadata"], patch["status"].keys()) == ({"uid": UID}, {"allocation"})
    assert not world.state.queues.claim_statuses.take()


async def test_an_allocation_that_was_cleared_is_written_again_while_its_pod_is_not_bound() -> None:
    assert await World(gated=False).carry_out() == [("patch", CLAIM)]


@pytest.mark.parametrize(("priority", "yields"), [(-1, True), (0, False), (5, False)])
async def test_the_node_is_told_what_the_ledger_and_the_job_say(
    priority: int, *, yields: bool
) -> None:
    world = World(framework="PyTorch", priority=priority)
    await world.carry_out()
    told = world.devices()["config"][0]["opaque"]["parameters"]
    assert (told["memory"], told["threadPercent"]) == ("8Gi", 50)
    assert (told["framework"], told["yields"]) == ("PyTorch", yields)
    assert told["oversubscription"]


async def test_other_gates_of_the_pod_stay() -> None:
    world, others = World(), [{"name": "example.org/quota"}]
    gates = [*others, {"name": ALLOCATION_GATE}]
    take(world.state, world.kube.bump(POD, {"spec": {"schedulingGates": gates}}))
    await world.carry_out()
    assert world.kube.objects[POD]["spec"]["schedulingGates"] == others


async def test_a_claim_that_somebody_has_changed_is_read_again() -> None:
    world = World()
    world.kube.bump(CLAIM, {"metadata": {"labels": {"a": "b"}}})
    assert await world.carry_out() == [("patch", CLAIM)]
    assert JOB in world.queue.take()
    assert await world.carry_out() == STARTED


@pytest.mark.parametrize("error", [DOWN, ConflictError("patch", 409, "it is another Pod")])
async def test_what_fails_is_tried_later(error: Any) -> None:
    world = World()
    world.kube.errors = [None, error]
    await world.carry_out()
    assert world.queue.processing == {JOB}
    await until(lambda: not world.queue.processing)
    assert JOB in world.queue.take()
    assert await world.carry_out() == [("patch", POD)]


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"metadata": DELETING},
        {"status": {"attempts": [{"number": 1, "outcome": "Evicted"}]}},
        {"status": {"attempts": [{"number": 2}]}},
        {"server": {"status": {"uuid": ""}}},
        {"server": {"node": ""}},
        {"server": {"metadata": DELETING}},
    ],
    ids=lambda change: str(change)[:50],
)
async def test_nothing_is_written_for_an_attempt_that_its_job_or_its_gpu_does_not_take(
    change: dict[str, Any],
) -> None:
    assert await World(**change).carry_out() == []


@pytest.mark.parametrize("gone", ["partition", "claim", "job"])
async def test_nor_without_partition_or_job_nor_is_a_claim_created_again(gone: str) -> None:
    world = World()
    take(world.state, getattr(world, gone), deleted=True)
    assert await world.carry_out() == []


@pytest.mark.parametrize("job", [{"told": False}, {"suspend": True}], ids=["unknown", "paused"])
async def test_it_goes_on_once_its_job_is_known_or_resumed(job: dict[str, Any]) -> None:
    world = World(**job)
    assert await world.carry_out() == []
    world.queue.take()
    take(world.state, job_body())
    assert world.queue.take() == {JOB}
    assert await world.carry_out() == STARTED


async def test_a_gpu_that_reports_again_is_used() -> None:
    world = World(server={"status": {"uuid": ""}})
    world.queue.take()
    take(world.state, server_body(allocations={UID: allocation()}))
    assert JOB in world.queue.take()
