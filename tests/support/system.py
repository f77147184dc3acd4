"""The whole system around an operator under test: nodes, partitions, jobs, and the operator.

One test has one `System`. Its names are its own, what it made goes at its end, and its whole
history is judged then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from partita.kube.operator_lease import OPERATOR_LEASE
from partita.process.main import OnStatus, run_operator
from partita.process.settings import OperatorSettings
from partita.store.work_queue import utc_now
from partita.times import Times
from partita_testcluster.nodes import NodeSpec
from support.api import Answer, Api, condition
from support.clusters import ApiServer
from support.crds import OPERATOR_NAMESPACE, SERVER_NAMESPACE, prepare_namespace
from support.history import GROUP_PATH, History
from support.job import Job, container
from support.polling import TIMEOUT, until
from support.simulated_nodes import simulated_nodes
from support.versions import Body

__all__ = ["GIB", "LEASE", "SPEED", "System"]


GIB = 1 << 30
SPEED = 100.0
"""Virtual seconds a second: a job of the default 10 s runs for 0.1 s."""
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/{OPERATOR_LEASE}"
WATCHED = ("nodes", "gpupartitions", "gpuservers", "sharedgpujobs", "resourceclaims", "pods")
"""What both the operator and the history watch."""
QUICK = Times(
    first_back_off=0.1,
    queued_within=0.05,
    reason_within=0.05,
    running_within=0.05,
    partition_status=0.05,
    estimate_starts=0.5,
)
"""The operator's times, but shorter where a test would only wait."""


