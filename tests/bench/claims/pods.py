"""Pods with claims, and a kubelet that is simulated: it starts what is bound, and ends it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from bench.load.stage import Stage
from bench.scale.client import Client
from bench.scale.nodes import GPUS_ON_NODE, ended, running
from partita.constants import ALLOCATION_GATE, ANNOTATION_STATUS
from partita.models.device_class import device_class_of

__all__ = ["Kubelet", "SettledClaims", "claim_pod", "fill_nodes", "make_template"]

Json = dict[str, Any]

TEMPLATE = "share"


async def fill_nodes(api: Client, gpus: int) -> None:
    """Have the simulated nodes offer all that Pods ask for, so that kube-scheduler binds them."""
    plenty = {"cpu": "10000", "memory": "100Ti", "pods": "100000"}
    for first in range(0, gpus, GPUS_ON_NODE):
        amounts = {"capacity": plenty, "allocatable": plenty}
        path = f"/api/v1/nodes/node-{first // GPUS_ON_NODE}/status"
        await api.patch(path, {"status": amounts})


async def make_template(
    api: Client, namespace: str, partition: str, memory: str, name: str = TEMPLATE
) -> None:
    """Make a claim template for Pods of a namespace."""
    exactly = {
        "deviceClassName": device_class_of(partition),
        "capacity": {"requests": {"memory": memory}},
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    body = {"metadata": {"name": name}, "spec": {"spec": spec}}
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
    await api.post(path, body)


def claim_pod(name: str, *, gated: bool) -> Json:
    """Return a Pod with a claim, which waits for its allocation behind a gate or without one."""
    main = {"name": "main", "image": "bench", "resources": {"claims": [{"name": "gpu"}]}}
    spec: Json = {
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}],
        "containers": [main],
    }
    if gated:
        spec["schedulingGates"] = [{"name": ALLOCATION_GATE}]
    return {"metadata": {"name": name}, "spec": spec}


class Kubelet:
    """Sees when Pods of a namespace are bound, and runs them.

    Attributes
    ----------
    bound
        When each Pod was first seen with a node, by the clock.
    ended
        Pods whose program has ended.
    """

    def __init__(self, stage: Stage, namespace: str) -> None:
        self._api = stage.api
        self.namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._since: dict[str, datetime] = {}
        self.bound: dict[str, float] = {}
        self.ended: set[str] = set()

    async def run(self) -> None:
        """Watch the Pods until cancelled."""
        await self._api.watch(self._path, self._see)

    def _see(self, kind: str, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if kind != "DELETED" and pod["spec"].get("nodeName") and name not in self.bound:
            self.bound[name] = time.time()

    async def start(self, name: str) -> None:
        """Have a Pod's program run."""
        self._since[name] = datetime.now(UTC)
        await self._patch(name, running(self._since[name]))

    async def end(self, name: str) -> None:
        """Have a Pod's program end well."""
        now = datetime.now(UTC)
        self.ended.add(name)
        await self._patch(name, ended(self._since.get(name, now), now))

    async def turn_over(self, every: float) -> None:
        """End the Pod that was bound first among those left, again and again, until cancelled."""
        left = iter(self.bound.copy())
        for name in left:
            await asyncio.sleep(every)
            await self.end(name)

    async def _patch(self, name: str, status: Json) -> None:
        await self._api.patch(f"{self._path}/{name}/status", {"status": status})


class SettledClaims:
    """The claims of a namespace that are allocated or say why they wait.

    Attributes
    ----------
    names
        Of those that have been seen so.
    allocated
        When the claim of each Pod was first seen with an allocation, by the clock.
    taken_back
        How many allocations were cleared of Pods that had not ended.
    """

    def __init__(self, stage: Stage, kubelet: Kubelet) -> None:
        self._api = stage.api
        self._kubelet = kubelet
        namespace = kubelet.namespace
        self._path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        self._holders: set[str] = set()
        self.names: set[str] = set()
        self.allocated: dict[str, float] = {}
        self.taken_back = 0

    async def run(self) -> None:
        """Watch the claims until cancelled."""
        await self._api.watch(self._path, self._see)

    def _see(self, kind: str, claim: Json) -> None:
        meta = claim["metadata"]
        (pod,) = (owner["name"] for owner in meta["ownerReferences"])
        allocated = kind != "DELETED" and "allocation" in (claim.get("status") or {})
        if allocated:
            self._holders.add(pod)
            self.allocated.setdefault(pod, time.time())
        elif pod in self._holders:
            self._holders.discard(pod)
            self.taken_back += pod not in self._kubelet.ended
        if allocated or ANNOTATION_STATUS in meta.get("annotations", {}):
            self.names.add(meta["name"])
