"""HAMi in `sharing`: its scheduler, a program that is given with `--hami`, beside kube-scheduler.

Written for HAMi 2.10 (github.com/Project-HAMi/HAMi, tag v2.10.0, program cmd/scheduler). Nothing
here builds it: the Go module proxy, from which all other peers come, refuses its module.

kube-scheduler calls it as an extender, to filter and to bind, with the settings of HAMi's Helm chart
(charts/hami, values.yaml and templates/scheduler): nodes are packed, GPUs of a node are spread, and
each GPU takes ten Pods at most. A second subject packs GPUs as well. Where this is not what the
chart does, HAMi has less to do:

- Pods name their scheduler, instead of a webhook that sets it (`admissionWebhook.enabled: false`).
- It is called by HTTP, without TLS; there is one kube-scheduler, which only its Pods use; it knows
  devices of NVIDIA alone, logs little (the chart: `-v=4`), and has an administrator's rights.
- It may ask the API server as often as kube-scheduler, and without throttles as often as it likes.
  By default, which the chart does not change, it may 5 times a second, and a Pod takes 6 s.

Its device plugin, which needs NVIDIA's driver, is simulated. It publishes each node's GPUs in an
annotation. To bind a Pod, HAMi locks the node, and refuses to bind another one there until the
device plugin has handed out the GPU (pkg/util/nodelock; Allocate in pkg/device-plugin/nvidiadevice).
Here the lock is released at once and the rest is done afterwards, so that it is held for less time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from typing_extensions import override

from apiserver.build import assets
from apiserver.processes import free_port
from bench.client import Client, Json
from bench.nodes import path_of
from bench.peers.demand import GPU_MEMORY, PODS, Share, memory_of, pod
from bench.peers.sharer import Sharer, SharingNodes
from bench.stage import SET_UP_SECONDS, Plane, Throttles, start

if TYPE_CHECKING:
    from bench.load import Work

__all__ = ["HamiPods", "share_of"]


SCHEDULER = "hami-scheduler"
GPUS, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PODS_ON_GPU = 10
"""`deviceSplitCount`."""
REGISTER = "hami.io/node-nvidia-register"
LOCK = "hami.io/mutex.lock"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
PHASE = "hami.io/bind-phase"
KNOWN = "hami_gpu_memory_limit_bytes{"
"""Its metric of each GPU that it can give away."""
_DEVICES = {
    "nvidia": {
        "resourceCountName": GPUS,
        "resourceMemoryName": MEMORY,
        "resourceMemoryPercentageName": "nvidia.com/gpumem-percentage",
        "resourceCoreName": CORES,
        "resourcePriorityName": "nvidia.com/priority",
        "defaultGPUNum": 1,
        "memoryFactor": 1,
        "deviceSplitCount": PODS_ON_GPU,
        "deviceMemoryScaling": 1,
        "deviceCoreScaling": 1,
    }
}


class _ExtendedPlane(Plane):
    """Its kube-scheduler asks an extender at this port."""

    def __init__(self, assets: Path, throttles: Throttles, port: int) -> None:
        super().__init__(assets, throttles)
        self._port = port

    @override
    def scheduler_settings(self) -> Json:
        extender = {
            "urlPrefix": f"http://127.0.0.1:{self._port}",
            "filterVerb": "filter",
            "bindVerb": "bind",
            "nodeCacheCapable": True,
            "weight": 1,
            "httpTimeout": "30s",
            "managedResources": [
                {"name": name, "ignoredByScheduler": True}
                for key, name in _DEVICES["nvidia"].items()
                if key.startswith("resource")
            ],
        }
        return {"profiles": [{"schedulerName": SCHEDULER}], "extenders": [extender]}


class _Nodes(SharingNodes):
    """Its device plugin has a part in starting the Pods that are bound."""

    @override
    async def _start(self, pod: Json, seen: float) -> None:
        await self._allocate(pod)
        await super()._start(pod, seen)

    async def _allocate(self, pod: Json) -> None:
        """Ask and write what the device plugin does, in another order."""
        api = self._client
        node, path = _node(pod["spec"]["nodeName"]), path_of(pod["metadata"])
        await api.patch(node, {"metadata": {"annotations": {LOCK: None}}})
        await api.get(node)
        await api.get(path)
        await api.patch(path, {"metadata": {"annotations": {TO_ALLOCATE: ";"}}})
        await api.get(path)
        await api.patch(path, {"metadata": {"annotations": {PHASE: "success"}}})
        for _ in range(2):
            await api.get(node)


class HamiPods(Sharer):
    """Pods with HAMi's resources.

    Parameters
    ----------
    program
        HAMi's scheduler.
    packs
        Whether the GPUs of a node are packed, not only the nodes.
    """

    nodes = _Nodes

    def __init__(self, program: Path, *, packs: bool) -> None:
        self._program = program
        self._policy = "binpack" if packs else "spread"
        self._metrics = ""
        self.name = f"HAMi, {'binpack' if packs else 'default'}"

    @override
    def plane(self, throttles: Throttles) -> Plane:
        self._port = free_port()
        return _ExtendedPlane(assets(), throttles, self._port)

    @override
    async def install(self, plane: Plane, api: Client, stack: ExitStack) -> dict[str, int]:
        devices = plane.kubeconfig.with_name("hami-devices")
        devices.write_text(json.dumps(_DEVICES))
        metrics = f"127.0.0.1:{free_port()}"
        self._metrics = f"http://{metrics}/metrics"
        often, at_once = plane.throttles.hami
        command = [
            *("/usr/bin/env", f"KUBECONFIG={plane.kubeconfig}", self._program),
            f"--http_bind=127.0.0.1:{self._port}",
            f"--metrics-bind-address={metrics}",
            f"--scheduler-name={SCHEDULER}",
            f"--device-config-file={devices}",
            "--node-scheduler-policy=binpack",
            f"--gpu-scheduler-policy={self._policy}",
            f"--kube-qps={often}",
            f"--kube-burst={at_once}",
        ]
        log = plane.kubeconfig.with_name("hami.log")
        return {"hami": start(command, log, "listen on", stack)}

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
        numbers = count()
        for node, there in gpus.items():
            devices = [_device(next(numbers), index) for index in range(there)]
            annotations = {REGISTER: json.dumps(devices)}
            await api.patch(_node(node), {"metadata": {"annotations": annotations}})
            amount = {GPUS: str(there * PODS_ON_GPU)}
            status = {"capacity": amount, "allocatable": amount}
            await api.patch(f"{_node(node)}/status", {"status": status})
        async with asyncio.timeout(SET_UP_SECONDS), aiohttp.ClientSession() as session:
            while await self._known(session) < sum(gpus.values()):
                await asyncio.sleep(1)

    async def _known(self, session: aiohttp.ClientSession) -> int:
        """Return how many GPUs it can give away. It looks for new ones every 15 s."""
        async with session.get(self._metrics) as response:
            return (await response.text()).count(KNOWN)

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        memory = str(memory_of(work.size) * 1024)
        asked = {GPUS: "1", MEMORY: memory, CORES: str(work.size)}
        return PODS, pod(work, {"limits": asked}, schedulerName=SCHEDULER)

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        found = {}
        for one in (await api.get(PODS))["items"]:
            meta = one["metadata"]
            if given := meta["annotations"].get(ALLOCATED):
                found[meta["name"]] = share_of(given)
        return found


def share_of(given: str) -> Share:
    """Read HAMi's annotation of a Pod with one GPU.

    It lists the containers, each ended by a semicolon, and their GPUs, each ended by a colon: UUID,
    vendor, MiB of memory, percent of compute.
    """
    (gpu,) = (one for container in given.split(";") for one in container.split(":") if one)
    uuid, _, memory, cores = gpu.split(",")
    return Share(uuid, int(memory) / 1024, float(cores))


def _device(number: int, index: int) -> Json:
    """Return how the device plugin describes a GPU, the n-th of all."""
    return {
        "id": f"GPU-{number:08x}-0000-4000-8000-000000000000",
        "index": index,
        "count": PODS_ON_GPU,
        "devmem": GPU_MEMORY * 1024,
        "devcore": 100,
        "type": "NVIDIA H100 80GB HBM3",
        "mode": "hami-core",
        "health": True,
    }


def _node(name: str) -> str:
    return f"/api/v1/nodes/{name}"
