"""KAI's nodes in `sharing`: simulated kubelets that also run KAI's reservation Pods.

For each GPU of which it gives away fractions, KAI's binder creates a Pod on the node that asks for
one whole GPU. Kubelet's device manager picks the GPU, and the program in the Pod writes the GPU's
UUID into an annotation of its own Pod, for which the binder waits (cmd/resourcereservation).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import count

from typing_extensions import override

from bench.client import Client, Json, RefusedError
from bench.nodes import path_of, running
from bench.peers.sharer import SharingNodes

__all__ = ["RESERVATIONS", "KaiNodes"]


RESERVATIONS = "kai-resource-reservation"
"""Namespace of the reservation Pods."""
GPU_ANNOTATION = "run.ai/reserve_for_gpu_index"
NO_GPU = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "message": "Requested: 1, Available: 0",
}
"""How kubelet refuses a Pod for which there is no device left."""


class KaiNodes(SharingNodes):
    """Give each reservation Pod a GPU that no other has, without the time that its start takes."""

    def __init__(
        self,
        client: Client,
        gpus: int,
        group: asyncio.TaskGroup,
        on_job_pod: Callable[[str, str], None],
    ) -> None:
        super().__init__(client, gpus, group, on_job_pod)
        numbers = count()
        self._free = {
            node: [f"GPU-{next(numbers)}" for _ in range(there)]
            for node, there in self.gpus_of.items()
        }
        self._taken: dict[str, str] = {}
        self._ending: set[str] = set()

    @override
    def see(self, kind: str, pod: Json) -> None:
        meta = pod["metadata"]
        if meta["namespace"] == RESERVATIONS:
            self._see_reservation(kind, pod)
        elif "deletionTimestamp" not in meta:
            super().see(kind, pod)
        elif meta["uid"] not in self._ending:
            self._ending.add(meta["uid"])
            self._group.create_task(self._end(meta))

    def _see_reservation(self, kind: str, pod: Json) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if kind == "DELETED" and uid in self._taken:
            self._free[node].append(self._taken.pop(uid))
        elif kind == "ADDED":
            path = path_of(pod["metadata"])
            if self._free[node]:
                self._taken[uid] = self._free[node].pop(0)
                self._group.create_task(self._reserve(path, self._taken[uid]))
            else:
                self._group.create_task(self._refuse(path))

    async def _reserve(self, path: str, gpu: str) -> None:
        with _unless_gone():
            status = {"status": running(datetime.now(UTC))}
            await self._client.patch(f"{path}/status", status)
            for _ in ("whether it is written", "what to patch"):
                await self._client.get(path)
            await self._client.patch(path, {"metadata": {"annotations": {GPU_ANNOTATION: gpu}}})

    async def _refuse(self, path: str) -> None:
        with _unless_gone():
            await self._client.patch(f"{path}/status", {"status": NO_GPU})

    async def _end(self, meta: Json) -> None:
        """End a Pod that KAI deletes, as kubelet does when its containers have stopped."""
        with _unless_gone():
            await self._client.delete(f"{path_of(meta)}?gracePeriodSeconds=0")

    @override
    async def _start(self, pod: Json, seen: float) -> None:
        container = pod["spec"]["containers"][0]
        names = {one["configMapRef"]["name"] for one in container["envFrom"]}
        names |= {one["configMap"]["name"] for one in pod["spec"]["volumes"] if "configMap" in one}
        for name in sorted(names):
            await self._client.get(
                f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{name}"
            )
        await super()._start(pod, seen)


@contextmanager
def _unless_gone() -> Iterator[None]:
    """Do nothing more for a Pod that KAI has deleted meanwhile."""
    try:
        yield
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
