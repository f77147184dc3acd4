"""What is allocated is started, unless something has come in between."""

import asyncio
from typing import Any

import pytest

from partita.commit.committer import Committer
from partita.decide.cycle_result import CycleResult
from partita.decide.ledger import LedgerChanges
from partita.informer.state import State
from partita.kube.errors import KubernetesError, UnavailableError
from partita.reconcile.claims.claim_reconciler import ClaimReconciler
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.lifecycle import Plan
from partita.times import Times
from support.builders import (
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
from support.fake_kube import FakeKube
from support.polling import until

CLAIM = "train-1.shared-0.partita.dev"
CLAIMED: list[KubernetesError | None] = [None, None]
"""The writes of a claim before its Pod is created: itself and its allocation."""
EMPTIED = {"uuid": "", "memory": "0Mi"}
ENDED = {"attempts": [{"number": 1, "pod": "train-1", "servers": [], "outcome": "NodeLost"}]}


class World:
    """A job that is allocated, and has no Pod yet."""

    def __init__(
        self, *, told: bool = True, ours: bool = True, starts: int = 32, **server: Any
    ) -> None:
        allocated = {"uid-train": allocation()}
        self.bodies = (partition_body(), server_body(allocations=allocated, **server), job_body())
        there = self.bodies if told else self.bodies[:2]
        self.state: State = a_state(*there, server_pod_body("shared-0"))
        self.kube = FakeKube(*self.bodies)
        self.jobs = JobReconciler(self.state)
        if ours:
            self.jobs.creations.allocating("uid-train", 1, START)
        self.committer = Committer(
            self.kube,  # type: ignore[arg-type]
            self.state,
            self.jobs,
            ClaimReconciler(self.state, self.jobs),
            None,  # type: ignore[arg-type]
            now=lambda: START,
            times=Times(retry_after=0.01),
            starts=starts,
        )
        self.state.queues.jobs.start("uid-train")

    def look(self, **spec: Any) -> Plan:
        """Have somebody edit the job, and look at it."""
        take(self.state, job_body(**spec))
        made = self.jobs.reconcile("uid-train", START)
        assert made is not None
        return made

    async def give_back(self) -> list[dict[str, Any]]:
        """Write a release that a cycle took up, and return what became of ledgers."""
        changes = LedgerChanges()
        changes.release("uid-train", ["shared-0"])
        await self.committer.commit(None, CycleResult(), changes)
        return [
            body["status"]["allocations"] for verb, _, body in self.kube.writes if verb == "patch"
        ]

    async def finish(self) -> list[str]:
        """Start it, and return the Pods that were made."""
        await self.committer.start("uid-train", 1)
        return self.kube.created


async def test_what_is_allocated_gets_its_pod():
    world = World()
    assert await world.finish() == ["train-1"]
    assert not world.state.queues.jobs.processing
    writes = [(verb, name) for verb, name, _ in world.kube.writes]
    assert writes == [("create", CLAIM), ("patch", CLAIM), ("create", "train-1")]
    claim, pod = world.kube.objects[CLAIM], world.kube.objects["train-1"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == ("gpu.partita.dev", "shared-0")
    assert [c["resourceClaimName"] for c in pod["spec"]["resourceClaims"]] == [CLAIM]


class TestOnePodAnAttempt:
    """Whoever may have created the Pod of an attempt never creates it again."""

    def ended(self, world: World) -> tuple[str, str]:
        made = world.look()
        assert made.create_pod is None
        return str(made.attempts[-1].outcome), made.attempts[-1].reason

    def running(self, world: World) -> list[str]:
        take(world.state, node_body())
        made = world.look()
        return [attempt.pod for attempt in made.attempts if attempt.outcome is None]

    async def test_an_allocation_of_another_process_whose_pod_is_not_there_is_ended(self):
        world = World(ours=False)
        made = world.look()
        assert (made.create_pod, made.find_pod, made.release) == (None, 1, False)
        assert await world.finish() == []
        assert self.ended(world) == ("Evicted", "PodNotFound")

    async def test_a_pod_that_another_process_created_is_taken_up(self):
        world = World(ours=False)
        world.kube.objects["train-1"] = pod_body()
        assert await world.finish() == []
        assert self.running(world) == ["train-1"]

    async def test_a_pod_whose_creation_got_no_answer_is_not_created_again(self):
        world = World()
        world.kube.errors = [*CLAIMED, UnavailableError("create", 0, "timeout", unsure=True)]
        assert await world.finish() == []
        assert await world.finish() == []
        assert self.ended(world) == ("Evicted", "PodCreationUnknown")

    async def test_a_pod_whose_creation_got_no_answer_is_taken_up(self):
        world = World()
        world.kube.errors = [*CLAIMED, UnavailableError("create", 0, "timeout", unsure=True)]
        await world.finish()
        world.kube.objects["train-1"] = pod_body()
        await world.finish()
        assert self.running(world) == ["train-1"]

    async def test_a_pod_whose_creation_had_no_effect_is_created_later(self):
        world = World()
        world.kube.errors = [*CLAIMED, UnavailableError("create", 429, "overload")]
        assert await world.finish() == []
        assert await world.finish() == ["train-1"]

    async def test_what_is_ended_so_is_allocated_anew_in_the_write_that_releases_it(self):
        world = World(ours=False)
        await world.finish()
        world.look()
        found = world.jobs.status("uid-train", START)
        assert found is not None
        made = world.look(status=found[0].dump())
        assert (made.release, made.wants_gpu, made.next_attempt) == (True, True, 2)


@pytest.mark.parametrize("gone", [{"uuid": ""}, {"memory": "0Mi"}, EMPTIED])
async def test_a_gpu_whose_status_was_emptied_is_waited_for(gone):
    world = World(status=gone)
    assert await world.finish() == []
    assert world.state.queues.jobs.processing == {"uid-train"}


@pytest.mark.parametrize("gone", [{"uuid": ""}, {"memory": "0Mi"}, EMPTIED])
async def test_a_claim_is_not_restored_for_a_gpu_whose_status_was_emptied(gone):
    world = World(status=gone)
    await world.committer.restore_claims("uid-train", 1)
    assert not world.kube.writes
    assert world.state.queues.jobs.processing == {"uid-train"}


async def test_a_claim_that_cannot_be_restored_is_restored_later():
    world = World()
    world.kube.errors = [UnavailableError("create", 503, "down")]
    await world.committer.restore_claims("uid-train", 1)
    assert CLAIM not in world.kube.objects
    assert world.state.queues.jobs.processing == {"uid-train"}
    await world.committer.restore_claims("uid-train", 1)
    assert world.kube.objects[CLAIM]["status"]["allocation"]


async def test_the_claim_of_an_attempt_that_the_status_already_has_is_restored():
    world = World()
    attempt = {"number": 1, "pod": "train-1", "podUID": "uid-train-1", "servers": ["shared-0"]}
    world.look(status={"attempts": [attempt]})
    await world.committer.restore_claims("uid-train", 1)
    assert world.kube.objects[CLAIM]["status"]["allocation"]
    assert not world.state.queues.jobs.processing


async def test_a_claim_whose_partition_is_gone_is_not_tried_again_at_once():
    world = World()
    world.state.apply_partition(world.bodies[0], deleted=True)
    await world.committer.restore_claims("uid-train", 1)
    assert not world.kube.writes
    assert world.state.queues.jobs.processing == {"uid-train"}


async def test_attempts_get_their_pods_before_others_begin():
    world = World(starts=1)
    name, uid = "other", "uid-other"
    other, allocated = job_body(name), {"uid-train": allocation(), uid: allocation(name)}
    take(world.state, server_body(allocations=allocated))
    take(world.state, other)
    world.kube.objects |= {name: other, "shared-0": server_body(allocations=allocated)}
    world.jobs.creations.allocating(uid, 1, START)
    world.state.queues.jobs.start(uid)
    world.kube.answers.clear()
    starts = [
        asyncio.create_task(world.committer.start(u, 1, read_again=False))
        for u in ("uid-train", uid)
    ]
    await until(lambda: len(world.kube.writes) == 2)
    world.kube.answers.set()
    await asyncio.gather(*starts)
    of_train = [CLAIM, CLAIM, "train-1"]
    assert [written for _, written, _ in world.kube.writes][:3] == of_train
    assert world.kube.created == ["train-1", "other-1"]


NEWS = {
    "its attempt has ended": lambda: job_body(status=ENDED),
    "its allocation is gone": server_body,
    "another attempt is allocated": lambda: server_body(
        allocations={"uid-train": allocation(attempt=2)}
    ),
}


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
async def test_a_pod_that_waits_to_be_made_is_not_made_once_it_is_not_due(news):
    """As of another operator's doing, while somebody had deleted our Lease."""
    world = World()
    world.kube.meanwhile = lambda: take(world.state, news())
    assert await world.finish() == []


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
async def test_what_no_watch_has_told_yet_is_read_before_a_pod_is_made(news):
    world = World()
    body = news()
    world.kube.objects[body["metadata"]["name"]] = body
    assert await world.finish() == []


async def test_it_is_left_alone_for_a_while_when_that_cannot_be_read():
    world = World()

    async def down(*_: Any) -> dict[str, Any]:
        raise UnavailableError("get", 503, "down")

    world.kube.get = down  # type: ignore[method-assign]
    assert await world.finish() == []
    assert world.state.queues.jobs.processing == {"uid-train"}


@pytest.mark.parametrize("name", ["train", "shared-0"])
async def test_what_is_gone_gets_no_pod(name):
    world = World()
    del world.kube.objects[name]
    assert await world.finish() == []


async def test_what_is_given_back_is_left_alone_until_that_is_written():
    world = World()
    world.state.queues.jobs.processing.clear()
    world.look(suspend=True)
    busy: list[set[str]] = []
    world.kube.meanwhile = lambda: busy.append(set(world.state.queues.jobs.processing))
    assert await world.give_back() == [{"uid-train": None}]
    assert busy == [{"uid-train"}]
    assert not world.state.queues.jobs.processing
    assert "uid-train" in world.state.queues.jobs.take()


async def test_what_is_wanted_again_when_the_cycle_is_over_is_not_given_back():
    """It was suspended, and is no longer: it has got its Pod by now, or gets it in a moment."""
    world = World()
    world.look(suspend=True)
    made = world.look()
    assert made.create_pod == 1
    assert await world.give_back() == []
    assert world.state.queues.jobs.processing == {"uid-train"}


@pytest.fixture
def untold() -> World:
    """A world whose operator has heard of the allocation, and not of the job."""
    world = World(told=False)
    world.state.queues.jobs.processing.clear()
    world.jobs.reconcile("uid-train", START)
    return world


async def test_the_allocation_of_a_job_that_no_watch_has_told_of_stays(untold):
    """As of another operator's doing, while somebody had deleted our Lease."""
    assert await untold.give_back() == []
    assert "uid-train" in untold.state.jobs


@pytest.mark.parametrize("another", [[], [job_body(metadata={"uid": "uid-another"})]])
async def test_the_allocation_of_a_job_that_is_gone_is_given_back(untold, another):
    del untold.kube.objects["train"]
    untold.kube.objects |= {body["metadata"]["name"]: body for body in another}
    assert await untold.give_back() == [{"uid-train": None}]


async def test_what_cannot_be_looked_for_is_looked_for_again(untold):
    async def down(*_: Any) -> dict[str, Any]:
        raise UnavailableError("get", 503, "down")

    untold.kube.get = down
    untold.state.queues.partitions.take()
    assert await untold.give_back() == []
    await until(lambda: "shared" in untold.state.queues.partitions.take())
