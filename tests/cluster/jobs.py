"""Partita in the cluster, its partitions and jobs, as tests see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cluster.cluster import Cluster
from cluster.images import JOB, ROOT
from cluster.pods import restricted_pod
from support.api import Api
from support.kubectl import Kubectl

__all__ = [
    "PARTITIONS",
    "SERVERS",
    "SYSTEM",
    "Carve",
    "Jobs",
    "all_ready",
    "condition",
    "give_back",
    "install",
    "kill_container",
    "make_partition",
    "server_path",
    "servers",
]

GROUP = "partita.dev/v1alpha1"
SYSTEM = "partita-system"
"""Where the operator is."""
SERVERS = "partita-servers"
"""Where the server Pods are."""
PARTITIONS = f"/apis/{GROUP}/gpupartitions"

MANIFESTS = ROOT / "tests" / "cluster" / "overlay"
DEPLOYMENTS = ("partita-operator", "partita-console")

Json = dict[str, Any]


async def install(api: Api, kubectl: Kubectl) -> None:
    """Install Partita as its users do; return when its Pods are ready."""
    (await kubectl("apply", f"--kustomize={MANIFESTS}")).ok()
    for name in DEPLOYMENTS:
        await api.until(
            f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{name}",
            lambda deployment: deployment["status"].get("readyReplicas") == 1,
        )


def server_path(name: str = "") -> str:
    """Return the API's path of a GPUServer, or of all."""
    return f"/apis/{GROUP}/gpuservers/{name}".rstrip("/")


async def servers(api: Api) -> list[Json]:
    """Return all GPUServers."""
    answer = await api.get(server_path())
    items: list[Json] = answer.ok().body["items"]
    return items


def condition(obj: Json, kind: str) -> Json:
    """Return a condition of an object, empty where it has none."""
    conditions = obj.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == kind), {})


def all_ready(count: int) -> Callable[[Json], bool]:
    """Return what holds for a list of as many GPUServers, all of them ready."""

    def holds(found: Json) -> bool:
        ready = [s for s in found["items"] if condition(s, "Ready").get("status") == "True"]
        return len(found["items"]) == len(ready) == count

    return holds


async def make_partition(api: Api, name: str, gpus: int, **spec: Any) -> None:
    """Make a partition and wait until all of its GPUs are ready, and no others are there."""
    body = {
        "apiVersion": GROUP,
        "kind": "GPUPartition",
        "metadata": {"name": name},
        "spec": {"gpus": gpus, **spec},
    }
    (await api.post(PARTITIONS, body)).ok()
    await api.until(server_path(), all_ready(gpus))


async def kill_container(cluster: Cluster, api: Api, namespace: str, name: str) -> None:
    """Kill the first process of every container of this name in one of Partita's namespaces."""
    pods = (await api.get(f"/api/v1/namespaces/{namespace}/pods")).ok().body["items"]
    found = [
        status["containerID"].removeprefix("containerd://")
        for pod in pods
        for status in pod["status"]["containerStatuses"]
        if status["name"] == name
    ]
    assert found
    for container in found:
        cluster.ctr("tasks", "kill", "--signal=SIGKILL", container)


async def give_back(api: Api, partition: str, gpus: int) -> None:
    """Delete a partition, if it is there, and wait until its GPUs are free."""
    await api.delete(f"{PARTITIONS}/{partition}")
    await api.until(server_path(), lambda found: not found["items"])
    for number in range(gpus):
        await api.gone(f"/api/v1/namespaces/{SERVERS}/pods/{partition}-{number}")


class Jobs:
    """The jobs of one restricted namespace in one partition."""

    def __init__(self, api: Api, namespace: str, partition: str) -> None:
        self._api = api
        self._partition = partition
        self.namespace = namespace

    def path(self, name: str = "") -> str:
        """Return the API's path of a job."""
        return f"/apis/{GROUP}/namespaces/{self.namespace}/sharedgpujobs/{name}".rstrip("/")

    def pod_path(self, name: str) -> str:
        """Return the API's path of a Pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    async def submit(self, name: str, *steps: str, memory: str = "1Gi", **spec: Any) -> None:
        """Submit a job whose program takes these steps, see `gpu/cuda/cuda.c`."""
        await self.submit_command(name, ["fake-cuda", *steps], memory=memory, **spec)

    async def submit_command(
        self, name: str, command: Sequence[str], *, memory: str = "1Gi", sleep: int = 0, **spec: Any
    ) -> None:
        """Submit a job of user 1000 that `restricted` admits."""
        pod = restricted_pod(name, JOB, command)["spec"]
        del pod["restartPolicy"]
        if sleep:  # before SIGTERM
            pod["terminationGracePeriodSeconds"] = sleep
            pod["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": sleep}}}
        body = {
            "apiVersion": GROUP,
            "kind": "SharedGPUJob",
            "metadata": {"name": name},
            "spec": {
                "partition": self._partition,
                "application": name,
                "template": {"spec": pod},
                "gpuMemory": memory,
                **spec,
            },
        }
        (await self._api.post(self.path(), body)).ok()

    async def until(self, name: str, condition: Callable[[Json], Any]) -> Json:
        """Return a job's status as soon as ``condition`` holds for it."""
        job = await self._api.until(self.path(name), lambda job: condition(job.get("status", {})))
        status: Json = job["status"]
        return status

    async def reaches(self, name: str, phase: str) -> Json:
        """Return a job's status once it is in a phase."""
        return await self.until(name, lambda status: status.get("phase") == phase)

    async def running(self, name: str, attempt: int = 1) -> str:
        """Wait until a job's Pod runs its container; return the container's ID."""
        pod = await self._api.until(
            self.pod_path(f"{name}-{attempt}"),
            lambda pod: (
                (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("running")
            ),
        )
        return str(pod["status"]["containerStatuses"][0]["containerID"])

    async def delete(self, *names: str) -> None:
        """Delete jobs, and wait until their Pods are gone."""
        for name in names:
            await self._api.delete(self.path(name))
        for name in names:
            await self._api.gone(self.pod_path(f"{name}-1"))


Carve = Callable[..., Awaitable[Jobs]]
"""Makes a partition of one GPU of so much memory (MiB), of what more its spec says."""