class System:
    """Nodes, partitions, jobs and operators of one test.

    Parameters
    ----------
    server
        The API server: nodes are its administrators, operators have the rights of `manifests/`.
    namespace
        Where its jobs are.
    """

    simulates_scheduler = True
    times = QUICK

    def __init__(self, api: Api, history: History, server: ApiServer, namespace: str) -> None:
        self.api = api
        self.history = history
        self._server = server
        self.namespace = namespace
        self.stem = uuid4().hex[:6]
        self.namespaces = [namespace]
        self.logs: list[Body] = []
        """What the operator has logged, a line each."""
        self._nodes: set[str] = set()
        self._seen: dict[str, int] | None = None

    def named(self, name: str) -> str:
        """A cluster-wide name that no other test uses."""
        return f"{name}-{self.stem}"

    # Nodes.

    @contextlib.asynccontextmanager
    async def nodes(
        self,
        *gpus: int,
        memory: int = 40 * GIB,
        speed: float = SPEED,
        specs: Sequence[NodeSpec] = (),
    ) -> AsyncIterator[list[str]]:
        """Run nodes with so many GPUs each; yields their names."""
        specs = [
            *(NodeSpec(self.named(f"n{i}"), n, memory) for i, n in enumerate(gpus)),
            *(replace(spec, name=self.named(spec.name)) for spec in specs),
        ]
        names = [spec.name for spec in specs]
        self._nodes |= set(names)
        options = {"speed": speed, "scheduler": self.simulates_scheduler}
        async with simulated_nodes(self._server.kubeconfig, specs, **options):
            yield names

    # Operators.

    def set_times(self, **times: float) -> None:
        """Let operators that start from now on have other times."""
        self.times = replace(self.times, **times)

    @contextlib.asynccontextmanager
    async def operator(
        self,
        kubeconfig: Path | None = None,
        now: Callable[[], datetime] = utc_now,
        on_status: OnStatus = lambda *_: None,
        **settings: Any,
    ) -> AsyncIterator[None]:
        """Run an operator in this process; it must still run at the block's end."""
        # On a busy machine a lease of the usual length is lost.
        defaults = {
            "identity": "suite",
            "server_namespace": SERVER_NAMESPACE,
            "lease_duration": TIMEOUT,
        }
        options = OperatorSettings(**{**defaults, **settings})
        kubeconfig = kubeconfig or self._server.kubeconfig_of("partita-operator")
        stop = asyncio.Event()
        seen = self._seen = {}

        def on_seen(body: Body) -> None:
            uid, version = body["metadata"]["uid"], int(body["metadata"]["resourceVersion"])
            seen[uid] = max(version, seen.get(uid, 0))

        work = asyncio.create_task(
            run_operator(
                options,
                str(kubeconfig),
                on_status,
                now,
                times=self.times,
                stop=stop,
                on_seen=on_seen,
            )
        )
        try:
            yield
            assert not work.done(), work
        finally:
            stop.set()
            async with asyncio.timeout(TIMEOUT):
                await work

    async def seen(self, *answers: Answer) -> None:
        """Wait until the operator has seen these writes, and all that the test has seen.

        It watches each kind by itself: an object that is created after a change of another kind
        can reach it first.
        """
        seen = self._seen
        assert seen is not None, "no operator was started in this process"
        wanted = {
            uid: version.number
            for plural in WATCHED
            for uid, version in self.history.latest(plural).items()
            if version.kind != "DELETED" or uid in seen  # it may have started after the end
        }
        wanted |= {a.body["metadata"]["uid"]: int(a.version) for a in answers}

        def unseen() -> Body:
            return {uid: wanted[uid] for uid in wanted if seen.get(uid, 0) < wanted[uid]}

        await until(lambda: not unseen(), what=unseen)

    @contextlib.asynccontextmanager
    async def running(self, *gpus: int, **nodes: Any) -> AsyncIterator[None]:
        """Run nodes and an operator; at the end all jobs go, and nothing of them may stay."""
        async with self.nodes(*gpus, **nodes), self.operator():
            yield
            await self.settle()

    # Objects.

    async def partition(self, gpus: int = 1, *, name: str = "gpus", **spec: Any) -> str:
        """Create a partition; returns its name."""
        name = self.named(name)
        (await self.api.post(*_partition(name, {"gpus": gpus, **spec}))).ok()
        return name

    async def ready_partition(self, gpus: int = 1, **spec: Any) -> str:
        """Create a partition, and wait until all its GPUs may take jobs."""
        name = await self.partition(gpus, **spec)
        await self.ready(name, gpus)
        return name

    async def change_partition(self, name: str, **spec: Any) -> None:
        """Change fields of a partition's spec, and wait until the operator has seen that."""
        path = f"{GROUP_PATH}/gpupartitions/{name}"
        await self.seen((await self.api.patch(path, {"spec": spec})).ok())

    async def partition_says(self, name: str, holds: Callable[[Body], Any]) -> Body:
        """Wait for a partition's status to be so."""

        def found() -> Body:
            return self.partition_status(name)

        await self.history.until(lambda: found() and holds(found()), what=found)
        partition = self.history.get("gpupartitions", name) or {}
        await self.history.reach(partition, "gpuservers", "sharedgpujobs", "pods")
        return dict(partition["status"])

    async def ready(self, name: str, gpus: int = 1) -> list[Body]:
        """Wait until so many GPUs of a partition may take jobs, and return all it has."""

        def servers() -> list[Body]:
            return self.servers(name)

        await self.history.until(
            lambda: (
                sum(condition(s, "Ready")[0] == "True" for s in servers()) == gpus
                and len(servers()) == gpus
            ),
            what=servers,
        )
        for server in servers():
            await self.history.reach(server, "pods")
        return servers()

    def servers(self, partition: str) -> list[Body]:
        """The GPUServers of a partition, by name."""
        found = [s for s in self.history.all("gpuservers") if s["spec"]["partition"] == partition]
        return sorted(found, key=lambda s: s["metadata"]["name"])

    def partition_status(self, name: str) -> Body:
        status: Body = (self.history.get("gpupartitions", name) or {}).get("status", {})
        return status

    def started(self) -> list[str]:
        """The jobs in the order in which their Pods were made."""
        return [pod["metadata"]["labels"]["partita.dev/job"] for pod in self.history.job_pods()]

    async def scale(self, partition: str, gpus: int) -> None:
        """Do what `kubectl scale` does."""
        path = f"{GROUP_PATH}/gpupartitions/{partition}/scale"
        (await self.api.patch(path, {"spec": {"replicas": gpus}})).ok()

    async def job(self, name: str, partition: str, **fields: Any) -> Job:
        """Submit a job that must be taken, as by `submit`."""
        answer = await self.submit(name, partition, **fields)
        meta = answer.ok().body["metadata"]
        return Job(self, meta["namespace"], meta["name"], meta["uid"])

    async def submit(
        self,
        name: str,
        partition: str,
        *,
        sim: dict[str, str] | None = None,
        namespace: str = "",
        metadata: Body | None = None,
        containers: list[Body] | None = None,
        pod: Body | None = None,
        template: Body | None = None,
        by: Api | None = None,
        **spec: Any,
    ) -> Answer:
        """Submit a job that may be refused.

        Parameters
        ----------
        sim
            What its program does.
        pod
            More of its template's spec.
        by
            Who submits it, if not the administrator.
        """
        namespace = namespace or self.namespace
        annotations = {f"sim.partita.dev/{k.replace('_', '-')}": v for k, v in (sim or {}).items()}
        template = template or {
            "metadata": {"annotations": annotations},
            "spec": {
                "containers": [container()] if containers is None else containers,
                **(pod or {}),
            },
        }
        body = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "SharedGPUJob",
            "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
            "spec": {"partition": partition, "template": template, **spec},
        }
        path = f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs"
        return await (by or self.api).post(path, body)

    def found(self, name: str) -> Job:
        """A job that was submitted in another way."""
        return Job(self, self.namespace, name, "")

    async def another_namespace(self, **labels: str) -> str:
        """Create one more namespace for jobs."""
        meta = {"generateName": "test-", "labels": labels}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        created = (await self.api.post("/api/v1/namespaces", body)).ok()
        name: str = created.body["metadata"]["name"]
        await prepare_namespace(self.api, name)
        self.namespaces.append(name)
        return name

    # The end.

    async def settle(self) -> None:
        """Delete all jobs and wait until nothing of them is left, while the operator runs."""
        for job in self.history.all("sharedgpujobs"):
            meta = job["metadata"]
            path = f"{GROUP_PATH}/namespaces/{meta['namespace']}/sharedgpujobs/{meta['name']}"
            await self.api.delete(path)
        await self.history.until(
            lambda: not self.history.all("sharedgpujobs") and not self.history.left_over(),
            what=self.history.left_over,
        )

    async def clean(self) -> None:
        """Remove everything, without anybody's help."""
        for job in self.history.all("sharedgpujobs"):
            meta = job["metadata"]
            await self.api.delete(
                f"{GROUP_PATH}/namespaces/{meta['namespace']}/sharedgpujobs/{meta['name']}"
            )
        for partition in self.history.all("gpupartitions"):
            await self.api.delete(f"{GROUP_PATH}/gpupartitions/{partition['metadata']['name']}")
        for server in self.history.all("gpuservers"):
            path = f"{GROUP_PATH}/gpuservers/{server['metadata']['name']}"
            await self.api.patch(path, {"metadata": {"finalizers": None}})
            await self.api.delete(path)
        for pod in self.history.all("pods"):
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            await self.api.delete(path, {"gracePeriodSeconds": 0})
        for node in self._nodes:
            await self.api.delete(f"/api/v1/nodes/{node}")
        for namespace in self.namespaces[1:]:
            await self.api.delete(f"/api/v1/namespaces/{namespace}")
        await self.api.delete(LEASE)  # an operator that was killed holds it for a while


def _partition(name: str, spec: Body) -> tuple[str, Body]:
    return f"{GROUP_PATH}/gpupartitions", {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUPartition",
        "metadata": {"name": name},
        "spec": spec,
    }
