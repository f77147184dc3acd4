"""Kubernetes alone in `sharing`: kube-scheduler gives away the capacity of devices.

Devices that may be allocated several times, each time with a part of their capacity, are a beta
feature of Kubernetes 1.36 (DRAConsumableCapacity, KEP-5075). A driver publishes them; here that is
done once, before anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from apiserver.build import assets
from bench.client import Client, Json
from bench.jobs import DRA
from bench.peers.demand import GPU_MEMORY, PODS, Share
from bench.peers.partita import claim_pod, claimed, make_templates
from bench.peers.sharer import Sharer
from bench.stage import Plane, Throttles

if TYPE_CHECKING:
    from bench.load import Work

__all__ = ["KubernetesClaims"]


DRIVER = "gpu.example.com"
CLASS = "fractions"
MEMORY, COMPUTE = "memory", "compute"
_GPU = {
    "allowMultipleAllocations": True,
    "capacity": {MEMORY: {"value": f"{GPU_MEMORY}Gi"}, COMPUTE: {"value": "100"}},
}


class _PackingPlane(Plane):
    """Its kube-scheduler prefers the nodes of which most is requested."""

    @override
    def scheduler_settings(self) -> Json:
        weights = [{"name": name, "weight": 1} for name in ("cpu", "memory")]
        strategy = {"type": "MostAllocated", "resources": weights}
        fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
        return {"profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [fit]}]}


class KubernetesClaims(Sharer):
    """Pods with claims that kube-scheduler allocates."""

    def __init__(self, *, packs: bool) -> None:
        self._plane = _PackingPlane if packs else Plane
        self.name = f"Kubernetes, claims, {'MostAllocated' if packs else 'default'}"

    @override
    def plane(self, throttles: Throttles) -> Plane:
        return self._plane(assets(), throttles)

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
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
        await make_templates(api, CLASS, MEMORY, COMPUTE)

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        return PODS, claim_pod(work)

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        return await claimed(api, MEMORY, COMPUTE)
