"""Nodes, a partition and an operator, beside kube-scheduler and the controllers of workloads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from typing_extensions import override

from partita.times import Times
from partita_testcluster.nodes.node import PLENTY, NodeSpec
from support.api import Answer
from support.history import GROUP_PATH, Body
from support.polling import until
from support.system import SPEED, System

__all__ = [
    "CLAIMS",
    "DEVICE_CLASS",
    "FOREVER",
    "PARTITION",
    "SchedulingCluster",
    "job_ended",
    "said",
    "workload_pod",
]


PARTITION = "shared"
DEVICE_CLASS = f"{PARTITION}.gpu.partita.dev"
CLAIMS = "/apis/resource.k8s.io/v1"
WORKLOADS = {
    "deployments": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "sharedgpujobs": GROUP_PATH,
    "pods": "/api/v1",
}
"""Kinds that tests create, and their API groups; those that create others come first."""
FOREVER = 86400.0
"""Seconds of a Pod that a test ends."""

IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
"""Rule of a Job's podFailurePolicy: a Pod that is evicted is no failure."""


def workload_pod(memory: int, seconds: float = 0.2, *, restart: str = "Never", **spec: Any) -> Body:
    """Return metadata and spec of a Pod with so many GiB of a GPU.

    Parameters
    ----------
    seconds
        How long it runs.
    """
    container = {"name": "main", "image": "example.org/train:1"}
    return {
        "metadata": {"annotations": {"sim.partita.dev/duration": f"{round(seconds * SPEED)}s"}},
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": f"gpu-{memory}gi"}],
            "containers": [{**container, "resources": {"claims": [{"name": "gpu"}]}}],
            **spec,
        },
    }


