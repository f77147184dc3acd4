"""Workloads whose Pods have slices by claims, and how claims, ledgers and the node agree."""

from __future__ import annotations

from typing import Any

from cluster.cluster import Cluster
from cluster.images import JOB
from cluster.jobs import servers
from cluster.pods import restricted_pod
from partita.models.device_class import device_class_of
from support.api import Answer, Api
from support.polling import until

__all__ = ["KINDS", "Workloads", "is_running", "nothing_left"]

KINDS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
}
"""The kinds that need no other controller than Kubernetes' own, and their paths in the API."""

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"

Json = dict[str, Any]


class Workloads:
    """The workloads of one restricted namespace, each Pod with a slice of one partition."""

    def __init__(self, api: Api, namespace: str, partition: str) -> None:
        self._api = api
        self._partition = partition
        self.namespace = namespace

    def path(self, kind: str, name: str = "") -> str:
        """Return the API's path of a workload, or of all of a kind."""
        return f"{KINDS[kind].format(self.namespace)}/{name}".rstrip("/")

    @property
    def claims_path(self) -> str:
        """The API's path of the claims of the namespace."""
        return CLAIMS.format(self.namespace)

    async def template(self, memory: str = "1Gi", threads: int = 100) -> str:
        """Make a claim template, unless it is there; return its name."""
        name = f"gpu-{memory}-{threads}".lower()
        requests = {"memory": memory, "threads": str(threads)}
        exactly = {
            "deviceClassName": device_class_of(self._partition),
            "capacity": {"requests": requests},
        }
        devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
        body = {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}
        answer = await self._api.post(TEMPLATES.format(self.namespace), body)
        assert answer.status == 409 or answer.ok()
        return name

    async def make(
        self,
        kind: str,
        name: str,
        *command: str,
        memory: str = "1Gi",
        threads: int = 100,
        **spec: Any,
    ) -> None:
        """Make a workload whose Pods have a slice and run a command as user 1000."""
        pod = restricted_pod(name, JOB, command)["spec"]
        pod["resourceClaims"] = [
            {"name": "gpu", "resourceClaimTemplateName": await self.template(memory, threads)}
        ]
        pod["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        pod["terminationGracePeriodSeconds"] = 1  # with 0, a deletion does not wait for kubelet
        (await self.submit(kind, name, pod, **spec)).ok()

    async def submit(self, kind: str, name: str, pod: Json, **spec: Any) -> Answer:
        """Make a workload with a Pod spec; fields of its own spec may be added."""
        labels = {"app": name}
        metadata = {"name": name, "labels": labels}
        if kind in {"Deployment", "StatefulSet"}:
            pod = {field: value for field, value in pod.items() if field != "restartPolicy"}
            spec = {"selector": {"matchLabels": labels}, **spec}
        if kind != "Pod":
            spec = {"template": {"metadata": {"labels": labels}, "spec": pod}, **spec}
        body = {"metadata": metadata, "spec": pod if kind == "Pod" else spec}
        return await self._api.post(self.path(kind), body)

    async def create(self, document: Json) -> Answer:
        """Create what a document of YAML describes."""
        return await self._api.post(self._path_of(document), document)

    async def remove(self, document: Json) -> None:
        """Delete what was created, and its Pods after it."""
        path = f"{self._path_of(document)}/{document['metadata']['name']}"
        (await self._api.delete(path, {"propagationPolicy": "Background"})).ok()

    def _path_of(self, document: Json) -> str:
        paths = {**KINDS, "ResourceClaimTemplate": TEMPLATES}
        return paths[document["kind"]].format(self.namespace)

    async def pods(self, name: str) -> list[Json]:
        """Return the Pods of a workload."""
        answer = await self._api.get(self.path("Pod"), labelSelector=f"app={name}")
        found: list[Json] = answer.ok().body["items"]
        return found

    async def running(self, name: str, count: int = 1) -> list[Json]:
        """Wait until exactly so many Pods of a workload are there and run; return them."""
        return await self._running(count, labelSelector=f"app={name}")

    async def running_pods(self, count: int) -> list[Json]:
        """Wait for so many Pods of any workloads with slices; as `running` does."""
        return await self._running(count, labelSelector="!partita.dev/job")

    async def _running(self, count: int, **selector: str) -> list[Json]:
        pods: list[Json] = []

        async def running() -> bool:
            nonlocal pods
            pods = (await self._api.get(self.path("Pod"), **selector)).ok().body["items"]
            return len(pods) == len([pod for pod in pods if is_running(pod)]) == count

        await until(running, what=lambda: [(p["metadata"]["name"], p["status"]) for p in pods])
        return pods

    async def claim_of(self, pod: Json) -> Json:
        """Return the claim of a Pod."""
        (status,) = pod["status"]["resourceClaimStatuses"]
        path = f"{self.claims_path}/{status['resourceClaimName']}"
        claim: Json = (await self._api.get(path)).ok().body
        return claim

    async def delete(self, kind: str, name: str) -> None:
        """Delete a workload and wait until its Pods are gone."""
        await self._api.delete(self.path(kind, name), {"propagationPolicy": "Foreground"})
        await self._api.gone(self.path(kind, name))
        await until(lambda: self._no_pods(name), what=f"the Pods of {name} are still there")

    async def _no_pods(self, name: str) -> bool:
        return not await self.pods(name)


def is_running(pod: Json) -> bool:
    """Say whether a Pod runs, and nobody has asked for its end."""
    states = [status["state"] for status in pod["status"].get("containerStatuses", ())]
    started = bool(states) and all("running" in state for state in states)
    return started and "deletionTimestamp" not in pod["metadata"]


async def nothing_left(cluster: Cluster, api: Api, namespace: str) -> None:
    """Wait until no claim, no allocation in a ledger and no CDI file of a slice is left."""

    async def left() -> dict[str, list[str]]:
        claims = (await api.get(CLAIMS.format(namespace))).ok().body["items"]
        ledgers = [server["status"].get("allocations", {}) for server in await servers(api)]
        entries = [entry for ledger in ledgers for entry in ledger.values()]
        return {
            "claims": [claim["metadata"]["name"] for claim in claims],
            "allocations": [one["name"] for one in entries if "job" not in one],
            "CDI files": [file.name for file in cluster.cdi.glob("partita.dev-slice-*")],
        }

    found: dict[str, list[str]] = {}

    async def none() -> bool:
        nonlocal found
        found = await left()
        return not any(found.values())

    await until(none, what=lambda: found)
