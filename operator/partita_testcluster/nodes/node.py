"""A simulated machine: its GPUs and its Node object."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

from partita.agent.gpu_report import JobReport
from partita.agent.times import AgentTimes
from partita.constants import GPU_RESOURCE
from partita.kube.errors import AlreadyExistsError, NotFoundError
from partita.models.quantities import format_time, parse_amount
from partita.pods.node_rules import Taint
from partita_policies.types import Sharing
from partita_testcluster.nodes.api import APIServer
from partita_testcluster.nodes.container_logs import KUBELET_HOST, ContainerLog
from partita_testcluster.nodes.gpu import GIB, REPORTS, Ended, SimulatedGPU, SimulatedJob, Work
from partita_testcluster.nodes.scheduler import COMMON, CORDON, NodeCapacity

__all__ = [
    "NODES",
    "Clock",
    "Machine",
    "NodeSpec",
    "SimulatedDevice",
    "Tenant",
    "node_specs",
]

NODES: Final = "/api/v1/nodes"
PLENTY: Final = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "1000"}
"""Default resources of a simulated node other than GPUs."""
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
        Number of GPUs.
    gpu_memory
        Bytes of memory of each GPU.
    product
        Product name of the GPUs in NVML.
    sm_count
        Streaming multiprocessors of each GPU.
    allocatable
        CPU, memory and other resources that Pods may request, as quantities.
    driver_version
        Version of NVIDIA's driver.
    """

    name: str
    gpus: int = 2
    gpu_memory: int = 40 * GIB
    product: str = "NVIDIA A100-SXM4-40GB"
    sm_count: int = 108
    allocatable: Mapping[str, str] = field(default_factory=PLENTY.copy)
    driver_version: str = "580.95.05"


