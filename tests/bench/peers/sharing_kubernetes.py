"""Kubernetes alone in `sharing`: kube-scheduler gives away the capacity of devices.

Devices that may be allocated several times, each time with a part of their capacity, are a beta
feature of Kubernetes 1.36 (DRAConsumableCapacity, KEP-5075). A driver publishes them; here that is
done once, before anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from typing_extensions import override

from bench.peers.plane import PeersPlane, Throttles
from bench.peers.sharing_demand import GPU_MEMORY, PERCENTS, Share, memory_of
from bench.peers.sharing_partita import DRA, claim_pod, claimed, make_claim_template
from bench.peers.sharing_subject import PODS, Sharer
from bench.scale.client import Client

__all__ = ["KubernetesClaims"]

Json = dict[str, Any]

DRIVER = "gpu.example.com"
CLASS = "fractions"
MEMORY, COMPUTE = "memory", "compute"
_GPU = {
    "allowMultipleAllocations": True,
    "capacity": {MEMORY: {"value": f"{GPU_MEMORY}Gi"}, COMPUTE: {"value": "100"}},
}


class _PackingPlane(PeersPlane):
    """Its kube-scheduler prefers the nodes of which most is requested."""

    @override
    def scheduler_settings(self) -> Json:
        weights = [{"name": name, "weight": 1} for name in ("cpu", "memory")]
        strategy = {"type": "MostAllocated", "resources": weights}
        fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
        return {"profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [fit]}]}


class KubernetesClaims(Sharer):
    """Pods with claims that kube-scheduler allocates."""

    peer = True

    def __init__(self, *, packs: bool) -> None:
        self._packs = packs
        self.name = f"Kubernetes, claims, {'MostAllocated' if packs else 'default'}"

    @override
    def plane(self, assets: Path, throttles: Throttles) -> PeersPlane:
        return (_PackingPlane if self._packs else PeersPlane)(assets, throttles)

    @override
    async def install(
        self, plane: PeersPlane, api: Client, throttles: Throttles, stack: ExitStack
    ) -> dict[str, int]:
        return plane.process_ids()

    @override
    async def prepare(self, api: Client, gpus: Mapping[str, int]) -> None:
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        body = {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}}
        await api.post(f"{DRA}/deviceclasses", body)
        for node, number in gpus.items():
            spec = {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{n}", **_GPU} for n in range(number)],
            }
            await api.post(f"{DRA}/resourceslices", {"metadata": {"name": node}, "spec": spec})
        for percent in PERCENTS:
            requests = {MEMORY: f"{memory_of(percent)}Gi", COMPUTE: str(percent)}
            exactly = {"deviceClassName": CLASS, "capacity": {"requests": requests}}
            await make_claim_template(api, percent, exactly)

    @override
    def submission(self, name: str, percent: int) -> tuple[str, Json]:
        return PODS, claim_pod(name, percent)

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        return await claimed(api, MEMORY, COMPUTE)
