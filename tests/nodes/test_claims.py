"""Pods with ResourceClaims on simulated nodes; the tests take the part of Partita's operator."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nodes.simulated_cluster import SERVERS, SimulatedCluster
from partita.constants import CLAIM_FINALIZER
from partita.models import Allocation, GPUServer
from partita.pods.claim_allocation import claim_allocation, slice_parameters
from partita_testcluster.nodes.gpu import GIB
from support.claims import claim_request

Body = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1"
FEW_CPUS = {"cpu": "1", "memory": "1Ti", "ephemeral-storage": "1Ti"}


@dataclass(frozen=True)
class Workload:
    """A Pod and its claim."""

    cluster: SimulatedCluster
    pod: Body
    claim: Body

    @property
    def name(self) -> str:
        name: str = self.pod["metadata"]["name"]
        return name

    @property
    def uid(self) -> str:
        """UID of the claim."""
        uid: str = self.claim["metadata"]["uid"]
        return uid

    @property
    def claim_path(self) -> str:
        name = self.claim["metadata"]["name"]
        return f"{CLAIMS}/namespaces/{self.cluster.namespace}/resourceclaims/{name}"

    @property
    def pod_path(self) -> str:
        return f"{self.cluster.pods}/{self.name}"

    @property
    def entry(self) -> Allocation:
        """The claim's entry in the ledger."""
        return Allocation(
            namespace=self.cluster.namespace,
            name=self.claim["metadata"]["name"],
            pod=self.name,
            pod_uid=self.pod["metadata"]["uid"],
            memory=4 * GIB,
            since=datetime(2026, 1, 1, tzinfo=UTC),
        )

    async def enter(self, server: Body) -> None:
        """Write the claim to the ledger."""
        patch = {"status": {"allocations": {self.uid: self.entry.dump()}}}
        path = f"{SERVERS}/{server['metadata']['name']}/status"
        (await self.cluster.api.patch(path, patch)).ok()

    async def allocate(self, server: Body) -> None:
        """Write the allocation of the claim."""
        gpu, entry = GPUServer.parse(server), self.entry
        slices = [slice_parameters(entry, gpu)]
        allocation = claim_allocation(self.uid, "gpu", slices, gpu.status.node, entry.since)
        patch = {"metadata": {"finalizers": [CLAIM_FINALIZER]}}
        (await self.cluster.api.patch(self.claim_path, patch)).ok()
        status = {"status": {"allocation": allocation}}
        (await self.cluster.api.patch(f"{self.claim_path}/status", status)).ok()

    async def give(self, server: Body) -> None:
        """Allocate a share of a GPU, as the operator does."""
        await self.enter(server)
        await self.allocate(server)

    async def refused(self) -> str:
        """Wait until the scheduler has refused the Pod; return its message."""

        def condition(pod: Body) -> Body:
            conditions = pod["status"].get("conditions", [])
            found = (c for c in conditions if c["type"] == "PodScheduled")
            return next((c for c in found if c["status"] == "False"), {})

        pod = await self.cluster.until(self.pod_path, condition)
        return str(condition(pod)["message"])


async def submit(
    cluster: SimulatedCluster,
    name: str,
    *,
    resources: Body | None = None,
    restart: str = "Never",
    **sim: str,
) -> Workload:
    """Create a claim, and a Pod that names it."""
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"{name}-gpu"},
        "spec": {"devices": {"requests": [claim_request("gpus.gpu.partita.dev")]}},
    }
    path = f"{CLAIMS}/namespaces/{cluster.namespace}/resourceclaims"
    claim = (await cluster.api.post(path, body)).ok().body
    pod = await cluster.pod(
        name,
        resources or {},
        annotations={f"sim.partita.dev/{k.replace('_', '-')}": v for k, v in sim.items()},
        resourceClaims=[{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
        restartPolicy=restart,
    )
    return Workload(cluster, pod, claim)


class TestScheduler:
    async def test_a_pod_that_would_fit_on_another_node_loses_its_allocation(
        self, cluster, nodes, node_spec
    ) -> None:
        small = node_spec("-small", allocatable=FEW_CPUS)
        large = node_spec("-large")
        async with nodes.running(small, large):
            server = await cluster.ready(await cluster.server(nodeName=small.name))
            work = await submit(cluster, "train", resources={"cpu": 2})
            await work.refused()
            await work.give(server)
            await cluster.until(work.claim_path, lambda c: not c["status"].get("allocation"))
            assert "1 Insufficient cpu" in await work.refused()


class TestKubelet:
    async def test_a_pod_starts_only_if_the_ledger_contains_its_claim(
        self, cluster, nodes, node_spec
    ) -> None:
        async with nodes.running(node_spec()):
            server = await cluster.ready(await cluster.server())
            work = await submit(cluster, "train", duration="1s")
            await work.allocate(server)
            events = f"/api/v1/namespaces/{cluster.namespace}/events"

            def says(listed: Body) -> list[str]:
                found = [e for e in listed["items"] if e["involvedObject"]["name"] == "train"]
                return [e["message"] for e in found]

            (message,) = says(await cluster.until(events, says))
            assert "Failed to prepare dynamic resources: " in message
            assert f"the ledger of GPUServer {server['metadata']['name']} does not contain it" in (
                message
            )
            waiting = (await cluster.api.get(work.pod_path)).ok().body
            (status,) = waiting["status"]["containerStatuses"]
            assert status["state"] == {"waiting": {"reason": "ContainerCreating"}}
            await work.enter(server)
            assert (await cluster.ended("train"))["status"]["phase"] == "Succeeded"

    async def test_a_deleted_pod_is_gone_when_an_agent_can_unprepare_its_claim(
        self, cluster, nodes, node_spec
    ) -> None:
        async with nodes.running(node_spec()):
            name = await cluster.server()
            server = await cluster.ready(name)
            work = await submit(cluster, "serve", restart="Always")
            await work.give(server)
            await cluster.phase("serve", "Running")
            await cluster.api.delete(f"{cluster.pods}/{name}")
            await cluster.api.gone(f"{cluster.pods}/{name}")
            await cluster.api.delete(work.pod_path)
            stuck = (await cluster.api.get(work.pod_path)).ok().body
            assert "deletionTimestamp" in stuck["metadata"]
            await cluster.server_pod(name)
            await cluster.api.gone(work.pod_path)
