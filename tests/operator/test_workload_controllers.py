"""Deployments, StatefulSets and Jobs whose Pods have slices: what any user does with them.

The controllers are those of the cluster: they create Pods, and claims from a template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from support.operator import System
from support.services import pod_template

Body = dict[str, Any]
MEMORY = "8Gi"
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
        """Wait until exactly so many Pods run, each with a slice; return them."""

        def settled() -> bool:
            holders = Counter(e["podUID"] for e in entries(self.system))
            uids = [pod["metadata"]["uid"] for pod in self.running]
            return (
                len(self.pods) == len(uids) == replicas
                and all(holders[uid] == 1 for uid in uids)
                and len(claims(self.system)) == holders.total()
            )

        await self.system.history.until(settled, what=self._shown)
        return self.running

    def _shown(self) -> Any:
        pods = [(p["metadata"]["name"], p["status"]["phase"]) for p in self.pods]
        notes = [c["metadata"].get("annotations", {}) for c in claims(self.system)]
        return pods, entries(self.system), notes

    async def patch(self, spec: Body) -> None:
        (await self.system.api.patch(self.path, {"spec": spec})).ok()

    async def delete(self) -> None:
        options = {"propagationPolicy": "Background"}
        (await self.system.api.delete(self.path, options)).ok()


def entries(system: System) -> list[Body]:
    """Everything in the ledgers."""
    ledgers = [s["status"].get("allocations", {}) for s in system.history.all("gpuservers")]
    return [entry for ledger in ledgers for entry in ledger.values()]


def claims(system: System) -> list[Body]:
    return system.history.all("resourceclaims")


def gpu_of(pod: Body, system: System) -> str:
    """The GPUServer on which a Pod has its slice."""
    uid = pod["metadata"]["uid"]
    (name,) = (
        server["metadata"]["name"]
        for server in system.history.all("gpuservers")
        for entry in server["status"].get("allocations", {}).values()
        if entry["podUID"] == uid
    )
    return name


def nodes_of(pods: list[Body]) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods}


async def submit(
    system: System,
    kind: str,
    name: str,
    partition: str,
    *,
    memory: str = MEMORY,
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


@asynccontextmanager
async def cluster(system: System, *gpus: int, **spec: Any) -> AsyncIterator[str]:
    """Run nodes with a partition of all their GPUs; at the end nothing may be left of workloads."""
    async with system.running(*gpus):
        partition = await system.partition(sum(gpus), services={"memoryPercent": 100}, **spec)
        await system.ready(partition, sum(gpus))
        yield partition
        await system.history.until(
            lambda: not entries(system) and not claims(system),
            what=lambda: (entries(system), [c["status"] for c in claims(system)]),
        )


async def evict(system: System, pod: Body) -> None:
    """Evict a Pod as `kubectl drain` does."""
    meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    (await system.api.post(path, body)).ok()


async def test_a_deployment_is_scaled_to_five_and_back(system: System) -> None:
    async with cluster(system, 1, 1) as partition:
        serve = await submit(system, "Deployment", "serve", partition, replicas=1)
        (first,) = await serve.runs(1)
        await serve.patch({"replicas": 5})
        five = await serve.runs(5)
        assert len({gpu_of(pod, system) for pod in five}) == 2
        assert first["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in five}
        await serve.patch({"replicas": 1})
        await serve.runs(1)
        await serve.patch({"replicas": 0})
        await serve.runs(0)
        await serve.delete()


async def test_a_rollout_needs_no_further_slice_without_surge(system: System) -> None:
    async with cluster(system, 1) as partition:
        strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
        serve = await submit(
            system, "Deployment", "serve", partition,
            memory="16Gi", replicas=2, strategy=strategy,
        )  # fmt: skip
        old = {pod["metadata"]["uid"] for pod in await serve.runs(2)}
        annotations = {"example.org/version": "2"}
        await serve.patch({"template": {"metadata": {"annotations": annotations}}})
        await system.history.until(
            lambda: (
                len(serve.running) == 2
                and not old & {pod["metadata"]["uid"] for pod in serve.running}
            ),
            what=lambda: serve.pods,
        )
        for pod in await serve.runs(2):
            assert pod["metadata"]["annotations"]["example.org/version"] == "2"
        versions = [
            body["status"].get("allocations", {})
            for server in system.servers(partition)
            for body in system.history.versions("gpuservers", server["metadata"]["name"])
            if "status" in body
        ]
        assert max(map(len, versions)) == 2
        await serve.delete()


async def test_a_notebook_keeps_its_name_and_gets_a_new_claim(system: System) -> None:
    async with cluster(system, 1) as partition:
        lab = await submit(system, "StatefulSet", "lab", partition, replicas=1, serviceName="lab")
        (first,) = await lab.runs(1)
        assert first["metadata"]["name"] == "lab-0"
        (await system.api.delete(f"/api/v1/namespaces/{system.namespace}/pods/lab-0")).ok()
        await system.history.until(
            lambda: [
                pod for pod in lab.running if pod["metadata"]["uid"] != first["metadata"]["uid"]
            ],
            what=lambda: lab.pods,
        )
        (second,) = await lab.runs(1)
        (entry,) = entries(system)
        assert entry["podUID"] == second["metadata"]["uid"]
        await lab.delete()


async def test_a_jobs_pods_get_slices_one_after_another(system: System) -> None:
    async with cluster(system, 1) as partition:
        train = await submit(
            system, "Job", "train", partition,
            memory="20Gi", completions=3, parallelism=3,
            template={"restartPolicy": "Never"}, sim={"duration": "20s"},
        )  # fmt: skip
        await system.api.until(train.path, lambda job: job["status"].get("succeeded") == 3)
        await train.delete()


async def test_drained_workloads_move_to_another_node(system: System) -> None:
    async with cluster(system, 1, 1) as partition:
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
            await system.history.until(
                lambda w=workload, n=count: len(w.running) == n, what=lambda: serve.pods
            )
        (drained,) = nodes_of(lab.running)
        await system.cordon(drained)
        for workload in workloads:
            for pod in workload.running:
                if pod["spec"]["nodeName"] == drained:
                    await evict(system, pod)

        def moved() -> bool:
            running = [pod for workload in workloads for pod in workload.running]
            return len(running) == 5 and drained not in nodes_of(running)

        await system.history.until(
            moved, what=lambda: [p["spec"] for w in workloads for p in w.pods]
        )
        job = (await system.api.get(train.path)).ok().body
        assert not job["status"].get("failed")
        # Those of the evicted Pods are released soon after.
        await system.history.until(lambda: len({e["podUID"] for e in entries(system)}) == 5)
        for workload in workloads:
            await workload.delete()
