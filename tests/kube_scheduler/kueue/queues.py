"""Kueue's queues, and what they say of a workload."""

from __future__ import annotations

from kube_scheduler.cluster import DEVICE_CLASS, Body
from support.api import Api

__all__ = ["GROUP", "PREEMPTS", "QUEUE_LABEL", "SETTINGS", "Queues", "group_of"]


VERSION = "kueue.x-k8s.io/v1beta2"
GROUP = f"/apis/{VERSION}"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
FLAVOR = "gpus"

READY_WITHIN = "20s"
"""Kueue's default is 5 minutes; here Pods start within a second unless they find no room."""

QUOTA_RESOURCE = "partita.dev/gpu-memory"
"""What ClusterQueues count: bytes of GPU memory, from `capacity.requests` of the claims."""

DRIVER = "gpu.partita.dev"

_MEMORY = {
    "name": "memory",
    "driver": DRIVER,
    "deviceSelector": {"cel": {"expression": f'device.driver == "{DRIVER}"'}},
}

SETTINGS: Body = {
    "featureGates": {"KueueDRAIntegrationConsumableCapacity": True, "VisibilityOnDemand": False},
    # A Job whose Pods find no room together is suspended again, and tried later.
    "waitForPodsReady": {
        "timeout": READY_WITHIN,
        "requeuingStrategy": {"backoffBaseSeconds": 1, "backoffMaxSeconds": 3},
    },
    "integrations": {"frameworks": ["batch/job", "pod", "deployment"]},
    "resources": {
        "deviceClassMappings": [
            {
                "name": QUOTA_RESOURCE,
                "deviceClassNames": [DEVICE_CLASS],
                "sources": [{"capacity": _MEMORY}],
            }
        ]
    },
}
"""Of a Kueue that counts the claims of Partita's Pods."""

PREEMPTS = {
    "reclaimWithinCohort": "Any",
    "withinClusterQueue": "LowerPriority",
    "borrowWithinCohort": {"policy": "LowerPriority"},
}
"""A queue whose workloads take back what others have borrowed, and preempt lower priorities."""


def group_of(name: str, count: int) -> Body:
    """Labels and annotations of the Pods of a group."""
    return {
        "labels": {"kueue.x-k8s.io/pod-group-name": name},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(count)},
    }


class Queues:
    """ClusterQueues of a cohort, with a LocalQueue of the same name for a namespace each."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._made: list[str] = []

    async def add(
        self,
        name: str,
        namespace: str,
        quota: int,
        *,
        cohort: str = "",
        preemption: Body | None = None,
    ) -> None:
        """Let a namespace use so many GiB; its workloads preempt none unless that is given."""
        flavor = {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
        answer = await self._api.post(f"{GROUP}/resourceflavors", flavor)
        assert answer.status in {201, 409}, answer
        spec: Body = {"namespaceSelector": {}, "resourceGroups": [_resources(quota)]}
        if cohort:
            spec["cohortName"] = cohort
        if preemption:
            spec["preemption"] = preemption
        meta = {"name": name}
        queue = {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": meta, "spec": spec}
        (await self._api.post(f"{GROUP}/clusterqueues", queue)).ok()
        self._made.append(f"{GROUP}/clusterqueues/{name}")
        queue = {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": meta}
        queue["spec"] = {"clusterQueue": name}
        path = f"{GROUP}/namespaces/{namespace}/localqueues"
        (await self._api.post(path, queue)).ok()
        self._made.append(f"{path}/{name}")

    async def set_quota(self, name: str, quota: int) -> None:
        """Let the namespace of a queue use so many GiB from now on."""
        patch = {"spec": {"resourceGroups": [_resources(quota)]}}
        (await self._api.patch(f"{GROUP}/clusterqueues/{name}", patch)).ok()

    async def used(self, name: str, amount: str) -> None:
        """Wait until Kueue counts so much as used in a queue."""

        def counted(queue: Body) -> bool:
            flavors = queue.get("status", {}).get("flavorsUsage", ())
            totals = [resource["total"] for flavor in flavors for resource in flavor["resources"]]
            return totals == [amount]

        await self._api.until(f"{GROUP}/clusterqueues/{name}", counted)

    async def pending(self, name: str, count: int) -> None:
        """Wait until so many workloads wait for quota."""
        await self._api.until(
            f"{GROUP}/clusterqueues/{name}",
            lambda queue: queue.get("status", {}).get("pendingWorkloads") == count,
        )

    async def clean(self) -> None:
        """Delete all queues."""
        for path in reversed(self._made):
            await self._api.delete(path)


def _resources(quota: int) -> Body:
    resource = {"name": QUOTA_RESOURCE, "nominalQuota": f"{quota}Gi"}
    return {
        "coveredResources": [QUOTA_RESOURCE],
        "flavors": [{"name": FLAVOR, "resources": [resource]}],
    }
