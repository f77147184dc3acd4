"""A simulated machine: its GPUs, and the Node object that tells the cluster of them."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

from partita.constants import DEVICE_RESOURCE_PREFIX, GPU_RESOURCE
from partita.embedded.nodes.api import API, ApiError
from partita.embedded.nodes.gpu import GIB, GPU, Ended, Mode, Work
from partita.embedded.nodes.scheduler import Cluster, SchedulableNode
from partita.embedded.nodes.status import node_status

__all__ = ["Clock", "Device", "Machine", "NodeSpec", "Tenant", "node_specs"]

NODES: Final = "/api/v1/nodes"
_PRODUCTS: Final = {
    40: ("NVIDIA A100-SXM4-40GB", 108),
    80: ("NVIDIA A100-SXM4-80GB", 108),
    141: ("NVIDIA H200", 132),
}
"""Product and SM count by gibibytes: NVIDIA A100 and H100/H200 architecture white papers."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A machine to simulate.

    Parameters
    ----------
    name
        Name of its Node.
    gpus
        How many GPUs it has.
    gpu_memory
        Bytes of memory of each.
    product
        What NVML calls them.
    sm_count
        Streaming multiprocessors of each.
    """

    name: str
    gpus: int = 2
    gpu_memory: int = 40 * GIB
    product: str = "NVIDIA A100-SXM4-40GB"
    sm_count: int = 108


def node_specs(
    gpus: int = 4, gpu_memory: int = 40 * GIB, *, gpus_per_node: int = 2
) -> list[NodeSpec]:
    """Spread GPUs over machines named `sim-0`, `sim-1`, ...; the last may have fewer."""
    product, sm_count = _PRODUCTS.get(gpu_memory // GIB, ("NVIDIA Simulated GPU", 108))
    return [
        NodeSpec(
            f"sim-{i}", min(gpus_per_node, gpus - i * gpus_per_node), gpu_memory, product, sm_count
        )
        for i in range(math.ceil(gpus / gpus_per_node))
    ]


class Clock:
    """Virtual time, which runs `speed` times as fast as the event loop's."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        """Virtual seconds since some time in the past."""
        return self._loop.time() * self.speed

    def call_at(self, time: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back at a virtual time."""
        return self._loop.call_at(time / self.speed, callback)

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds."""
        await asyncio.sleep(seconds / self.speed)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A job on a GPU: its UID, its client processes, and whom to tell of its end.

    `on_end` gets the error that ended it, or an empty text.
    """

    job_uid: str
    processes: int
    on_end: Callable[[str], None]


class Device:
    """One GPU, driven by the clock.

    Attributes
    ----------
    owner
        UID of the Pod that holds the whole GPU: a server Pod, or a Pod that shares with nobody.
    tenants
        The jobs on it by their Pods' UID.
    peaks
        Most memory of jobs that have ended, by job UID, for the agent to report once.
    on_change
        Called when its use has changed.
    """

    def __init__(self, uuid: str, spec: NodeSpec, clock: Clock) -> None:
        self.uuid = uuid
        self.spec = spec
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.owner: str | None = None
        self.tenants: dict[str, Tenant] = {}
        self.peaks: dict[str, int] = {}
        self.on_change: Callable[[], None] = _nothing
        self.gpu = GPU(spec.gpu_memory, "Exclusive")

    @property
    def resource(self) -> str:
        """Resource under which its slices are offered."""
        return DEVICE_RESOURCE_PREFIX + self.uuid.removeprefix("GPU-")[:8]

    def claim(self, owner: str, mode: Mode) -> None:
        """Give the whole GPU to a Pod."""
        self.owner = owner
        self.gpu = GPU(self.spec.gpu_memory, mode, self._clock.now())

    def release(self) -> None:
        """Take the GPU back; whatever runs on it is forgotten."""
        self.owner = None
        self.tenants, self.peaks = {}, {}
        self.on_change = _nothing
        self.gpu = GPU(self.spec.gpu_memory, "Exclusive")
        self._rearm()

    def run(self, work: Work, done: float, tenant: Tenant) -> None:
        """Start a job, of which some seconds may be done already."""
        self._advance()
        self.tenants[work.key] = tenant
        ended = self.gpu.start(work, done=done)
        self._settle([ended] if ended else [])

    def stop(self, key: str) -> None:
        """End a job without a word; no effect if it does not run."""
        self._advance()
        if key in self.gpu:
            self._note_peak(key, self.gpu.usage().jobs[key].peak)
            self.gpu.stop(key)
            self._settle([])

    def kill_all(self, error: str) -> None:
        """End all jobs with an error."""
        for key, tenant in list(self.tenants.items()):
            self.stop(key)
            tenant.on_end(error)

    def _advance(self) -> None:
        self._settle(self.gpu.advance(self._clock.now()))

    def _settle(self, ended: Sequence[Ended]) -> None:
        self._rearm()
        for end in ended:
            self._note_peak(end.key, end.peak).on_end(end.error)
        self.on_change()

    def _note_peak(self, key: str, peak: int) -> Tenant:
        tenant = self.tenants.pop(key)
        self.peaks[tenant.job_uid] = max(peak, self.peaks.get(tenant.job_uid, 0))
        return tenant

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.gpu.next_event()
        self._timer = self._clock.call_at(due, self._advance) if due < math.inf else None


def _nothing() -> None:
    """Nobody wants to know."""


class Machine:
    """One simulated machine and its Node object.

    Attributes
    ----------
    up
        Whether it runs; one that does not is silent.
    rebooted
        Whether it was off since the simulation began, so that nothing from before still runs.
    uid
        UID of its Node.
    """

    def __init__(self, spec: NodeSpec, api: API, cluster: Cluster, clock: Clock) -> None:
        self.spec = spec
        self.name = spec.name
        self.up = False
        self.rebooted = False
        self.uid = ""
        self.devices = [
            Device(f"GPU-{uuid5(NAMESPACE_DNS, f'{i}.{spec.name}.sim.partita.dev')}", spec, clock)
            for i in range(spec.gpus)
        ]
        self._api = api
        self._cluster = cluster
        self._offers: dict[str, tuple[int, int]] = {}
        self._withdrawn: set[str] = set()
        self._writing = asyncio.Lock()
        self._changes = 0
        self._written = 0

    @property
    def path(self) -> str:
        """Path of its Node in the API."""
        return f"{NODES}/{self.name}"

    def device(self, resource: str) -> Device | None:
        """Find the GPU whose slices a resource stands for, while its agent offers them."""
        offered = resource in self._offers
        return next((d for d in self.devices if offered and d.resource == resource), None)

    def power_on(self) -> None:
        """Let Pods be placed on it."""
        self.up = True
        self._cluster.add(SchedulableNode(self.name, labels=self._labels()))
        self.offer(GPU_RESOURCE, self.spec.gpus)

    def power_off(self) -> None:
        """Lose everything that runs on it."""
        self.up = False
        self.rebooted = True
        self._withdrawn |= self._offers.keys()
        self._offers.clear()
        self._cluster.remove(self.name)
        for device in self.devices:
            device.release()

    def offer(self, resource: str, count: int, healthy: int | None = None) -> None:
        """Set how many of a resource there are, and how many are healthy; `publish` tells it."""
        if count:
            self._offers[resource] = (count, count if healthy is None else healthy)
        else:
            self._offers.pop(resource, None)
            self._withdrawn.add(resource)
        self._cluster.offer(self.name, resource, count if healthy is None else healthy)
        self._changes += 1

    def observe(self, node: Body) -> None:
        """Take over what people set on its Node."""
        seen, spec = self._cluster.nodes[self.name], node.get("spec") or {}
        seen.labels = node["metadata"].get("labels") or {}
        seen.taints = spec.get("taints") or ()
        seen.cordoned = spec.get("unschedulable", False)

    async def register(self) -> None:
        """Create its Node, or take over the one of its name; `publish` tells what it has."""
        meta = {"name": self.name, "labels": self._labels()}
        try:
            node = await self._api.create(
                NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}}
            )
        except ApiError as error:
            if error.status != 409:
                raise
            await self._api.patch(self.path, {"metadata": meta})
            node = await self._api.get(self.path)
        self.uid = node["metadata"]["uid"]
        # What the agents of an earlier run offered.
        capacity = (node.get("status") or {}).get("capacity") or {}
        self._withdrawn |= {r for r in capacity if r.startswith(DEVICE_RESOURCE_PREFIX)}

    async def publish(self) -> None:
        """Write what it offers; calls that wait for each other share one write."""
        change = self._changes
        async with self._writing:
            if self._written >= change or not self.up:
                return
            self._written = self._changes
            withdrawn = self._withdrawn - self._offers.keys()
            patch = node_status(self._offers, withdrawn, datetime.now(UTC))
            try:
                await self._api.patch(f"{self.path}/status", patch)
            except ApiError as error:
                if error.status != 404:  # the Node was deleted: the watch tells
                    raise

    def _labels(self) -> dict[str, str]:
        """Labels as kubelet and GPU feature discovery set them.

        https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery
        """
        return {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": str(self.spec.gpus),
            "nvidia.com/gpu.product": self.spec.product.replace(" ", "-"),
            "nvidia.com/gpu.memory": str(self.spec.gpu_memory >> 20),
        }
