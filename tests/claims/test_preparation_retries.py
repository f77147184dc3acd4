"""A Pod whose claims kubelet could not prepare is changed, so that kubelet tries again."""

from __future__ import annotations

from typing import Any

from partita.claims.preparation_retries import PreparationRetries
from partita.constants import ANNOTATION_PREPARE
from partita.store.state import State
from support.builders import (
    DELETING,
    a_state,
    allocation,
    at,
    job_body,
    pod_body,
    server_body,
    server_pod_body,
    take,
)
from support.fake_kube import DOWN, FakeKube
from support.meanwhile import running
from support.polling import until

PREPARING = [{"type": "PodReadyToStartContainers", "status": "False"}]
PREPARED = [{"type": "PodReadyToStartContainers", "status": "True"}]


def pod(conditions: list[dict[str, str]], **fields: Any) -> dict[str, Any]:
    return pod_body(status={"phase": "Pending", "conditions": conditions}, **fields)


def server(ready: str = "True") -> dict[str, Any]:
    return server_body(allocations={"claim-train": allocation()}, conditions={"Ready": ready})


class World:
    """One Pod of a job; `clock` is seconds."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.kube = FakeKube(*bodies)
        self.state: State = a_state(job_body(), *bodies)
        self.clock = 0.0
        self.state.now = lambda: at(self.clock)
        self.retries = PreparationRetries(self.kube, self.state)  # type: ignore[arg-type]

    def changes(self, body: dict[str, Any]) -> None:
        """Something changes; the versions of objects never fall."""
        meta = {"resourceVersion": str(10**9 + int(1000 * self.clock))}
        take(self.state, {**body, "metadata": {**body["metadata"], **meta}})

    async def written_within(self, seconds: float) -> list[float]:
        """Let time pass; return when the Pod was changed."""
        found = []
        while self.clock <= seconds:
            before = len(self.kube.writes)
            await self.retries.retry()
            if len(self.kube.writes) > before:
                found.append(self.clock)
            self.clock += 1
        return found


async def test_a_pod_is_changed_each_time_after_twice_as_long() -> None:
    world = World(server(), pod(PREPARING))
    assert await world.written_within(80) == [5, 15, 35, 75]
    values = {
        patch["metadata"]["annotations"][ANNOTATION_PREPARE] for _, _, patch in world.kube.writes
    }
    assert len(values) == 4, "the same value again would change nothing"


async def test_after_the_clock_was_set_back_it_is_changed_at_once() -> None:
    world = World(server(), pod(PREPARING))
    world.clock = 3600.0
    await world.retries.retry()
    world.clock = 0.0
    assert await world.written_within(20) == [0, 10]


async def test_one_that_has_a_sandbox_or_no_node_yet_or_is_deleted_is_left_alone() -> None:
    bodies = pod(PREPARED), pod(PREPARING, node=""), pod(PREPARING, metadata=DELETING)
    assert [await World(server(), body).written_within(30) for body in bodies] == [[], [], []]


async def test_it_waits_for_an_agent_that_is_away_and_begins_anew_when_it_is_back() -> None:
    world = World(server("False"), pod(PREPARING))
    assert await world.written_within(60) == []
    world.changes(server())
    assert await world.written_within(90) == [66, 76]


SERVER_POD = server_pod_body("shared-0") | {"status": {"phase": "Pending", "conditions": PREPARING}}


async def test_no_pod_waits_for_the_answer_about_another() -> None:
    world = World(server(), pod(PREPARING), SERVER_POD)
    await world.retries.retry()
    world.clock = 5.0
    world.kube.answers.clear()
    async with running(world.retries.retry()):
        await until(lambda: len(world.kube.writes) == 2)


async def test_a_server_pod_is_retried_before_its_gpu_is_ready() -> None:
    world = World(server("False"), SERVER_POD)
    world.kube.errors = [DOWN]  # a write that fails is repeated later
    assert await world.written_within(20) == [5, 15]
