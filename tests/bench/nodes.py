"""Simulated nodes: agents that report GPUs, and kubelets that let each Pod run its time."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from typing_extensions import override

from bench.client import Client, Json
from bench.shape import GPU_MEMORY, RUN_SECONDS
from partita.constants import COMPONENT_SERVER, GROUP, LABEL_COMPONENT, LABEL_SERVER, VERSION

__all__ = ["BoundNodes", "Nodes", "ended", "run_seconds", "running"]


SERVERS = f"/apis/{GROUP}/{VERSION}/gpuservers"
GPUS_ON_NODE = 8
"""As in an HGX or DGX machine."""
_MAIN = {"name": "main", "image": "bench", "imageID": "", "restartCount": 0}


def run_seconds(pod: Json) -> float:
    """Return how long a Pod is to run."""
    return float(pod["metadata"]["annotations"][RUN_SECONDS])


def running(since: datetime) -> Json:
    """Return the status of a Pod whose program runs."""
    state = {"running": {"startedAt": _second(since)}}
    main = {**_MAIN, "ready": True, "started": True, "state": state}
    return {"phase": "Running", "startTime": _second(since), "containerStatuses": [main]}


def ended(since: datetime, until: datetime) -> Json:
    """Return the status of a Pod whose program has ended well."""
    times = {"startedAt": _second(since), "finishedAt": _second(until)}
    state = {"terminated": {"exitCode": 0, "reason": "Completed", **times}}
    main = {**_MAIN, "ready": False, "started": False, "state": state}
    return {"phase": "Succeeded", "containerStatuses": [main]}


def _second(moment: datetime) -> str:
    """Write a time as kubelet does: to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def path_of(meta: Json) -> str:
    """Return the path of a Pod."""
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


class Nodes:
    """All nodes, which start each Pod of the operator's without a gate: nothing binds them.

    Parameters
    ----------
    gpus
        How many GPUs there are.
    group
        Runs what is begun for each Pod.
    on_job_pod
        Told the job's namespace and Pod name when a Pod of a job is started.

    Attributes
    ----------
    memory
        Of each GPU.
    room
        What each node offers to Pods: by default enough for any, so that kube-scheduler binds each
        at its first try.
    gpus_of
        How many GPUs each node has, by its name.
    """

    memory = GPU_MEMORY
    room: Json = {"cpu": "10000", "memory": "100Ti", "pods": "100000"}  # noqa: RUF012

    def __init__(
        self,
        client: Client,
        gpus: int,
        group: asyncio.TaskGroup,
        on_job_pod: Callable[[str, str], None],
    ) -> None:
        first = range(0, gpus, GPUS_ON_NODE)
        self.gpus_of = {f"node-{n // GPUS_ON_NODE}": min(GPUS_ON_NODE, gpus - n) for n in first}
        self._client = client
        self._group = group
        self._on_job_pod = on_job_pod
        self._served = 0
        self._begun: set[str] = set()

    async def create(self) -> None:
        """Make the Node objects."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"conditions": [ready], "capacity": self.room, "allocatable": self.room}
        for name in self.gpus_of:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            await self._client.post("/api/v1/nodes", body)
            await self._client.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def see(self, kind: str, pod: Json) -> None:
        """Take a Pod as it is now; what is to be started and was not is begun."""
        meta = pod["metadata"]
        component = meta.get("labels", {}).get(LABEL_COMPONENT)
        if kind == "DELETED" or meta["uid"] in self._begun:
            return
        if component == COMPONENT_SERVER:
            self._begun.add(meta["uid"])
            self._group.create_task(self._serve(meta, self._served))
            self._served += 1
        elif self._starts(pod):
            self._begun.add(meta["uid"])
            self._on_job_pod(meta["namespace"], meta["name"])
            self._group.create_task(self._start(pod, time.monotonic()))

    def _starts(self, pod: Json) -> bool:
        gated = pod["spec"].get("schedulingGates")
        return not gated and LABEL_COMPONENT in pod["metadata"].get("labels", {})

    async def _serve(self, meta: Json, number: int) -> None:
        """Bind a server Pod to a node, start it, and report its GPU."""
        node, path = f"node-{number // GPUS_ON_NODE}", path_of(meta)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.post(f"{path}/binding", binding)
        now = datetime.now(UTC)
        await self._client.patch(f"{path}/status", {"status": running(now)})
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "",
            "lastTransitionTime": _second(now),
        }
        report = {
            "node": node,
            "uuid": f"GPU-{number:08x}-0000-4000-8000-000000000000",
            "product": "SIMULATED",
            "memory": self.memory,
            "smCount": 100,
            "mps": {"state": "Ready", "clients": 0},
            "conditions": [ready],
        }
        server = meta["labels"][LABEL_SERVER]
        await self._client.patch(f"{SERVERS}/{server}/status", {"status": report})

    async def _start(self, pod: Json, seen: float) -> None:
        """Run a Pod from when it was seen until its time is over."""
        path, since = f"{path_of(pod['metadata'])}/status", datetime.now(UTC)
        await self._client.patch(path, {"status": running(since)})
        await asyncio.sleep(max(0.0, seen + run_seconds(pod) - time.monotonic()))
        await self._client.patch(path, {"status": ended(since, datetime.now(UTC))})


class BoundNodes(Nodes):
    """Start each Pod when kube-scheduler has bound it, and read what its node would read.

    For a Pod with claims that is the claim once by kubelet (`PrepareResources` in
    pkg/kubelet/cm/dra/manager.go of k8s.io/kubernetes), and claim and Pod by Partita's agent.
    """

    @override
    def _starts(self, pod: Json) -> bool:
        return bool(pod["spec"].get("nodeName"))

    @override
    async def _start(self, pod: Json, seen: float) -> None:
        meta = pod["metadata"]
        for claim in _claims(pod):
            path = f"/apis/resource.k8s.io/v1/namespaces/{meta['namespace']}/resourceclaims/{claim}"
            for _ in ("kubelet", "agent"):
                await self._client.get(path)
            await self._client.get(path_of(meta))
        await super()._start(pod, seen)


def _claims(pod: Json) -> list[str]:
    """Return the names of a bound Pod's claims."""
    made = pod.get("status", {}).get("resourceClaimStatuses") or ()
    named = pod["spec"].get("resourceClaims") or ()
    names = [entry.get("resourceClaimName") for entry in (*made, *named)]
    return [name for name in names if name]