def template(memory: int) -> Body:
    """A template of claims for so many GiB."""
    exactly = {
        "deviceClassName": DEVICE_CLASS,
        "capacity": {"requests": {"memory": f"{memory}Gi", "threads": "25"}},
    }
    return {
        "metadata": {"name": f"gpu-{memory}gi"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


class SchedulingCluster(System):
    """A `System` with kube-scheduler."""

    simulates_scheduler = False
    times = Times()

    @contextlib.asynccontextmanager
    async def sharing(
        self, *gpus: int, cpu: str = "64", **partition: Any
    ) -> AsyncIterator[list[str]]:
        """Run nodes with so many GPUs and CPUs each, an operator, and a partition of all GPUs."""
        specs = [
            NodeSpec(f"n{number}", count, allocatable={**PLENTY, "cpu": cpu})
            for number, count in enumerate(gpus)
        ]
        async with self.nodes(specs=specs) as nodes, self.operator():
            body = {
                "apiVersion": "partita.dev/v1alpha1",
                "kind": "GPUPartition",
                "metadata": {"name": PARTITION},
                "spec": {"gpus": sum(gpus), **partition},
            }
            (await self.api.post(f"{GROUP_PATH}/gpupartitions", body)).ok()
            await self.ready(PARTITION, sum(gpus))
            await self.api.until(
                f"{CLAIMS}/resourceslices", lambda listed: len(listed["items"]) == sum(gpus)
            )
            ending = asyncio.create_task(self._end_deleted_pods())
            try:
                yield nodes
                await self.settle()
            finally:
                ending.cancel()

    async def _end_deleted_pods(self) -> None:
        """Write the end of Pods that are deleted, as kubelet does and the simulated nodes do not.

        A Pod with finalizers, such as those of the job controller and of Kueue, exists until they
        have seen how it ended.
        """

        def running() -> list[Body]:
            return [
                pod
                for pod in self.history.all("pods")
                if "deletionTimestamp" in pod["metadata"]
                and pod["metadata"]["namespace"] in self.namespaces
                and pod.get("status", {}).get("phase") in {"Pending", "Running"}
            ]

        while True:
            for pod in await self.history.until(running, seconds=3600):
                await self.end(pod, "Failed")

    async def end(self, pod: Body, phase: str) -> None:
        """Do what kubelet does when the containers of a Pod have ended."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        patch = {"metadata": {"uid": meta["uid"]}, "status": {"phase": phase}}
        answer = await self.api.patch(f"{path}/status", patch)
        assert answer.status in {200, 404, 409}, answer  # it may be gone meanwhile

        def seen() -> bool:
            now = self.history.get("pods", meta["name"], meta["namespace"])
            return (
                now is None
                or now["metadata"]["uid"] != meta["uid"]
                or now["status"]["phase"] == phase
            )

        await self.history.until(seen)

    @override
    async def settle(self) -> None:
        """Delete all workloads and the partition, and wait until nothing of them is left."""
        for plural, group in WORKLOADS.items():
            for body in self.history.all(plural):
                meta = body["metadata"]
                if meta["namespace"] in self.namespaces:
                    path = f"{group}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"
                    await self.api.delete(path, {"propagationPolicy": "Background"})
        await self.history.until(
            lambda: not self.claims() and not self.ledger(),
            what=lambda: (self.claims(), self.ledger()),
        )
        await self.api.delete(f"{GROUP_PATH}/gpupartitions/{PARTITION}")
        await self.history.until(lambda: not self.history.all("gpuservers"))

    async def templates(self, *sizes: int, namespace: str = "") -> None:
        """Create templates for so many GiB each."""
        path = f"{CLAIMS}/namespaces/{namespace or self.namespace}/resourceclaimtemplates"
        for size in sizes:
            (await self.api.post(path, template(size))).ok()

    async def create_pod(self, name: str, pod: Body, namespace: str = "", **metadata: Any) -> str:
        """Create a Pod, with more of its metadata, and return its UID."""
        meta = {**pod["metadata"], **metadata, "name": name}
        meta["annotations"] = {**pod["metadata"]["annotations"], **metadata.get("annotations", {})}
        path = f"/api/v1/namespaces/{namespace or self.namespace}/pods"
        made = (await self.api.post(path, {"metadata": meta, "spec": pod["spec"]})).ok().body
        uid: str = made["metadata"]["uid"]
        return uid

    async def create_job(
        self, name: str, pod: Body, pods: int, namespace: str = "", **metadata: Any
    ) -> None:
        """Create a batch/v1 Job of so many Pods at once, for which an eviction is no failure."""
        body = {
            "metadata": {"name": name, **metadata},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": 0,
                "podFailurePolicy": {"rules": [IGNORED]},
                "template": pod,
            },
        }
        path = f"/apis/batch/v1/namespaces/{namespace or self.namespace}/jobs"
        (await self.api.post(path, body)).ok()

    async def create_deployment(
        self, name: str, pod: Body, replicas: int, namespace: str = "", **metadata: Any
    ) -> None:
        """Create a Deployment."""
        labels = {"app": name}
        made = {**pod, "metadata": {**pod["metadata"], "labels": labels}}
        selector = {"matchLabels": labels}
        body = {
            "metadata": {"name": name, **metadata},
            "spec": {"replicas": replicas, "selector": selector, "template": made},
        }
        path = f"/apis/apps/v1/namespaces/{namespace or self.namespace}/deployments"
        (await self.api.post(path, body)).ok()

    def pod(self, name: str, namespace: str = "") -> Body | None:
        """Return a Pod as it is now."""
        return self.history.get("pods", name, namespace or self.namespace)

    async def runs(self, name: str, namespace: str = "") -> Body:
        """Wait until a Pod runs."""
        return await self._phase("Running", name, namespace)

    async def succeeds(self, name: str, namespace: str = "") -> Body:
        """Wait until a Pod has ended well."""
        return await self._phase("Succeeded", name, namespace)

    async def _phase(self, phase: str, name: str, namespace: str) -> Body:
        def reached() -> Body | None:
            pod = self.pod(name, namespace)
            return pod if pod and pod.get("status", {}).get("phase") == phase else None

        found: Body = await self.history.until(reached, what=lambda: self.pod(name, namespace))
        return found

    async def job_succeeds(self, name: str) -> None:
        """Wait until a Job has ended well."""
        await self.history.until(
            lambda: job_ended(self.history.get("jobs", name, self.namespace)) == "Complete",
            what=lambda: self.history.get("jobs", name, self.namespace),
        )

    async def deployed(self, name: str, *, after: Body | None = None) -> Body:
        """Wait until a Pod of a Deployment runs, other than an earlier one, and return it."""

        def running() -> list[Body]:
            pods = self.replicas(name, after=after)
            return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]

        found: list[Body] = await self.history.until(
            running, what=lambda: (self.history.all("pods", self.namespace), self.ledger())
        )
        return found[0]

    def replicas(self, name: str, *, after: Body | None = None) -> list[Body]:
        """Return the Pods of a Deployment other than an earlier one."""
        return [
            pod
            for pod in self.history.all("pods", self.namespace)
            if pod["metadata"].get("labels", {}).get("app") == name
            and (after is None or pod["metadata"]["uid"] != after["metadata"]["uid"])
        ]

    async def evict(self, name: str, namespace: str = "") -> Answer:
        """Do what `kubectl drain` and cluster-autoscaler do with a Pod."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/{namespace or self.namespace}/pods/{name}/eviction"
        return await self.api.post(path, body)

    async def evicted(self, name: str, namespace: str) -> None:
        """Try to evict a Pod until no budget protects it."""

        async def gone() -> bool:
            return (await self.evict(name, namespace)).status == 201

        await until(gone, what=f"Pod {name} is protected")

    async def delete_pod(self, name: str) -> None:
        """Delete a Pod and wait until it is gone."""
        (await self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}")).ok()
        await self.history.until(lambda: self.pod(name) is None)

    # Claims.

    def claims(self) -> list[Body]:
        """Return the claims that there are now."""
        return self.history.all("resourceclaims")

    async def claim_of(self, pod: str) -> Body:
        """Wait until a Pod has its claim, and return it as it is then, or was last."""
        found: Body = await self.history.until(lambda: self._claim(pod))
        return found

    async def claim_says(self, pod: str, holds: Callable[[Body], Any]) -> Body:
        """Wait until something holds of the claim of a Pod, and return the claim."""

        def found() -> Body | None:
            claim = self._claim(pod)
            return claim if claim is not None and holds(claim) else None

        claim: Body = await self.history.until(
            found, what=lambda: (self._claim(pod), self.pod(pod), self.ledger())
        )
        return claim

    async def claim_waits(self, pod: str, *words: str) -> str:
        """Wait until the claim of a Pod says why it waits, in words that have these."""
        claim = await self.claim_says(pod, lambda body: all(word in said(body) for word in words))
        return said(claim)

    def _claim(self, pod: str) -> Body | None:
        return next(
            (
                versions[-1].body
                for versions in reversed(self.history.lives("resourceclaims"))
                for owner in versions[0].body["metadata"].get("ownerReferences", ())
                if owner["name"] == pod
            ),
            None,
        )

    def ledger(self) -> dict[str, str]:
        """Return the GPUServer that has allocated memory to each claim, by its UID."""
        return {
            uid: server["metadata"]["name"]
            for server in self.history.all("gpuservers")
            for uid in server.get("status", {}).get("allocations", {})
        }

    def servers_on(self, node: str) -> list[Body]:
        """Return the GPUServers of a node."""
        servers = self.history.all("gpuservers")
        return [server for server in servers if server.get("status", {}).get("node") == node]

    def was_allocated(self, claim: Body) -> bool:
        """Say whether a claim was ever in the ledger."""
        uid = claim["metadata"]["uid"]
        return any(
            uid in version.body.get("status", {}).get("allocations", {})
            for versions in self.history.lives("gpuservers")
            for version in versions
        )


def said(claim: Body) -> str:
    """Return why a claim waits."""
    return str(claim["metadata"].get("annotations", {}).get("partita.dev/status", ""))


def job_ended(job: Body | None) -> str:
    """Return how a Job has ended, `Complete` or `Failed`; empty if it has not."""
    conditions = (job or {}).get("status", {}).get("conditions", ())
    ends = [c["type"] for c in conditions if c["status"] == "True"]
    return next((end for end in ends if end in {"Complete", "Failed"}), "")