def node_specs(
    gpus: int = 4, gpu_memory: int = 40 * GIB, *, gpus_per_node: int = 2
) -> list[NodeSpec]:
    """Distribute GPUs over machines named `sim-0`, `sim-1`, ...; the last may have fewer."""
    product, sm_count = _PRODUCTS.get(gpu_memory // GIB, ("NVIDIA Simulated GPU", 108))
    counts = [min(gpus_per_node, gpus - first) for first in range(0, gpus, gpus_per_node)]
    return [NodeSpec(f"sim-{i}", n, gpu_memory, product, sm_count) for i, n in enumerate(counts)]


class Clock:
    """Virtual time, which runs `speed` times as fast as the event loop's."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def now(self) -> float:
        """Return virtual seconds since an arbitrary time in the past."""
        return asyncio.get_running_loop().time() * self.speed

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds."""
        await asyncio.sleep(seconds / self.speed)


@dataclass(slots=True)
class Tenant:
    """A job on a GPU.

    Attributes
    ----------
    job_uid
        UID under which its usage is reported: that of the claim.
    processes
        Number of its MPS clients.
    log
        Log for its progress; None on all but the first of its GPUs.
    end
        Future of its end.
    idle_since
        Time since which none of its kernels runs, from `time.time`; None if one runs.
    """

    job_uid: str
    processes: int
    log: ContainerLog | None
    end: asyncio.Future[Ended]
    idle_since: float | None = None
    _reported: int = 0

    def report(self, job: SimulatedJob) -> None:
        """Note whether a job is idle, and log its progress after each tenth of its work."""
        self.idle_since = None if job.demand else self.idle_since or time.time()
        done = 0 if job.repeats else int(job.began * REPORTS)
        if self.log is not None and done > self._reported:
            self._reported = done
            self.log.write(
                f"{done * 100 // REPORTS:3d} % done, {job.memory / GIB:.2f} GiB of GPU memory, "
                f"running at {job.rate:.0%} of the speed of a job alone"
            )


class SimulatedDevice:
    """One GPU, driven by the clock.

    Attributes
    ----------
    owner
        UID of the Pod that holds the whole GPU: a server Pod, or a Pod that does not share it.
    tenants
        The jobs on it by UID of their Pods.
    first_uses
        Time of the first use by each job on it, by UID of their Pods.
    ended
        Use of ended jobs by job UID, for the agent to report.
    changed
        Set when its use has changed.
    """

    def __init__(self, uuid: str, spec: NodeSpec, clock: Clock) -> None:
        self.uuid = uuid
        self.spec = spec
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.tenants: dict[str, Tenant] = {}
        self.changed = asyncio.Event()
        self.claim("", Sharing.EXCLUSIVE)

    def claim(self, owner: str, sharing: Sharing) -> None:
        """Allocate the whole GPU to a Pod; an empty owner releases it.

        A container that restarted while no agent served the GPU cannot go on under another one.
        """
        self.stop_all("CUDA error: the MPS control daemon was not reached")
        self.owner = owner
        self.gpu = SimulatedGPU(self.spec.gpu_memory, sharing, self._clock.now())
        self.first_uses: dict[str, float] = {}
        self.ended: dict[str, JobReport] = {}

    def run(
        self, work: Work, job_uid: str, processes: int, done: float, log: ContainerLog | None
    ) -> asyncio.Future[Ended]:
        """Start a job with `done` seconds of its work already done; return its end."""
        self._advance()
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.tenants[work.key] = Tenant(job_uid, processes, log, end)
        self._settle(self.gpu.start(work, done=done))
        return end

    def stop(self, key: str, error: str = "") -> None:
        """End a job with an error; no effect if the job is not running."""
        self._advance()
        if key in self.tenants:
            self._settle([self.gpu.stop(key, error)])

    def stop_all(self, error: str) -> None:
        """End all jobs with an error."""
        for key in list(self.tenants):
            self.stop(key, error)

    def _advance(self) -> None:
        now = self._clock.now()
        while (due := self.gpu.next_event()) <= now:  # one by one, so that each is reported
            self._settle(self.gpu.advance(due))
        self._settle(self.gpu.advance(now))

    def _settle(self, ended: Sequence[Ended]) -> None:
        for key, job in self.gpu.jobs.items():
            if job.memory or job.demand:
                self.first_uses.setdefault(key, time.time())
            self.tenants[key].report(job)
        for end in ended:
            tenant = self.tenants.pop(end.key)
            first_use = self.first_uses.pop(end.key, time.time() if end.peak else None)
            self.ended[tenant.job_uid] = JobReport(0, end.peak, first_use, utilization=0)
            if not tenant.end.done():
                tenant.end.set_result(end)
        if self._timer is not None:
            self._timer.cancel()
        if self.tenants:
            now = asyncio.get_running_loop().time()
            due = [self.gpu.next_event() / self._clock.speed]
            due += [
                now + wait for tenant in self.tenants.values() if (wait := self._active(tenant))
            ]
            self._timer = asyncio.get_running_loop().call_at(min(due), self._advance)
        self.changed.set()

    def _active(self, tenant: Tenant) -> float:
        """Return the seconds until a job without a kernel counts as idle; 0 if it does, or runs."""
        if tenant.idle_since is None:
            return 0.0
        idle = time.time() - tenant.idle_since
        return max(0.0, AgentTimes.idle_after / self._clock.speed - idle)

    def use(self, key: str) -> JobReport:
        """Return the use of the GPU by a running job."""
        job, tenant = self.gpu.jobs[key], self.tenants[key]
        idle_since = None if self._active(tenant) else tenant.idle_since
        busy = 100 * job.load.busy * job.rate
        return JobReport(
            job.memory, job.peak, self.first_uses.get(key), busy, idle_since=idle_since
        )


class Machine:
    """One simulated machine and its Node object.

    Attributes
    ----------
    up
        Whether it is running; if not, it writes nothing to the API.
    rebooted
        Whether it was off since the start of the simulation, so that earlier Pods are lost.
    capacity
        Its resources, and the amounts in use.
    kubelet_port
        Port on which its kubelet serves the logs of its Pods.
    """

    def __init__(self, spec: NodeSpec, api: APIServer, clock: Clock) -> None:
        self.spec = spec
        self.up = True
        self.rebooted = False
        self.devices = [
            SimulatedDevice(
                f"GPU-{uuid5(NAMESPACE_DNS, f'{i}.{spec.name}.sim.partita.dev')}", spec, clock
            )
            for i in range(spec.gpus)
        ]
        own = {name: parse_amount(name, spec.allocatable[name]) for name in COMMON}
        self.capacity = NodeCapacity(spec.name, capacity=own | {GPU_RESOURCE: spec.gpus})
        # Labels as kubelet and GPU feature discovery set them.
        # https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery
        self._labels = {
            "kubernetes.io/hostname": spec.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": str(spec.gpus),
            "nvidia.com/gpu.product": spec.product.replace(" ", "-"),
            "nvidia.com/gpu.memory": str(spec.gpu_memory >> 20),
        }
        self._api = api
        self._writing = asyncio.Lock()
        self.kubelet_port = 0

    @property
    def path(self) -> str:
        """Path of its Node in the API."""
        return f"{NODES}/{self.spec.name}"

    def observe(self, node: Body) -> None:
        """Adopt the labels and taints of its Node."""
        spec = node.get("spec") or {}
        self.capacity.labels = node["metadata"].get("labels") or {}
        cordon = [CORDON] if spec.get("unschedulable") else []
        taints = map(Taint.model_validate, spec.get("taints") or ())
        self.capacity.taints = [*taints, *cordon]

    async def register(self) -> None:
        """Create its Node, or adopt the existing Node of its name."""
        meta = {"name": self.spec.name, "labels": self._labels}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        try:
            await self._api.call("POST", NODES, node)
        except AlreadyExistsError:
            await self._api.call("PATCH", self.path, {"metadata": meta})
        await self.publish()

    async def publish(self) -> None:
        """Write its resources and its heartbeat."""
        async with self._writing:
            devices = {n: str(c) for n, c in self.capacity.capacity.items() if n not in COMMON}
            has = {**self.spec.allocatable, **devices}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            ready["lastHeartbeatTime"] = format_time(datetime.now(UTC))
            status = {
                "capacity": has,
                "allocatable": has,
                "conditions": [ready],
                "addresses": [{"type": "InternalIP", "address": KUBELET_HOST}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet_port}},
            }
            with suppress(NotFoundError):  # the Node was deleted, which the watch reports
                await self._api.call("PATCH", f"{self.path}/status", {"status": status})
