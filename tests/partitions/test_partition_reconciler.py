"""What another leader has done meanwhile is read before a GPU's status is emptied."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from partita.informer.state import State
from partita.kube.client import BUDGETS, PODS, SERVERS, Kind
from partita.kube.errors import NotFoundError
from partita.partitions.partition_reconciler import PartitionReconciler
from partita.pods.server_pod import ServerPodSettings
from support.builders import a_state, node_body, partition_body, server_body, server_pod_body
from support.polling import until

SETTINGS = ServerPodSettings("partita-system", "partita:0.1.0", "partita-agent")


class Kube:
    """An API server with or without the Pod of a GPUServer."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        self.emptied: list[str] = []
        self.budgets: list[str] = []

    async def get(self, kind: Kind, name: str, namespace: str = "") -> dict[str, Any]:
        assert (kind, namespace) == (PODS, "partita-system")
        if name not in self.pods:
            raise NotFoundError("get", 404, "no")
        return self.pods[name]

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        if kind is PODS:
            await asyncio.Event().wait()  # what happens after that is not tested here
        assert kind is BUDGETS
        self.budgets.append(body["metadata"]["name"])
        return body

    async def patch(self, kind: Kind, name: str, _patch: Any, **_options: Any) -> dict[str, Any]:
        assert kind is SERVERS
        self.emptied.append(name)
        return server_body(status={"uuid": ""}, conditions={})


@pytest.fixture
def state() -> State:
    """A GPU that an agent told of, and no Pod as far as the watches told."""
    return a_state(partition_body(), node_body(), server_body())


async def look(kube: Kube, state: State) -> None:
    """Look at the partition until nothing more is to be done."""
    partitions = PartitionReconciler(kube, state, None, SETTINGS)  # type: ignore[arg-type]
    state.queues.gpu_servers.add("shared")
    work = asyncio.create_task(partitions.run())
    await until(lambda: not (not kube.emptied and state.server_pod("shared-0") is None))
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work


async def test_a_gpu_that_lost_its_pod_is_forgotten(state: State):
    kube = Kube()
    await look(kube, state)
    assert set(kube.emptied) == {"shared-0"}


async def test_a_gpu_whose_new_pod_no_watch_has_told_of_is_not(state: State):
    kube = Kube(server_pod_body("shared-0"))
    await look(kube, state)
    assert kube.emptied == []
