"""A cycle's jobs get their Pods, then their GPUs, and are then started."""

from typing import Any

import pytest

from partita.claims.claim_reconciler import ClaimReconciler
from partita.jobs.job_reconciler import JobReconciler
from partita.jobs.lifecycle import Plan
from partita.kube.errors import ForbiddenError, UnavailableError
from partita.models import Outcome
from partita.process.cycle_writer import CycleWriter
from partita.process.reconcilers import Reconcilers
from partita.scheduling.cycle_result import CycleResult
from partita.store.state import State
from partita.times import Times
from partita_policies.types import GPU, Job
from support.builders import (
    GIB,
    START,
    a_state,
    allocation,
    job_body,
    node_body,
    partition_body,
    pod_body,
    server_body,
    server_pod_body,
    take,
)
from support.claims import job_claim_body
from support.fake_kube import DOWN, FakeKube, Notes
from support.polling import TIMEOUT, until

UID = "uid-train"
CLAIM = "train-1.partita.dev"
CLAIM_UID = "claim-train"
ALLOCATED = {CLAIM_UID: allocation()}
EXCLUSIVE = {"sharing": {"mode": "Exclusive"}}
ENDED = {"attempts": [{"number": 1, "pod": "train-1", "servers": [], "outcome": "NodeLost"}]}
QUOTA = ForbiddenError("create", 403, "exceeded quota")


class World:
    """Jobs that wait for the GPUs of a partition, unless these are allocated.

    Parameters
    ----------
    allocations
        The ledger of the first GPU.
    told
        Whether the informer has reported the jobs.
    """

    def __init__(
        self,
        *jobs: dict[str, Any],
        gpus: int = 1,
        allocations: dict[str, Any] | None = None,
        told: bool = True,
        **times: float,
    ) -> None:
        jobs = jobs or (job_body(),)
        mode = {} if gpus == 1 else {"mode": "Exclusive", "maxJobs": 1}
        servers = [server_body(f"shared-{n}", **mode) for n in range(gpus)]
        servers[0]["status"]["allocations"] = allocations or {}
        pods = [server_pod_body(f"shared-{n}") for n in range(gpus)]
        self.partition = partition_body(**({} if gpus == 1 else EXCLUSIVE))
        self.state: State = a_state(self.partition, node_body(), *servers, *pods)
        for job in jobs if told else ():
            take(self.state, job)
        self.kube, self.notes = FakeKube(self.partition, *servers, *jobs), Notes()
        self.kube.times = Times(**{"retry_after": 0.01, "pods_created": TIMEOUT, **times})
        self.jobs = JobReconciler(self.state)
        self.jobs.refresh_largest("shared")
        api: Any = self.kube
        events: Any = self.notes
        self.state.now = lambda: START
        claims = ClaimReconciler(self.state, self.jobs.demand)
        self.writer = CycleWriter(api, self.state, Reconcilers(self.jobs, claims), events)
        self.queues = self.state.queues
        self.gpus = gpus

    def look(self, uid: str = UID, **spec: Any) -> Plan:
        """Have somebody edit the job if a spec is given, and look at it."""
        if spec:
            take(self.state, job_body(**spec))
        made = self.jobs.reconcile(uid, START)
        assert made is not None
        return made

    def waiting(self, uid: str = UID) -> Job:
        """Look at a job that waits."""
        self.look(uid)
        return self.jobs.demand.waiting["shared"][uid]

    async def place(self, *uids: str) -> list[tuple[Job, tuple[str, ...]]]:
        """Write a cycle that places jobs on the GPUs; return those whose Pods are late."""
        names = tuple(f"shared-{n}" for n in range(self.gpus))
        placed = [(self.waiting(uid), names) for uid in uids or (UID,)]
        gpus = {name: GPU(name, "node-1", 37 * GIB, 16) for name in names}
        self.queues.partitions.take()
        result = CycleResult(placed=placed, allocated=gpus)
        return (await self.writer.write(self.state.partitions["shared"], result, {})).late

    async def give_back(self) -> list[dict[str, Any]]:
        """Write a release that a cycle took up, and return what became of ledgers."""
        await self.writer.write(None, CycleResult(), {"shared-0": {CLAIM_UID}})
        return [
            body["status"]["allocations"] for verb, _, body in self.kube.writes if verb == "patch"
        ]

    def ledger(self, server: str = "shared-0") -> set[str]:
        """The Pods that have the GPU."""
        entries = self.kube.objects[server]["status"]["allocations"]
        return {entry["pod"] for entry in entries.values()}

    def claim_uid(self) -> str:
        """The UID of the claim that was created."""
        return self.kube.objects[CLAIM]["metadata"]["uid"]

    def writes(self) -> list[tuple[str, str]]:
        return [(verb, name) for verb, name, _ in self.kube.writes]

    async def settled(self) -> None:
        await until(lambda: not self.queues.jobs.processing)


