"""Simulated nodes: agents that report GPUs, and a kubelet that lets each Pod run its time."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bench.scale.client import Client
from bench.scale.shape import GPU_MEMORY, RUN_SECONDS
from partita.constants import COMPONENT_SERVER, GROUP, LABEL_COMPONENT, LABEL_SERVER, VERSION

__all__ = ["PODS", "Nodes", "ended", "run_seconds", "running"]

Json = dict[str, Any]

PODS = f"/api/v1/pods?labelSelector={LABEL_COMPONENT}"
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


class Nodes:
    """All nodes of the benchmark, fed by one watch of the operator's Pods.

    Parameters
    ----------
    gpus
        How many GPUs there are.
    group
        Runs what is begun for each Pod.
    on_job_pod
        Told the job's namespace and Pod name when a Pod of a job is seen first.

    Attributes
    ----------
    memory
        Of each GPU.
    """

    memory = GPU_MEMORY

    def __init__(
        self,
        client: Client,
        gpus: int,
        group: asyncio.TaskGroup,
        on_job_pod: Callable[[str, str], None],
    ) -> None:
        self._client = client
        self._nodes = [f"node-{n}" for n in range(-(-gpus // GPUS_ON_NODE))]
        self._group = group
        self._on_job_pod = on_job_pod
        self._served = 0

    async def create(self) -> None:
        """Make the Node objects."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        for name in self._nodes:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            await self._client.post("/api/v1/nodes", body)
            await self._client.patch(
                f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}}
            )

    def see(self, kind: str, pod: Json) -> None:
        """Take a Pod of the operator's; what is new is begun."""
        if kind != "ADDED":
            return
        meta = pod["metadata"]
        if meta["labels"][LABEL_COMPONENT] == COMPONENT_SERVER:
            self._group.create_task(self._serve(meta, self._served))
            self._served += 1
            return
        self._on_job_pod(meta["namespace"], meta["name"])
        self._group.create_task(self._run(meta, run_seconds(pod), time.monotonic()))

    async def _serve(self, meta: Json, number: int) -> None:
        """Bind a server Pod to a node, start it, and report its GPU."""
        node = self._nodes[number // GPUS_ON_NODE]
        path = _path(meta)
        await self._client.post(
            f"{path}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )
        now = datetime.now(UTC)
        await self._client.patch(f"{path}/status", {"status": running(now)})
        name = meta["labels"][LABEL_SERVER]
        uuid = f"GPU-{number:08x}-0000-4000-8000-000000000000"
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "lastTransitionTime": _second(now),
        }
        report = {
            "node": node,
            "uuid": uuid,
            "product": "SIMULATED",
            "memory": self.memory,
            "smCount": 100,
            "mps": {"state": "Ready", "clients": 0},
            "conditions": [ready],
        }
        await self._client.patch(f"{SERVERS}/{name}/status", {"status": report})

    async def _run(self, meta: Json, seconds: float, seen: float) -> None:
        path, since = f"{_path(meta)}/status", datetime.now(UTC)
        await self._client.patch(path, {"status": running(since)})
        await asyncio.sleep(max(0.0, seen + seconds - time.monotonic()))
        await self._client.patch(path, {"status": ended(since, datetime.now(UTC))})


def _path(meta: Json) -> str:
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
