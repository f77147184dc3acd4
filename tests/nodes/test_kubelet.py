"""What kubelet and scheduler do when the API server refuses a write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from partita.embedded.nodes.agent import Agents
from partita.embedded.nodes.api import ApiError
from partita.embedded.nodes.kubelet import Kubelet
from partita.embedded.nodes.node import Clock, Machine, NodeSpec
from partita.embedded.nodes.scheduler import Cluster

Body = dict[str, Any]
GPU = "nvidia.com/gpu"


class FakeAPI:
    """Records writes, refuses those it is told to, and has one Pod."""

    def __init__(self) -> None:
        self.refusals: list[ApiError] = []
        self.writes: list[tuple[str, Body]] = []
        self.uid = "u"
        self._news = asyncio.Event()

    async def get(self, path: str) -> Body:
        if not self.uid:
            raise ApiError(404, "NotFound", path)
        return {"metadata": {"uid": self.uid}}

    async def create(self, path: str, body: Body) -> Body:
        await self._write(path, body)
        return body

    async def patch(self, path: str, body: Body) -> None:
        await self._write(path, body)

    async def _write(self, path: str, body: Body) -> None:
        self.writes.append((path.rsplit("/", 1)[1], body))
        self._news.set()
        if self.refusals:
            raise self.refusals.pop(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                self._news.clear()
                await self._news.wait()

    @property
    def phases(self) -> list[str]:
        return [body["status"].get("phase") for what, body in self.writes if what == "status"]


class Node:
    """One machine with one GPU, and its kubelet."""

    def __init__(self, api: FakeAPI, tasks: asyncio.TaskGroup) -> None:
        clock = Clock(100.0)
        self.cluster = Cluster()
        self.machine = Machine(NodeSpec("n", gpus=1), api, self.cluster, clock)
        self.machine.power_on()
        self.kubelet = Kubelet(
            api=api,
            cluster=self.cluster,
            machines={"n": self.machine},
            agents=Agents(api, clock, tasks),
            clock=clock,
            tasks=tasks,
        )

    @property
    def free(self) -> int:
        return self.cluster.nodes["n"].free(GPU)


@pytest.fixture
async def api() -> FakeAPI:
    return FakeAPI()


@pytest.fixture
async def node(api: FakeAPI) -> AsyncIterator[Node]:
    async with asyncio.TaskGroup() as tasks:
        node = Node(api, tasks)
        yield node
        node.kubelet.close()


def pod(uid: str = "u", **spec: Any) -> Body:
    container = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": uid},
        "spec": {"containers": [container]} | spec,
    }


async def test_a_conflict_over_the_same_pod_is_tried_again(api: FakeAPI, node: Node) -> None:
    api.refusals = [ApiError(409, "Conflict", "modified")]
    node.kubelet.observe("ADDED", pod(nodeName="n"))
    await api.until(lambda: "Succeeded" in api.phases)
    assert api.phases == ["Running", "Running", "Succeeded"]


@pytest.mark.parametrize(("status", "present"), [(409, "another"), (409, ""), (404, "u")])
async def test_a_pod_that_is_gone_is_forgotten(
    api: FakeAPI, node: Node, status: int, present: str
) -> None:
    api.refusals, api.uid = [ApiError(status, "", "")], present
    node.kubelet.observe("ADDED", pod(nodeName="n"))
    assert node.free == 0
    async with asyncio.timeout(20):
        while not node.free:
            await asyncio.sleep(0)
    assert api.phases == ["Running"]


async def test_a_write_that_is_never_accepted_is_given_up(api: FakeAPI, node: Node) -> None:
    api.refusals = [ApiError(422, "Invalid", "no")]
    node.kubelet.observe("ADDED", pod(nodeName="n"))
    await api.until(lambda: "Succeeded" in api.phases)
    assert api.phases == ["Running", "Succeeded"]


async def test_a_pod_that_cannot_be_bound_holds_nothing(api: FakeAPI, node: Node) -> None:
    api.refusals = [ApiError(409, "Conflict", "bound already")]
    node.kubelet.observe("ADDED", pod())
    node.kubelet.observe("MODIFIED", pod())
    assert node.free == 0
    node.kubelet.observe("ADDED", pod("second"))
    await api.until(lambda: "Succeeded" in api.phases)
    what = [(kind, body["metadata"]["uid"]) for kind, body in api.writes]
    assert what[:3] == [("binding", "u"), ("status", "second"), ("binding", "second")]


async def test_pods_that_are_missing_from_a_new_list_are_gone(api: FakeAPI, node: Node) -> None:
    node.kubelet.observe("ADDED", pod(nodeName="n"))
    node.kubelet.observe("ADDED", pod("waiting"))
    assert node.free == 0
    node.kubelet.observe_all([])
    assert node.free == 1
    await asyncio.sleep(0)
    assert not [body for kind, body in api.writes if kind == "binding"]


async def test_pods_of_other_schedulers_and_other_nodes_are_left_alone(
    api: FakeAPI, node: Node
) -> None:
    node.kubelet.observe("ADDED", pod(schedulerName="other"))
    node.kubelet.observe("ADDED", pod(nodeName="elsewhere"))
    node.kubelet.observe("ADDED", pod() | {"status": {"phase": "Failed"}})
    node.kubelet.observe("ADDED", {**pod(), "spec": {"containers": [{"name": "main"}]}})
    assert node.free == 1
    await asyncio.sleep(0)
    assert api.writes == []


async def test_an_unschedulable_pod_that_cannot_be_told_still_waits(
    api: FakeAPI, node: Node
) -> None:
    api.refusals = [ApiError(404, "NotFound", "")]
    node.kubelet.observe("ADDED", pod("first", nodeName="n"))
    node.kubelet.observe("ADDED", pod("second"))
    node.kubelet.observe("DELETED", pod("first", nodeName="n"))
    await api.until(lambda: any(kind == "binding" for kind, _ in api.writes))
