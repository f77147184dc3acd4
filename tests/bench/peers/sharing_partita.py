"""Partita in `sharing`: SharedGPUJobs, and Pods with claims behind the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from typing_extensions import override

from bench.peers.partita_jobs import SharedJobs
from bench.peers.plane import PeersPlane, Throttles
from bench.peers.sharing_demand import PERCENTS, Share, memory_of
from bench.peers.sharing_subject import LASTS_SECONDS, NAMESPACE, PODS, Sharer, pod, resources
from bench.scale.client import Client
from bench.scale.partitions import PARTITIONS_PATH, gpus_ready, jobs_path
from bench.scale.shape import RUN_SECONDS
from partita.constants import ALLOCATION_GATE, CAPACITY_MEMORY, CAPACITY_THREADS, GROUP, VERSION
from partita.models.device_class import device_class_of
from partita.models.quantities import parse_memory

__all__ = ["PartitaClaims", "PartitaJobs"]

Json = dict[str, Any]

PARTITION = "shared"
DRA = "/apis/resource.k8s.io/v1"
SET_UP_SECONDS = 600
_GIB = 1 << 30


class _Partita(Sharer):
    """One partition of all GPUs.

    No memory is kept back, because no peer does that. Compute is given away like memory: Partita
    limits each Pod's threads to its percent, and does not count them.
    """

    peer = False

    def __init__(self, objective: str) -> None:
        self._objective = objective

    @override
    async def install(
        self, plane: PeersPlane, api: Client, throttles: Throttles, stack: ExitStack
    ) -> dict[str, int]:
        return {"operator": await SharedJobs().install(plane, api, stack), **plane.process_ids()}

    @override
    async def prepare(self, api: Client, gpus: Mapping[str, int]) -> None:
        wanted = sum(gpus.values())
        spec = {
            "gpus": wanted,
            "objective": self._objective,
            "sharing": {"memoryReservePercent": 0},
        }
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUPartition", "spec": spec}
        await api.post(PARTITIONS_PATH, {**body, "metadata": {"name": PARTITION}})
        async with asyncio.timeout(SET_UP_SECONDS):
            while await gpus_ready(api) < wanted:
                await asyncio.sleep(1)
            while len((await api.get(f"{DRA}/resourceslices"))["items"]) < wanted:
                await asyncio.sleep(1)


class PartitaJobs(_Partita):
    """SharedGPUJobs."""

    def __init__(self, objective: str = "Packing") -> None:
        super().__init__(objective)
        self.name = f"Partita, SharedGPUJobs, {objective}"

    @override
    def submission(self, name: str, percent: int) -> tuple[str, Json]:
        container = {
            "name": "main",
            "image": "bench",
            "resources": {"requests": resources(percent)},
        }
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "SharedGPUJob",
            "metadata": {"name": name},
            "spec": {
                "partition": PARTITION,
                "gpuMemory": f"{memory_of(percent)}Gi",
                "threadPercent": percent,
                "template": {
                    "metadata": {"annotations": {RUN_SECONDS: LASTS_SECONDS}},
                    "spec": {"containers": [container]},
                },
            },
        }
        return jobs_path(NAMESPACE), body

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        found = {}
        for job in (await api.get(jobs_path(NAMESPACE)))["items"]:
            if given := job.get("status", {}).get("assignment"):
                (gpu,) = given["gpus"]
                memory = parse_memory(given["memory"]) / _GIB
                found[job["metadata"]["name"]] = Share(gpu, memory, given["threadPercent"])
        return found


class PartitaClaims(_Partita):
    """Pods with claims, behind the gate."""

    def __init__(self, objective: str = "Packing") -> None:
        super().__init__(objective)
        self.name = f"Partita, claims, {objective}"

    @override
    async def prepare(self, api: Client, gpus: Mapping[str, int]) -> None:
        await super().prepare(api, gpus)
        for percent in PERCENTS:
            requests = {CAPACITY_MEMORY: f"{memory_of(percent)}Gi", CAPACITY_THREADS: str(percent)}
            exactly = {
                "deviceClassName": device_class_of(PARTITION),
                "capacity": {"requests": requests},
            }
            await make_claim_template(api, percent, exactly)

    @override
    def submission(self, name: str, percent: int) -> tuple[str, Json]:
        return PODS, claim_pod(name, percent, schedulingGates=[{"name": ALLOCATION_GATE}])

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        return await claimed(api, CAPACITY_MEMORY, CAPACITY_THREADS)


async def make_claim_template(api: Client, percent: int, exactly: Json) -> None:
    """Make the claim template of the Pods with so many percent of a GPU."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    body = {"metadata": {"name": f"percent-{percent}"}, "spec": {"spec": spec}}
    await api.post(f"{DRA}/namespaces/{NAMESPACE}/resourceclaimtemplates", body)


def claim_pod(name: str, percent: int, **spec: Any) -> Json:
    """Return a Pod whose claim is made from the template of its size."""
    claim = {"name": "gpu", "resourceClaimTemplateName": f"percent-{percent}"}
    container = {"claims": [{"name": "gpu"}]}
    return pod(name, percent, container, resourceClaims=[claim], **spec)


async def claimed(api: Client, memory: str, compute: str) -> dict[str, Share]:
    """Return what the claims of Pods were given, read from these capacities of their devices."""
    found = {}
    for claim in (await api.get(f"{DRA}/namespaces/{NAMESPACE}/resourceclaims"))["items"]:
        allocation = claim.get("status", {}).get("allocation")
        if allocation is None:
            continue
        (owner,) = claim["metadata"]["ownerReferences"]
        (device,) = allocation["devices"]["results"]
        consumed = device["consumedCapacity"]
        found[owner["name"]] = Share(
            f"{device['pool']}/{device['device']}",
            parse_memory(consumed[memory]) / _GIB,
            float(consumed[compute]),
        )
    return found
