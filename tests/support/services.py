"""Deployments whose Pods have slices of GPUs, in a whole system."""

from __future__ import annotations

from dataclasses import dataclass

from partita.constants import ALLOCATION_GATE
from support.claims import claim_request
from support.system import System
from support.versions import Body
from support.workloads import Workload, delete

__all__ = ["Service", "deploy", "pod_template"]

APPS = "/apis/apps/v1"
RESOURCES = "/apis/resource.k8s.io/v1"


@dataclass(frozen=True)
class Service:
    """A Deployment of Pods with claims from one template."""

    system: System
    name: str

    @property
    def pods(self) -> list[Body]:
        """Its Pods that are not being deleted, the oldest first."""
        found = [
            pod
            for pod in self.system.history.all("pods")
            if pod["metadata"].get("labels", {}).get("app") == self.name
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(found, key=self._created)

    def _created(self, pod: Body) -> int:
        meta = pod["metadata"]
        first = self.system.history.versions("pods", meta["name"], meta["namespace"])[0]
        return int(first["metadata"]["resourceVersion"])

    async def workloads(self, count: int = 1) -> list[Workload]:
        """Wait for so many Pods with their claims."""

        def found() -> list[Workload]:
            claims = {
                owner["uid"]: claim
                for claim in self.system.history.all("resourceclaims")
                for owner in claim["metadata"].get("ownerReferences", ())
            }
            return [
                Workload(self.system, self.system.namespace, pod, claims[pod["metadata"]["uid"]])
                for pod in self.pods
                if pod["metadata"]["uid"] in claims
            ]

        await self.system.history.until(lambda: len(found()) == count, what=lambda: self.pods)
        return found()

    async def running(self) -> Workload:
        """Wait until its only Pod runs with a slice."""
        (workload,) = await self.workloads()
        await workload.allocated()
        await workload.runs()
        return workload

    async def remove(self) -> None:
        """Delete it with all its Pods."""
        for path in (self._path, *await self._replica_sets()):
            (await self.system.api.delete(path, {"propagationPolicy": "Orphan"})).ok()
            await self.system.api.gone(path)  # its controller replaces no Pod any more
        for workload in await self.workloads(len(self.pods)):
            await delete(workload)

    async def _replica_sets(self) -> list[str]:
        path = f"{APPS}/namespaces/{self.system.namespace}/replicasets"
        items = (await self.system.api.get(path)).ok().body["items"]
        return [
            f"{path}/{item['metadata']['name']}"
            for item in items
            if item["metadata"].get("labels", {}).get("app") == self.name
        ]

    @property
    def _path(self) -> str:
        return f"{APPS}/namespaces/{self.system.namespace}/deployments/{self.name}"


async def pod_template(system: System, name: str, partition: str, *, memory: str) -> Body:
    """Create a claim template, and return the template of Pods that name it."""
    requests = [claim_request(f"{partition}.gpu.partita.dev", memory=memory)]
    path = f"{RESOURCES}/namespaces/{system.namespace}/resourceclaimtemplates"
    spec = {"spec": {"devices": {"requests": requests}}}
    (await system.api.post(path, {"metadata": {"name": f"gpu-{name}"}, "spec": spec})).ok()
    container = {"name": "main", "image": "example.org/serve:1"}
    return {
        "metadata": {"labels": {"app": name}, "annotations": {}},
        "spec": {
            "containers": [{**container, "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": f"gpu-{name}"}],
            "terminationGracePeriodSeconds": 1,
        },
    }


async def deploy(
    system: System, name: str, partition: str, *, memory: str = "8Gi", uses: str = "", **sim: str
) -> Service:
    """Create a Deployment of one Pod, and the claim template that it names.

    Parameters
    ----------
    uses
        GPU memory that its program uses; empty for half of what it asks for.
    sim
        What else its program does, as in `partita_testcluster.nodes.simulated_pods`.
    """
    namespace = system.namespace
    pod = await pod_template(system, name, partition, memory=memory)
    pod["spec"]["schedulingGates"] = [{"name": ALLOCATION_GATE}]
    annotations = pod["metadata"]["annotations"]
    annotations |= {f"sim.partita.dev/{key}": value for key, value in sim.items()}
    annotations |= {"sim.partita.dev/memory": uses} if uses else {}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod},
    }
    (await system.api.post(f"{APPS}/namespaces/{namespace}/deployments", body)).ok()
    return Service(system, name)
