"""What kubelet and scheduler do when the API server refuses a write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from partita.kube.errors import KubernetesError
from partita_testcluster.nodes.cluster import SimulatedCluster
from partita_testcluster.nodes.kubelet import Kubelets
from partita_testcluster.nodes.node import Clock, Machine, NodeSpec
from support.polling import until

Body = dict[str, Any]
GPU = "nvidia.com/gpu"


class FakeAPI:
    """Records writes, and refuses those it is told to."""

    def __init__(self) -> None:
        self.refusals: list[int] = []
        self.writes: list[tuple[str, str, Body]] = []

    async def call(self, method: str, path: str, body: Body) -> Body:
        self.writes.append((method, path.rsplit("/", 1)[1], body))
        if self.refusals:
            raise KubernetesError(f"{method} {path}", self.refusals.pop(0), "Because")
        return body

    @property
    def phases(self) -> list[str]:
        return [body["status"]["phase"] for _, what, body in self.writes if what == "status"]

    @property
    def bound(self) -> list[str]:
        return [body["metadata"]["uid"] for _, what, body in self.writes if what == "binding"]


class Node:
    """One machine with one GPU, and its kubelet."""

    def __init__(self, api: FakeAPI, tasks: asyncio.TaskGroup) -> None:
        clock = Clock(100.0)
        self.machine = Machine(NodeSpec("n", gpus=1), api, clock)
        self.kubelets = Kubelets(SimulatedCluster(api, clock, {"n": self.machine}, tasks), {})
        self.observe = self.kubelets.observe_pod

    @property
    def free(self) -> int:
        return self.machine.capacity.free(GPU)


@pytest.fixture
async def api() -> FakeAPI:
    return FakeAPI()


@pytest.fixture
async def node(api: FakeAPI) -> AsyncIterator[Node]:
    async with asyncio.TaskGroup() as tasks:
        node = Node(api, tasks)
        yield node
        node.kubelets.observe_node({"metadata": {"name": "n"}}, deleted=True)  # ends what runs


def pod(uid: str = "u", **spec: Any) -> Body:
    container = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": uid},
        "spec": {"containers": [container]} | spec,
    }


@pytest.mark.parametrize("status", [404, 422])
async def test_a_write_that_is_never_accepted_is_given_up(
    api: FakeAPI, node: Node, status: int
) -> None:
    api.refusals = [status]
    node.observe(pod(nodeName="n"))
    await until(lambda: "Succeeded" in api.phases)
    assert api.phases == ["Running", "Succeeded"]
    assert node.free == 1


async def test_a_pod_that_cannot_be_bound_holds_nothing_and_is_tried_again(
    api: FakeAPI, node: Node
) -> None:
    api.refusals = [409]
    node.observe(pod())
    node.observe(pod())
    assert node.free == 0
    await until(lambda: api.bound == ["u"])
    await until(lambda: node.free)
    node.observe(pod())
    await until(lambda: "Succeeded" in api.phases)
    assert api.bound == ["u", "u"]


async def test_a_pod_bound_by_somebody_else_runs_all_the_same(api: FakeAPI, node: Node) -> None:
    api.refusals = [409]
    node.observe(pod())
    node.observe(pod(nodeName="n"))
    await until(lambda: "Succeeded" in api.phases)


async def test_pods_wait_for_what_others_hold(api: FakeAPI, node: Node) -> None:
    node.observe(pod("first", nodeName="n"))
    node.observe(pod("gone"))
    node.observe(pod("second"))
    node.observe(pod("gone"), deleted=True)
    node.observe(pod("first", nodeName="n"), deleted=True)
    await until(lambda: api.bound == ["second"])


async def test_a_node_that_goes_while_a_pod_is_bound_lets_it_wait(api: FakeAPI, node: Node) -> None:
    node.observe(pod())
    node.kubelets.observe_node({"metadata": {"name": "n"}}, deleted=True)
    await asyncio.sleep(0)
    assert (node.free, api.writes) == (1, [])
    node.machine.up = True
    node.kubelets.observe_node({"metadata": {"name": "n"}})
    await until(lambda: "Succeeded" in api.phases)


async def test_pods_of_other_schedulers_and_other_nodes_are_left_alone(
    api: FakeAPI, node: Node
) -> None:
    node.observe(pod(schedulerName="other"))
    node.observe(pod(nodeName="elsewhere"))
    node.observe(pod() | {"status": {"phase": "Failed"}})
    node.observe({**pod(), "spec": {"containers": [{"name": "main"}]}})
    assert node.free == 1
    await asyncio.sleep(0)
    assert api.writes == []


async def test_a_deleted_pod_that_nobody_runs_is_let_go(api: FakeAPI, node: Node) -> None:
    body = pod(nodeName="n")
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    node.observe(body)
    await until(lambda: bool(api.writes))
    ((method, name, options),) = api.writes
    assert (method, name) == ("DELETE", "p")
    assert options == {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}


async def test_a_pod_whose_end_and_deletion_are_heard_of_at_once_is_let_go(
    api: FakeAPI, node: Node
) -> None:
    node.observe(pod())
    await until(lambda: "Running" in api.phases)
    body = pod(nodeName="n") | {"status": {"phase": "Failed"}}
    body["metadata"]["deletionTimestamp"] = "2026-11-22T03:10:44Z"
    node.observe(body)
    await until(lambda: "DELETE" in [method for method, *_ in api.writes])


async def test_a_pod_that_somebody_else_has_ended_gives_back_its_gpu(
    api: FakeAPI, node: Node
) -> None:
    body = pod(nodeName="n")
    body["metadata"]["annotations"] = {"sim.partita.dev/duration": "1000h"}
    node.observe(body)
    await until(lambda: "Running" in api.phases)
    node.observe(body | {"status": {"phase": "Failed"}})
    await until(lambda: node.free)
