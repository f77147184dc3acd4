"""What simulated nodes work with: GPUServers, their Pods, jobs' Pods; made and awaited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from partita.models import Allocation, GPUServer
from partita.models.quantities import parse_memory
from partita.pods.claim_allocation import claim_allocation, slice_parameters
from partita.pods.own_claims import REQUEST, build_own_claim, own_claim_name, use_claim
from support.api import Api, condition
from support.builders import owner

__all__ = ["SERVERS", "SimulatedCluster", "terminated"]

SERVERS = "/apis/partita.dev/v1alpha1/gpuservers"
Body = dict[str, Any]


def terminated(pod: Body) -> Body:
    """How a Pod's first container ended."""
    return pod["status"]["containerStatuses"][0]["state"]["terminated"]


class SimulatedCluster:
    """One test's objects in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self._servers: list[str] = []
        self._pods_of_jobs: dict[str, str] = {}
        self._claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        self._claims_of_jobs: dict[str, str] = {}
        self._entries: dict[str, Allocation] = {}

    async def prepare(self) -> None:
        """Let Pods be created: where service accounts are checked, the default one exists."""
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await self.api.post(f"/api/v1/namespaces/{self.namespace}/serviceaccounts", body)

    async def clean(self) -> None:
        for pod in (await self.api.get(self.pods)).ok().body["items"]:
            path = f"{self.pods}/{pod['metadata']['name']}"
            await self.api.delete(path, {"gracePeriodSeconds": 0})
        for server in self._servers:
            await self.api.delete(f"{SERVERS}/{server}")

    async def server(self, mode: str = "MPS", name: str = "", **spec: Any) -> str:
        """Create a GPUServer and its Pod; returns their name."""
        name = name or f"gpus-{uuid4().hex[:8]}"
        body = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "GPUServer",
            "metadata": {"name": name},
            "spec": {"partition": "gpus", "mode": mode, "maxJobs": 4},
        }
        (await self.api.post(SERVERS, body)).ok()
        self._servers.append(name)
        await self.server_pod(name, mode, **spec)
        return name

    async def server_pod(self, name: str, mode: str = "MPS", **spec: Any) -> None:
        """Create the Pod of a GPUServer."""
        env = {"PARTITA_MODE": mode}
        server = (await self.api.get(f"{SERVERS}/{name}")).ok().body
        owners = [owner("GPUServer", name, server["metadata"]["uid"])]
        await self.pod(name, {"nvidia.com/gpu": 1}, env=env, owners=owners, **spec)

    async def job(self, name: str, server: Body, **more: str) -> Body:
        """Submit a job, and allocate it as the operator does; return its Pod."""
        pod = await self.submit(name, **more)
        await self.enter(name, server)
        await self.allocate(name, server)
        return pod

    async def submit(
        self,
        name: str,
        *,
        limit: str = "",
        application: str = "",
        cpu: str = "0",
        restart: str = "Never",
        **sim: str,
    ) -> Body:
        """Create a job's claim and Pod; `sim` are the Pod's annotations."""
        annotations = {f"sim.partita.dev/{k.replace('_', '-')}": v for k, v in sim.items()}
        if application:
            annotations["partita.dev/application"] = application
        annotations |= {"partita.dev/job-uid": f"job-{name}", "partita.dev/gpu-memory": "4096Mi"}
        pod_name = self._pods_of_jobs[name] = f"{name}-1"
        claim, spec = own_claim_name(pod_name), Body(restartPolicy=restart)
        container = {"name": "main", "image": "example.org/image:1"}
        spec["containers"] = [{**container, "resources": {"limits": {"cpu": cpu}}}]
        use_claim(spec, claim)
        pod = await self.pod(pod_name, {}, annotations=annotations, **spec)
        entry = self._entries[name] = Allocation(
            namespace=self.namespace,
            name=claim,
            job=name,
            job_uid=f"job-{name}",
            pod=pod_name,
            pod_uid=pod["metadata"]["uid"],
            application=application,
            memory=parse_memory(limit.removeprefix("0=").replace("M", "Mi") or "4Gi"),
            since=datetime.now(UTC),
        )
        body = build_own_claim(
            claim, self.namespace, "gpus", memory=entry.memory, labels={}, owner={}
        )
        del body["metadata"]["ownerReferences"]
        made = (await self.api.post(self._claims, body)).ok().body
        self._claims_of_jobs[name] = made["metadata"]["uid"]
        return pod

    async def enter(self, job: str, server: Body) -> None:
        """Write a job to the ledger of a GPU."""
        patch = {"status": {"allocations": {self._claims_of_jobs[job]: self._entries[job].dump()}}}
        (await self.api.patch(f"{SERVERS}/{server['metadata']['name']}/status", patch)).ok()

    async def allocate(self, job: str, server: Body) -> None:
        """Write the allocation of a job's claim."""
        gpu, entry, uid = GPUServer.parse(server), self._entries[job], self._claims_of_jobs[job]
        slices = [slice_parameters(entry, gpu)]
        allocation = claim_allocation(uid, REQUEST, slices, gpu.status.node, entry.since)
        patch = {"status": {"allocation": allocation}}
        (await self.api.patch(f"{self.claim_path(job)}/status", patch)).ok()

    def claim_path(self, job: str) -> str:
        """Path of a job's claim."""
        return f"{self._claims}/{self._entries[job].name}"

    async def pod(
        self,
        name: str,
        resources: dict[str, int],
        *,
        env: dict[str, str] | None = None,
        owners: list[Body] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Body:
        """Create a Pod."""
        container = {
            "name": "main",
            "image": "example.org/image:1",
            "env": [{"name": k, "value": v} for k, v in (env or {}).items()],
            "resources": {"limits": {k: str(v) for k, v in resources.items()}},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": annotations or {},
                "ownerReferences": owners or [],
            },
            "spec": {"restartPolicy": "Never", "containers": [container]} | spec,
        }
        return (await self.api.post(self.pods, body)).ok().body

    def path(self, pod: str) -> str:
        """Path of a Pod, which is named as it is or by its job."""
        return f"{self.pods}/{self._pods_of_jobs.get(pod, pod)}"

    async def release(self, job: str, *servers: str) -> None:
        """Remove a job from the ledgers, as the operator does after its end."""
        patch = {"status": {"allocations": {self._claims_of_jobs[job]: None}}}
        for server in servers:
            (await self.api.patch(f"{SERVERS}/{server}/status", patch)).ok()

    async def ready(self, server: str) -> Body:
        """Return the GPUServer when jobs may be placed on it."""
        return await self.api.until(
            f"{SERVERS}/{server}", lambda s: condition(s, "Ready")[0] == "True"
        )

    async def phase(self, pod: str, *phases: str) -> Body:
        """Return the Pod when it is in one of these phases."""
        return await self.api.until(
            self.path(pod), lambda p: p.get("status", {}).get("phase") in phases
        )

    async def ended(self, pod: str) -> Body:
        """Return the Pod when it has ended."""
        return await self.phase(pod, "Succeeded", "Failed")
