"""Partita in `sharing`: SharedGPUJobs, and Pods with claims behind the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from bench.client import Client, Json
from bench.jobs import DRA, make_claim_template
from bench.peers.demand import LASTS, NAMESPACE, PERCENTS, PODS, Share, memory_of, pod, resources
from bench.peers.sharer import Sharer
from bench.shape import API, job
from bench.stage import Plane, install_operator, jobs_path, make_partitions
from partita.constants import ALLOCATION_GATE, CAPACITY_MEMORY, CAPACITY_THREADS
from partita.models.device_class import device_class_of
from partita.models.quantities import parse_memory

if TYPE_CHECKING:
    from bench.load import Work

__all__ = ["PartitaClaims", "PartitaJobs", "claim_pod", "claimed"]


PARTITION = "shared"
SET_UP_SECONDS = 600
_GIB = 1 << 30


class PartitaJobs(Sharer):
    """SharedGPUJobs in one partition of all GPUs.

    No memory is kept back, because no peer does that. Compute is given away like memory: Partita
    limits each Pod's threads to its percent, and does not count them.
    """

    name = "Partita, SharedGPUJobs"
    peer = False

    @override
    async def install(self, plane: Plane, api: Client, stack: ExitStack) -> dict[str, int]:
        return {"operator": await install_operator(plane, api, stack)}

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
        wanted = sum(gpus.values())
        sharing = {"memoryReservePercent": 0}
        spec = {"gpus": wanted, "objective": "Packing", "sharing": sharing}
        body = {"apiVersion": API, "kind": "GPUPartition", "metadata": {"name": PARTITION}}
        await make_partitions(api, [{**body, "spec": spec}])
        async with asyncio.timeout(SET_UP_SECONDS):
            while len((await api.get(f"{DRA}/resourceslices"))["items"]) < wanted:
                await asyncio.sleep(1)

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        memory, asked = f"{memory_of(work.size)}Gi", {"requests": resources(work.size)}
        body = job(work.name, PARTITION, memory, LASTS, threadPercent=work.size, resources=asked)
        return jobs_path(NAMESPACE), body

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        found = {}
        for one in (await api.get(jobs_path(NAMESPACE)))["items"]:
            if given := one.get("status", {}).get("assignment"):
                (gpu,) = given["gpus"]
                memory = parse_memory(given["memory"]) / _GIB
                found[one["metadata"]["name"]] = Share(gpu, memory, given["threadPercent"])
        return found


class PartitaClaims(PartitaJobs):
    """Pods with claims, behind the gate."""

    name = "Partita, claims"

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
        await super().prepare(api, namespaces, gpus)
        await make_templates(api, device_class_of(PARTITION), CAPACITY_MEMORY, CAPACITY_THREADS)

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        gate = {"name": ALLOCATION_GATE}
        return PODS, claim_pod(work, schedulingGates=[gate])

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        return await claimed(api, CAPACITY_MEMORY, CAPACITY_THREADS)


async def make_templates(api: Client, device_class: str, memory: str, compute: str) -> None:
    """Make the claim templates of all sizes, in which capacities have these names."""
    for percent in PERCENTS:
        requests = {memory: f"{memory_of(percent)}Gi", compute: str(percent)}
        await make_claim_template(api, NAMESPACE, f"percent-{percent}", device_class, requests)


def claim_pod(work: Work, **spec: Any) -> Json:
    """Return a Pod whose claim is made from the template of its size."""
    claim = {"name": "gpu", "resourceClaimTemplateName": f"percent-{work.size}"}
    return pod(work, {"claims": [{"name": "gpu"}]}, resourceClaims=[claim], **spec)


async def claimed(api: Client, memory: str, compute: str) -> dict[str, Share]:
    """Return what the claims of Pods were given, read from these capacities of their devices."""
    found = {}
    for claim in (await api.get(f"{DRA}/namespaces/{NAMESPACE}/resourceclaims"))["items"]:
        if (allocation := claim.get("status", {}).get("allocation")) is None:
            continue
        (owner,) = claim["metadata"]["ownerReferences"]
        (device,) = allocation["devices"]["results"]
        consumed = device["consumedCapacity"]
        gpu = f"{device['pool']}/{device['device']}"
        given = parse_memory(consumed[memory]) / _GIB
        found[owner["name"]] = Share(gpu, given, float(consumed[compute]))
    return found
