"""Claims of jobs are created and allocated once, and what the API server says of them is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from commit.test_job_pods import GRANT
from partita.commit.creation import Created, Later
from partita.commit.job_claims import DELETIONS, JobClaims
from partita.informer.state import State
from partita.kube.errors import AlreadyExistsError, ForbiddenError
from partita.models import Allocation
from partita.reconcile.reasons import Reason, Why
from support.builders import START, a_job, a_server, a_state, allocation, job_body
from support.fake_kube import DOWN, FakeKube
from support.polling import until

NAME = "train-1.shared-0.partita.dev"
ENTRY = {"shared-0": Allocation.model_validate(allocation())}


class World:
    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.kube = FakeKube(*bodies)
        self.state: State = a_state(job_body())
        self.claims = JobClaims(self.kube, self.state, lambda: START)  # type: ignore[arg-type]

    async def create(self) -> Created | Later | Why:
        return await self.claims.create(a_job(), GRANT, ENTRY, [a_server()])

    def verbs(self) -> list[str]:
        return [verb for verb, _, _ in self.kube.writes]


async def test_a_claim_is_created_and_allocated_once() -> None:
    world = World()
    for _ in range(2):
        assert await world.create() is Created.DONE
    assert world.verbs() == ["create", "patch"]
    (known,) = world.state.own_claims.of("uid-train")
    assert known.allocated
    body = world.kube.objects[NAME]
    (config,) = body["status"]["allocation"]["devices"]["config"]
    assert config["opaque"]["parameters"]["memory"] == "8Gi"
    assert body["metadata"]["labels"]["partita.dev/attempt"] == "1"


async def test_a_claim_that_an_earlier_request_created_is_allocated() -> None:
    world = World()
    world.kube.errors = [None, DOWN]
    assert isinstance(await world.create(), Later)
    assert await world.create() is Created.DONE
    assert world.verbs() == ["create", "patch", "create", "patch"]


async def test_a_claim_of_another_owner_takes_the_name() -> None:
    meta = {"name": NAME, "namespace": "team-a", "uid": "u", "resourceVersion": "1"}
    assert await World({"metadata": meta}).create() is Created.NAME_TAKEN


async def test_the_claim_of_a_deleted_job_is_not_taken_for_that_of_a_job_of_its_name() -> None:
    world = World()
    await world.create()
    orphan = {"metadata": {"ownerReferences": None}}
    world.state.apply_claim(world.kube.bump(NAME, orphan))
    assert await world.create() is Created.NAME_TAKEN


async def test_a_claim_that_is_being_deleted_is_waited_for() -> None:
    world = World()
    await world.create()
    world.kube.objects[NAME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.state.apply_claim(world.kube.objects[NAME], deleted=True)
    assert isinstance(await world.create(), Later)


async def test_a_claim_that_is_deleted_before_its_allocation_is_created_again() -> None:
    world = World()
    world.kube.answers.clear()
    creating = asyncio.create_task(world.create())
    await until(lambda: world.verbs() == ["create", "patch"])
    del world.kube.objects[NAME]
    world.kube.answers.set()
    assert isinstance(await creating, Later)
    assert await world.create() is Created.DONE


async def test_a_claim_that_is_deleted_while_it_is_read_is_created_again() -> None:
    world = World()
    world.kube.errors = [AlreadyExistsError("create", 409, "there")]
    assert isinstance(await world.create(), Later)
    assert await world.create() is Created.DONE


async def test_a_quota_that_forbids_the_claim_is_told() -> None:
    world = World()
    quota = ForbiddenError("create", 403, "exceeded quota: slices")
    said = Why(
        Reason.POD_FORBIDDEN, "the cluster does not admit its ResourceClaim: " + quota.message
    )
    world.kube.errors = [quota]
    assert await world.create() == said
    world.kube.errors = [quota]
    assert await world.claims.would_be_refused(a_job(), 1, ENTRY, [a_server()]) == said
    assert await world.claims.would_be_refused(a_job(), 1, ENTRY, [a_server()]) is None


@pytest.mark.parametrize("error", [None, DOWN])
async def test_a_deletion_that_failed_is_told(error: Any) -> None:
    world = World()
    await world.create()
    (known,) = world.state.own_claims.of("uid-train")
    world.kube.errors = [error]
    assert await world.claims.delete(known) is (error is None)


async def test_few_claims_are_deleted_at_the_same_time() -> None:
    world = World()
    await world.create()
    (known,) = world.state.own_claims.of("uid-train")
    world.kube.writes.clear()
    world.kube.answers.clear()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.claims.delete(known)) for _ in range(2 * DELETIONS)]
        for _ in tasks:
            await asyncio.sleep(0)
        assert world.verbs() == ["delete"] * DELETIONS
        world.kube.answers.set()
    assert all(task.result() for task in tasks)
    assert world.verbs() == ["delete"] * 2 * DELETIONS
