"""A node for the agent: fake GPU, kubelet, MPS wrapper, and an API server that the test plays
the operator to.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from agent.kubelet import Kubelet
from gpu.fake import FakeGPUs, uuid_of
from partita.agent.main import Agent
from partita.agent.mps.daemon import MPSDaemon
from partita.agent.paths import Paths
from partita.agent.settings import AgentSettings
from partita.agent.times import AgentTimes
from partita.kube.client import Kube
from partita.kube.connect import connect
from partita.models import SharingMode
from support.api import Api, condition
from support.clusters import ApiServer
from support.polling import TIMEOUT

__all__ = ["QUICK", "Body", "Node", "ended", "message", "serve"]

GROUP = "/apis/partita.dev/v1alpha1"

QUICK = AgentTimes(
    report_every=0.05,
    decisive_every=0.05,
    numbers_every=(0.1, 0.2),
    setup_retry=0.1,
    locked_within=0.3,
    check_every=0.5,
    sample_retry=0.1,
    batch_every=0.1,
    slow_every=0.2,
    event_wait=0.05,
    quiet_after_unknown=3.0,
    mps_poll=0.05,
    mps_ends_within=TIMEOUT,
    terminate_answers_within=TIMEOUT,
    canary_within=TIMEOUT,
    mps_first_pause=0.05,
    fault_restart=1.0,
    fault_shown_for=1.0,
    releases_every=0.1,
    unknown_after=1.0,
    limits_every=0.05,
    sockets_every=0.05,
    prepare_retry=0.05,
    files_every=0.1,
    file_retry=0.1,
    peaks_within=TIMEOUT,
)
"""What waits for seconds waits for less."""

Body = dict[str, Any]


class Node:
    """One GPU's node, and the cluster as far as its agent sees it."""

    def __init__(
        self, api: Api, server: ApiServer, namespace: str, gpus: FakeGPUs, gpu: int = 0
    ) -> None:
        self.api = api
        self.gpus = gpus
        self.gpu = gpu
        self.uuid = uuid_of(gpu)
        self.namespace = namespace
        self.name = f"gpus-{uuid4().hex[:8]}"
        self.kubelet = Kubelet(gpus.folder / f"kubelet-{gpu}")
        self.cdi = gpus.folder / "cdi"
        self.proc = gpus.folder / "proc"
        self.paths = Paths(self.name, gpus.folder / "run")
        self.agent: Agent | None = None
        self.times = QUICK
        """Of an agent and an MPS container that start from now on."""
        self._server = server
        self._stop = asyncio.Event()
        self._stop_mps = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._mode = "MPS"
        self._pod_uid = ""

    @property
    def kubeconfig(self) -> Path:
        return self._server.kubeconfig_of("partita-agent")

    @property
    def path(self) -> str:
        return f"{GROUP}/gpuservers/{self.name}"

    @property
    def pipes(self) -> Path:
        return self.paths.pipes(self.uuid)

    async def create(self, mode: str = "MPS", **spec: Any) -> None:
        """Make the GPUServer and its Pod, as the operator does, and start kubelet."""
        await self.create_server(mode, **spec)
        await self.kubelet.start()
        self.kubelet.gives(self.name, self.uuid, namespace=self.namespace)

    async def create_server(self, mode: str = "MPS", **spec: Any) -> None:
        """Make the GPUServer and its Pod, as the operator does."""
        self._mode = mode
        body = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "GPUServer",
            "metadata": {"name": self.name},
            "spec": {"partition": "gpus", "mode": mode, "maxJobs": 4, **spec},
        }
        (await self.api.post(f"{GROUP}/gpuservers", body)).ok()
        self._pod_uid = (await self.make_pod(self.name))["metadata"]["uid"]

    async def make_pod(
        self, name: str, container: Body | None = None, spec: Body | None = None
    ) -> Body:
        """Make a Pod; `container` and `spec` have further fields of its container and its spec."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "containers": [
                    {"name": "main", "image": "example.org/image:1", **(container or {})}
                ],
                **(spec or {}),
            },
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return dict((await self.api.post(path, body)).ok().body)

    async def report_container(self, pod: Body, container: Body, **status: Any) -> None:
        """Play kubelet: report a Pod's container, and further fields of its status."""
        base = {
            "name": pod["spec"]["containers"][0]["name"],
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        body = {"status": {"containerStatuses": [base | container], **status}}
        (await self.api.patch(path, body)).ok()

    def settings(self, **more: Any) -> AgentSettings:
        facts: Body = {
            "server": self.name,
            "mode": SharingMode(self._mode),
            "node": "node-a",
            "namespace": self.namespace,
            "pod_uid": self._pod_uid,
            "paths": self.paths,
            "kubelet": self.kubelet.folder,
            "cdi": self.cdi,
            "proc": self.proc,
            "cgroups": self.gpus.cgroups.root,
        }
        return AgentSettings(**{**facts, **more})

    def start_mps(self) -> None:
        """Start the Pod's other container."""
        self._stop_mps = asyncio.Event()
        self._tasks.append(
            asyncio.create_task(MPSDaemon(self.paths, self._stop_mps, self.times).run(), name="mps")
        )

    def start_agent(self, **more: Any) -> asyncio.Task[None]:
        """Start the agent."""
        self._stop, self.agent = asyncio.Event(), None
        stop, settings, times = self._stop, self.settings(**more), self.times

        async def run() -> None:
            async with connect(str(self.kubeconfig)) as api:
                self.agent = Agent(settings, Kube(api), times)
                await self.agent.run(stop)

        task = asyncio.create_task(run(), name="agent")
        self._tasks.append(task)
        return task

    async def stop_agent(self) -> None:
        """SIGTERM."""
        self._stop.set()
        await self._ended("agent")

    async def kill_agent(self) -> None:
        """SIGKILL: nothing is said; the locks go with the process."""
        (task,) = [t for t in self._tasks if t.get_name() == "agent"]
        self._tasks.remove(task)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def fails(self, name: str = "agent") -> BaseException | None:
        """Wait until a container ends by itself; return its error."""
        (task,) = [t for t in self._tasks if t.get_name() == name]
        self._tasks.remove(task)
        async with asyncio.timeout(TIMEOUT):
            await asyncio.wait({task})
        return task.exception()

    async def stop_mps(self) -> None:
        self._stop_mps.set()
        await self._ended("mps")

    async def _ended(self, name: str) -> None:
        for task in [t for t in self._tasks if t.get_name() == name]:
            self._tasks.remove(task)
            async with asyncio.timeout(TIMEOUT):
                await task

    async def close(self) -> None:
        # Each is stopped even if one before it hangs: a gRPC server that is left would hang the
        # tests that follow.
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.api.delete, self.path)
            stack.push_async_callback(self.kubelet.stop)
            stack.push_async_callback(self.stop_mps)
            await self.stop_agent()

    # What the test sees

    async def body(self) -> Body:
        return dict((await self.api.get(self.path)).ok().body)

    async def until(self, holds: Callable[[Body], Any]) -> Body:
        """Wait for the GPUServer to be so."""
        return await self.api.until(self.path, holds)

    async def is_ready(self) -> Body:
        return await self.until(lambda b: condition(b, "Ready")[0] == "True")

    async def says(self, reason: str, kind: str = "Ready", status: str = "False") -> Body:
        return await self.until(lambda b: condition(b, kind) == (status, reason))


def wait(program: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a program's end; return its code and what it said."""
    _, said = program.communicate(timeout=TIMEOUT)
    return program.returncode, said


async def ended(program: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a program's end without holding up the agent."""
    return await asyncio.to_thread(wait, program)


def message(body: Body) -> str:
    """What the condition Ready says."""
    return next(c["message"] for c in body["status"]["conditions"] if c["type"] == "Ready")


async def serve(node: Node, mode: str = "MPS", **spec: Any) -> None:
    await node.create(mode, **spec)
    node.start_agent()
    if mode == "MPS":
        node.start_mps()
    await node.is_ready()
