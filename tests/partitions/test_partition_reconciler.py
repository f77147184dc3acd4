"""What is read before a GPU's status is emptied, and waited for before its Pod is deleted."""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from partita.constants import FINALIZER
from partita.kube.client import BUDGETS, PODS, SERVERS, Kind
from partita.kube.errors import ForbiddenError, NotFoundError
from partita.models.quantities import format_time
from partita.partitions.partition_reconciler import PartitionReconciler
from partita.pods.server_pod import ServerPodSettings
from partita.store.state import State
from partita.store.work_queue import utc_now
from support.builders import a_state, node_body, owner, partition_body, server_body, server_pod_body
from support.meanwhile import running
from support.polling import until

SETTINGS = ServerPodSettings("partita-system", "partita:0.1.0", "partita-agent")


class Kube:
    """An API server with or without the Pod of a GPUServer."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        self.emptied: list[str] = []
        self.budgets: list[str] = []
        self.deleted: list[str] = []
        self.refuses: Exception | None = None
        """The answer to a new Pod."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> dict[str, Any]:
        assert (kind, namespace) == (PODS, "partita-system")
        if name not in self.pods:
            raise NotFoundError("get", 404, "no")
        return self.pods[name]

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        if kind is PODS:
            if self.refuses is not None:
                raise self.refuses
            await asyncio.Event().wait()  # what happens after that is not tested here
        assert kind is BUDGETS
        self.budgets.append(body["metadata"]["name"])
        return body

    async def patch(self, kind: Kind, name: str, _patch: Any, **_options: Any) -> dict[str, Any]:
        assert kind is SERVERS
        self.emptied.append(name)
        return server_body(status={"uuid": ""}, conditions={})

    async def delete(self, kind: Kind, name: str, *_: Any, **_options: Any) -> None:
        assert kind is PODS
        self.deleted.append(name)


@pytest.fixture
def state() -> State:
    """A GPU that an agent told of, and no Pod as far as the watches told."""
    return a_state(partition_body(), node_body(), server_body())


def looking(kube: Kube, state: State) -> AbstractAsyncContextManager[None]:
    """Have the operator look at the partition."""
    partitions = PartitionReconciler(kube, state, None, SETTINGS)  # type: ignore[arg-type]
    state.queues.gpu_servers.add("shared")
    return running(partitions.run())


async def look(kube: Kube, state: State) -> None:
    """Look at the partition until nothing more is to be done."""
    async with looking(kube, state):
        await until(lambda: not (not kube.emptied and state.server_pod("shared-0") is None))


async def test_a_gpu_that_lost_its_pod_is_forgotten_while_another_gets_one(state: State):
    kube, fresh = Kube(), {"status": {"uuid": ""}, "conditions": {}}
    state.apply_partition(partition_body("other"))
    state.apply_server(server_body("other-0", partition="other", **fresh))
    await look(kube, state)
    assert set(kube.emptied) == {"shared-0"}


async def test_a_refused_server_pod_keeps_nothing_else_waiting(state: State):
    kube = Kube()
    kube.refuses = ForbiddenError("create", 403, "exceeded quota")
    async with looking(kube, state):
        await until(lambda: kube.budgets)
        state.queues.partition_statuses.take()
        kube.refuses = ValueError("a bug")
        state.queues.gpu_servers.add("shared")
        await until(state.queues.partition_statuses.take)


async def test_a_gpu_whose_new_pod_no_watch_has_told_of_is_not(state: State):
    kube = Kube(server_pod_body("shared-0"))
    await look(kube, state)
    assert (kube.emptied, kube.deleted) == ([], [])


async def test_the_pod_of_an_earlier_gpu_server_is_deleted_as_its_agent_reports_here(state: State):
    left = server_pod_body("shared-0")
    left["metadata"]["ownerReferences"][0]["uid"] = "earlier"
    async with looking(kube := Kube(left), state):
        await until(lambda: kube.deleted)
    assert kube.emptied == []


@pytest.mark.parametrize(
    ("seconds", "deleted"),
    [
        (5, ["shared-0-probe"]),
        (60, ["shared-0", "shared-0-probe"]),  # its agent cannot end it: the GPU is released
    ],
)
async def test_a_gpu_is_released_after_its_probe_but_does_not_wait_for_long(
    seconds: int, deleted: list[str]
):
    since = format_time(utc_now() - timedelta(seconds=seconds))
    server = server_body(metadata={"deletionTimestamp": since, "finalizers": [FINALIZER]})
    of_server = [owner("GPUServer", "shared-0")]
    probe = server_pod_body("shared-0-probe", ownerReferences=of_server)
    pods = server_pod_body("shared-0"), probe
    state, kube = a_state(partition_body(), node_body(), server, *pods), Kube(*pods)
    async with looking(kube, state):
        await until(lambda: "shared-0-probe" in kube.deleted)
    assert kube.deleted == deleted