class TestACycle:
    async def test_a_placed_job_gets_its_pod_then_its_gpu_then_is_started(self):
        world = World()
        assert await world.place() == []
        await world.settled()
        writes = world.writes()
        assert set(writes[:2]) == {("create", CLAIM), ("create", "train-1")}
        assert writes[2:] == [("patch", "shared-0"), ("patch", CLAIM), ("patch", "train-1")]
        ((uid, entry),) = world.kube.objects["shared-0"]["status"]["allocations"].items()
        assert uid == world.claim_uid()
        assert (entry["name"], entry["jobUID"], entry["podUID"]) == (CLAIM, UID, "pod-train-1")
        assert [a.pod_uid for a in world.look().attempts] == ["pod-train-1"]

    async def test_a_job_starts_although_its_start_cannot_be_reported(self):
        world = World()
        world.notes.emit = None
        with pytest.raises(TypeError):
            await world.place()
        await world.settled()
        assert world.writes()[-1] == ("patch", "train-1")

    async def test_a_refused_pod_holds_no_gpu_and_others_start(self):
        world = World(job_body(), job_body("other"))
        world.kube.errors = [None, QUOTA]
        await world.place(UID, "uid-other")
        await world.settled()
        assert world.ledger() == {"other-1"}
        world.look()
        assert UID not in world.jobs.demand.waiting["shared"]
        shown = world.jobs.status(UID, START)
        assert shown is not None
        assert shown[0].reason == "PodForbidden"

    async def test_a_pod_that_could_not_be_created_holds_no_gpu_and_is_tried_later(self):
        world = World()
        world.kube.errors = [None, DOWN]
        await world.place()
        assert world.ledger() == set()
        assert "shared" in world.queues.partitions.take()  # others may have its GPU
        assert world.queues.jobs.processing == {UID}
        await world.settled()
        await world.place()
        assert world.ledger() == {"train-1"}

    async def test_an_allocation_that_cannot_be_written_is_tried_later(self):
        world = World(retry_after=3600)
        world.kube.errors = [None, None, QUOTA]
        await world.place()
        assert world.ledger() == set()
        assert world.queues.jobs.processing == {UID}

    async def test_a_pod_that_is_late_holds_up_nobody_and_gets_its_gpu_once_it_is_there(self):
        world = World(pods_created=0)
        world.kube.answers.clear()
        ((job, gpus),) = await world.place()
        assert (job.id, gpus) == (UID, ("shared-0",))
        assert world.ledger() == set()
        assert world.queues.jobs.processing == {UID}
        world.kube.answers.set()
        await world.settled()
        assert await world.place() == []
        assert (world.ledger(), world.kube.created) == ({"train-1"}, ["train-1"])

    async def test_a_name_that_another_owner_has_is_passed_over(self):
        world = World()
        world.kube.objects["train-1"] = pod_body(metadata={"ownerReferences": []})
        await world.place()
        assert world.ledger() == set()
        await world.place()
        assert world.kube.created == ["train-2"]
        assert [a.number for a in world.look().attempts] == [2]

    async def test_a_part_of_two_gpus_is_released_without_an_attempt(self):
        world = World(job_body(gpus=2, gpuMemory=None), gpus=2)
        drained = server_body("shared-1", mode="Exclusive", maxJobs=1, conditions={})
        world.kube.meanwhile = lambda: take(world.state, drained)
        await world.place()
        await world.settled()
        assert (world.ledger(), world.ledger("shared-1")) == ({"train-1"}, set())
        assert world.kube.objects["train-1"]["spec"]["schedulingGates"]
        made = world.look()
        said = "a part of its GPUs could not be allocated, so the others are released"
        assert (made.release, made.reason, made.message) == (True, "Ending", said)
        assert ([pod.name for pod in made.delete_pods], made.attempts) == (["train-1"], ())

    async def test_of_a_job_alone_the_event_names_the_memory_that_it_has_got(self):
        world = World(job_body(gpuMemory=None, application="new"))
        await world.place()
        assert "attempt 1 gets a whole GPU with 37.0 GiB on shared-0" in world.notes.said[-1]


class TestPreemption:
    async def test_the_pod_exists_before_anybody_is_asked_to_end(self):
        world = World()
        assert await world.writer.may_preempt(world.waiting(), ["shared-0"])
        assert (world.kube.created, world.ledger()) == (["train-1"], set())
        await world.settled()
        await world.place()
        assert (world.kube.created, world.ledger()) == (["train-1"], {"train-1"})

    async def test_nobody_ends_for_a_pod_that_is_refused(self):
        world = World()
        world.kube.errors = [None, QUOTA]
        assert not await world.writer.may_preempt(world.waiting(), ["shared-0"])

    async def test_nor_for_one_that_is_late_or_being_created(self):
        world = World(pods_started=0)
        job = world.waiting()
        world.kube.answers.clear()
        for _ in range(2):
            assert not await world.writer.may_preempt(job, ["shared-0"])
        world.kube.answers.set()
        await world.settled()
        assert await world.writer.may_preempt(job, ["shared-0"])
        assert world.kube.created == ["train-1"]


