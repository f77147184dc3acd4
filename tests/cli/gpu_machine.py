"""A node for `partita doctor`: it runs the commands of Pods for real, on a fake GPU.

It stands for kube-scheduler, the kubelet and, for SharedGPUJobs, the operator and its agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from gpu.fake import FakeGPUs
from partita.constants import GPU_RESOURCE
from partita.kube.client import JOBS, NODES, PODS, SERVERS, Kind, Kube
from partita.kube.errors import NotFoundError
from partita_testcluster.nodes.container_logs import KUBELET_HOST, ContainerLog, KubeletAPI, PodLogs
from support.builders import allocation, owner

__all__ = ["NODE", "Machine"]

Json = dict[str, Any]

NODE = "gpu-1"
INTERVAL = 0.05
_INFO = (
    "architecture",
    "bootID",
    "kernelVersion",
    "kubeProxyVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)
"""Required fields of a node's description."""


class Machine:
    """A node with one GPU.

    Attributes
    ----------
    environment
        Variables of all programs.
    pull_fails
        Whether no image can be pulled.
    reports
        Whether the GPUServer reports the memory of jobs.
    created
        Names of the Pods that it has seen.
    """

    def __init__(self, kube: Kube, gpus: FakeGPUs) -> None:
        self.kube, self.gpus = kube, gpus
        self.environment: dict[str, str] = {}
        self.pull_fails = False
        self.reports = True
        self.created: list[str] = []
        self._logs: PodLogs = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @contextlib.asynccontextmanager
    async def running(self, **labels: str) -> AsyncIterator[None]:
        """Join the cluster until the end of the block."""
        logs = KubeletAPI(self._logs)
        await logs.start()
        await self._create_node(logs.port, labels)
        loop = asyncio.create_task(self._loop())
        try:
            yield
        finally:
            loop.cancel()
            await asyncio.wait([loop])
            tasks = (loop, *self._tasks.values())
            for task in tasks:
                if not task.cancelling():  # else it waits for its program to end
                    task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            await logs.stop()
        problems = [error for error in ended if isinstance(error, Exception)]
        if problems:
            raise ExceptionGroup("the node failed", problems)

    async def _create_node(self, port: int, labels: dict[str, str]) -> None:
        await self.kube.create(
            NODES,
            {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, **labels}}},
        )
        status = {
            "addresses": [{"type": "InternalIP", "address": KUBELET_HOST}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "capacity": {GPU_RESOURCE: "1"},
            "allocatable": {GPU_RESOURCE: "1"},
            "nodeInfo": {
                **dict.fromkeys(_INFO, "-"),
                "kubeletVersion": "v1.36.3",
                "containerRuntimeVersion": "containerd://2.1.0",
            },
        }
        await self.kube.patch(NODES, NODE, {"status": status}, subresource="status")

    async def _loop(self) -> None:
        while True:
            # The kind exists only where Partita is installed.
            with contextlib.suppress(NotFoundError):
                for job in (await self.kube.list(JOBS))[0]:
                    await self._start_job(job)
            pods = (await self.kube.list(PODS))[0]
            for pod in pods:
                await (self._end_pod if _deleted(pod) else self._start_pod)(pod)
            await asyncio.sleep(INTERVAL)

    async def _start_job(self, job: Json) -> None:
        """Do what the operator does: create the Pod, write the job's status."""
        meta = job["metadata"]
        name = f"{meta['name']}-1"
        if name in self.created:
            return
        self.created.append(name)
        body = {
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "ownerReferences": [owner("SharedGPUJob", meta["name"], meta["uid"])],
            },
            "spec": {**job["spec"]["template"]["spec"], "restartPolicy": "Never"},
        }
        await self.kube.create(PODS, body)
        assignment = {
            "attempt": 1,
            "pod": name,
            "memory": job["spec"]["gpuMemory"],
            "servers": ["s-0"],
            "gpus": ["GPU-0"],
        }
        status = {"phase": "Running", "assignment": assignment}
        await self._write(JOBS, job, status)
        if self.reports:
            entry = allocation(meta["name"], namespace=meta["namespace"], jobUID=meta["uid"])
            status = {
                "allocations": {f"claim-{name}": entry},
                "usage": {"jobs": {f"claim-{name}": {"peakMemory": "600Mi"}}},
            }
            await self.kube.patch(SERVERS, "s-0", {"status": status}, subresource="status")

    async def _start_pod(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._tasks:
            self._tasks[uid] = asyncio.create_task(self._run(pod))

    async def _end_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        if task := self._tasks.get(meta["uid"]):
            task.cancel()
            await asyncio.wait([task])
        await self.kube.delete(PODS, meta["name"], meta["namespace"], grace=0)

    async def _run(self, pod: Json) -> None:
        meta = pod["metadata"]
        self.created.append(meta["name"])
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        path = PODS.path(meta["name"], meta["namespace"], "binding")
        await self.kube.request("POST", path, body=binding)
        if self.pull_fails:
            waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
            names = {"name": "check", "image": "partita", "imageID": ""}
            statuses = [{**names, "ready": False, "restartCount": 0, "state": waiting}]
            await self._write(PODS, pod, {"phase": "Pending", "containerStatuses": statuses})
            return
        log = ContainerLog()
        self._logs[meta["namespace"], meta["name"]] = {"check": log}
        await self._write(PODS, pod, {"phase": "Running"})
        (container,) = pod["spec"]["containers"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *container["command"][1:],
            env=self.gpus.environment(**self.environment),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                log.write(line.decode())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # as a Pod ends, with all its processes
            code = await process.wait()
            log.close()
        await self._write(PODS, pod, {"phase": "Failed" if code else "Succeeded"})

    async def _write(self, kind: Kind, body: Json, status: Json) -> None:
        meta = body["metadata"]
        await self.kube.patch(
            kind,
            meta["name"],
            {"status": status},
            namespace=meta["namespace"],
            subresource="status",
        )


def _deleted(body: Json) -> bool:
    return bool(body["metadata"].get("deletionTimestamp"))
