"""Deployments, StatefulSets and Jobs whose Pods have slices: what any user does with them.

The controllers are those of the cluster: they create Pods, and claims from a template.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from support.services import pod_template
from support.system import System

Body = dict[str, Any]
PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "Job": "jobs"}


@dataclass(frozen=True)
class Controller:
    """A controller of Pods with claims from a template."""

    system: System
    kind: str
    name: str

    @property
    def path(self) -> str:
        group = "batch" if self.kind == "Job" else "apps"
        return (
            f"/apis/{group}/v1/namespaces/{self.system.namespace}/{PLURALS[self.kind]}/{self.name}"
        )

    @property
    def pods(self) -> list[Body]:
        """Its Pods that are not being deleted."""
        found = [
            pod
            for pod in self.system.history.all("pods")
            if pod["metadata"].get("labels", {}).get("app") == self.name
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    @property
    def running(self) -> list[Body]:
        return [pod for pod in self.pods if pod["status"]["phase"] == "Running"]

    async def runs(self, replicas: int) -> list[Body]:
        """Wait until exactly so many Pods run; return them."""
        await self.system.history.until(
            lambda: len(self.pods) == len(self.running) == replicas, what=lambda: self.pods
        )
        return self.running

    async def delete(self) -> None:
        options = {"propagationPolicy": "Background"}
        (await self.system.api.delete(self.path, options)).ok()


def entries(system: System) -> list[Body]:
    """Everything in the ledgers."""
    ledgers = [s["status"].get("allocations", {}) for s in system.history.all("gpuservers")]
    return [entry for ledger in ledgers for entry in ledger.values()]


async def submit(
    system: System,
    kind: str,
    name: str,
    partition: str,
    *,
    memory: str = "8Gi",
    template: Body | None = None,
    sim: dict[str, str] | None = None,
    **spec: Any,
) -> Controller:
    """Create a controller, and a template of the claims of its Pods."""
    pod = await pod_template(system, name, partition, memory=memory)
    pod["metadata"]["annotations"] = {f"sim.partita.dev/{k}": v for k, v in (sim or {}).items()}
    pod["spec"] |= template or {}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": pod["metadata"]["labels"]}}
    body = {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**selector, "template": pod, **spec},
    }
    controller = Controller(system, kind, name)
    (await system.api.post(controller.path.rpartition("/")[0], body)).ok()
    return controller


async def evict(system: System, pod: Body) -> None:
    """Evict a Pod as `kubectl drain` does."""
    meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    (await system.api.post(path, body)).ok()


async def test_drained_workloads_move_to_another_node(system: System) -> None:
    async with system.running(1, 1):
        partition = await system.partition(2, services={"memoryPercent": 100})
        await system.ready(partition, 2)
        serve = await submit(system, "Deployment", "serve", partition, replicas=3)
        lab = await submit(system, "StatefulSet", "lab", partition, replicas=1, serviceName="lab")
        ignore = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        train = await submit(
            system, "Job", "train", partition,
            memory="4Gi", backoffLimit=0, podReplacementPolicy="Failed",
            podFailurePolicy={"rules": [ignore]},
            template={"restartPolicy": "Never"}, sim={"duration": "10h"},
        )  # fmt: skip
        workloads = (serve, lab, train)
        for workload, count in zip(workloads, (3, 1, 1), strict=True):
            await workload.runs(count)
        drained = lab.running[0]["spec"]["nodeName"]
        await system.cordon(drained)
        for workload in workloads:
            for pod in workload.running:
                if pod["spec"]["nodeName"] == drained:
                    await evict(system, pod)

        def moved() -> bool:
            running = [pod for workload in workloads for pod in workload.running]
            return len(running) == 5 and all(p["spec"]["nodeName"] != drained for p in running)

        await system.history.until(
            moved, what=lambda: [p["spec"] for w in workloads for p in w.pods]
        )
        job = (await system.api.get(train.path)).ok().body
        assert not job["status"].get("failed")
        # Those of the evicted Pods are released soon after.
        await system.history.until(lambda: len({e["podUID"] for e in entries(system)}) == 5)
        for workload in workloads:
            await workload.delete()
        await system.history.until(
            lambda: not entries(system) and not system.history.all("resourceclaims"),
            what=lambda: entries(system),
        )