class TestAPodThatNoWatchHasReported:
    async def found(self, *pods: dict[str, Any], errors: bool = False) -> World:
        world = World(allocations=ALLOCATED)
        world.kube.objects |= {pod["metadata"]["name"]: pod for pod in pods}
        made = world.look()
        assert (made.read_missing, made.attempts, made.release) == (True, (), False)
        world.queues.jobs.start(UID)
        if errors:
            world.kube.get = down  # type: ignore[method-assign]
        await world.writer.read_missing(UID)
        return world

    async def test_it_is_the_attempt_s_if_it_is_there(self):
        world = await self.found(pod_body())
        assert [a.outcome for a in world.look().attempts] == [None]

    @pytest.mark.parametrize("other", [[], [pod_body(node="", metadata={"uid": "another"})]])
    async def test_its_attempt_ends_if_it_is_gone(self, other: list[dict[str, Any]]):
        world = await self.found(*other)
        made = world.look()
        (attempt,) = made.attempts
        assert (attempt.outcome, attempt.end_time) == (Outcome.POD_DELETED, START)
        assert attempt.pod_uid == "pod-train-1"
        assert (attempt.servers, made.release, made.read_missing) == (("shared-0",), False, False)
        found = world.jobs.status(UID, START)
        assert found is not None
        made = world.look(status=found[0].dump())
        assert (made.release, made.next_attempt) == (True, 2)

    @pytest.mark.parametrize(
        ("node", "claims", "outcome"),
        [
            ("", [], Outcome.EVICTED),
            ("", [job_claim_body()], None),
            ("node-a", [job_claim_body()], Outcome.EVICTED),
        ],
    )
    async def test_it_ends_before_its_start_if_its_claim_is_lost(
        self, node: str, claims: list[dict[str, Any]], outcome: Outcome | None
    ):
        world = await self.found(pod_body(node=node), *claims)
        made = world.look()
        assert ([a.outcome for a in made.attempts], made.read_missing) == ([outcome], False)
        take(world.state, job_claim_body(), deleted=True)
        assert world.look().read_missing is (outcome is None)

    async def test_what_cannot_be_read_is_read_again(self):
        world = await self.found(errors=True)
        assert world.queues.jobs.processing == {UID}
        assert world.look().read_missing


async def down(*_: Any) -> dict[str, Any]:
    raise UnavailableError("get", 503, "down")


class TestReleases:
    async def test_what_is_given_back_is_left_alone_until_that_is_written(self):
        world = World(job_body(status=ENDED), allocations=ALLOCATED)
        assert world.look().release
        busy: list[set[str]] = []
        world.kube.meanwhile = lambda: busy.append(set(world.queues.jobs.processing))
        assert await world.give_back() == [{CLAIM_UID: None}]
        assert busy == [{UID}]
        assert not world.queues.jobs.processing
        assert UID in world.queues.jobs.take()

    async def test_what_is_needed_again_when_the_cycle_is_over_is_not_given_back(self):
        world = World(job_body(status=ENDED), allocations=ALLOCATED)
        assert world.look().release
        take(world.state, pod_body())
        assert not world.look().release
        assert await world.give_back() == []

    async def test_what_cannot_be_given_back_is_given_back_later(self):
        world = World(job_body(status=ENDED), allocations=ALLOCATED)
        world.kube.errors = [QUOTA]
        assert world.look().release
        world.queues.partitions.take()
        await world.give_back()
        assert world.ledger() == {"train-1"}
        await until(lambda: "shared" in world.queues.partitions.take())
        await world.give_back()
        assert world.kube.objects["shared-0"]["status"]["allocations"] == {}


@pytest.fixture
def untold() -> World:
    """A world whose operator has heard of the allocation, and not of the job."""
    world = World(told=False, allocations=ALLOCATED)
    world.jobs.reconcile(UID, START)
    return world


async def test_the_allocation_of_a_job_that_no_watch_has_told_of_stays(untold):
    """As of another operator's doing, while somebody had deleted our Lease."""
    assert await untold.give_back() == []
    assert UID in untold.state.jobs


@pytest.mark.parametrize("another", [[], [job_body(metadata={"uid": "uid-another"})]])
async def test_the_allocation_of_a_job_that_is_gone_is_given_back(untold, another):
    del untold.kube.objects["train"]
    untold.kube.objects |= {body["metadata"]["name"]: body for body in another}
    assert await untold.give_back() == [{CLAIM_UID: None}]


async def test_what_cannot_be_looked_for_is_looked_for_again(untold):
    untold.kube.get = down
    untold.state.queues.partitions.take()
    assert await untold.give_back() == []
    await until(lambda: "shared" in untold.state.queues.partitions.take())
