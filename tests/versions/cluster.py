"""Two nodes with one GPU each, which a partition shares, and Pods with claims.

The test takes the part of the agents, which report the GPUs. Real are kube-scheduler, the
controllers of kube-controller-manager, and the operator.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from manifests.rendering import SINGLE_NODE
from partita.models.quantities import format_time
from support.api import Answer, Api
from support.history import GROUP_PATH, Body
from support.kubectl import Kubectl
from support.polling import until

__all__ = ["Cluster", "unscheduled"]


PARTITION = "shared"
CLASS = f"{PARTITION}.gpu.partita.dev"
NODES = ("n1", "n2")
RESOURCES = "/apis/resource.k8s.io/v1"
SERVERS = f"{GROUP_PATH}/gpuservers"


class Cluster:
    """The cluster as one test sees it.

    Parameters
    ----------
    namespace
        Where the test's Pods are.
    operator
        The id of the operator's process.
    """

    def __init__(self, api: Api, namespace: str, *, operator: int = 0) -> None:
        self.api = api
        self.namespace = namespace
        self._operator = operator

    async def install(self, kubectl: Kubectl) -> None:
        """Install Partita, and add the nodes."""
        (await kubectl("apply", "-k", str(SINGLE_NODE))).ok()
        await kubectl.established("crd", "--all")
        for name in NODES:
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            (await self.api.post("/api/v1/nodes", {"metadata": meta})).ok()
            amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            (await self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})).ok()

    async def share_gpus(self) -> None:
        """Create a partition of both GPUs, and report them as their agents do."""
        partition = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "GPUPartition",
            "metadata": {"name": PARTITION},
            "spec": {"gpus": len(NODES)},
        }
        (await self.api.post(f"{GROUP_PATH}/gpupartitions", partition)).ok()
        for number in range(len(NODES)):
            name = f"{PARTITION}-{number}"
            pod = await self.api.until(
                f"/api/v1/namespaces/partita-servers/pods/{name}",
                lambda pod: pod["spec"].get("nodeName"),
            )
            await self._report(name, pod["spec"]["nodeName"], f"GPU-{number}")
        await self.api.until(
            f"{RESOURCES}/resourceslices", lambda found: len(found["items"]) == len(NODES)
        )

    async def _report(self, server: str, node: str, uuid: str) -> None:
        now = format_time(datetime.now(UTC))
        ready = {"type": "Ready", "status": "True", "reason": "AgentReporting", "message": ""}
        healthy = {"type": "Faulted", "status": "False", "reason": "Healthy", "message": ""}
        conditions = [{**one, "lastTransitionTime": now} for one in (ready, healthy)]
        status = {
            "node": node,
            "uuid": uuid,
            "product": "NVIDIA A100-SXM4-40GB",
            "memory": "40Gi",
            "smCount": 108,
            "driverVersion": "580.95.05",
            "conditions": conditions,
            "mps": {"state": "Ready", "clients": 0},
        }
        (await self.api.patch(f"{SERVERS}/{server}/status", {"status": status})).ok()

    @contextmanager
    def operator_stopped(self) -> Iterator[None]:
        """Let the operator do nothing while the block runs."""
        os.kill(self._operator, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._operator, signal.SIGCONT)

    # Pods and claims.

    async def create_pod(self, name: str, *, device_class: str = CLASS) -> None:
        """Create a Pod with a claim of 6 GiB, and the template of the claim.

        The amount is in an annotation: this version drops that of a template.
        """
        exactly = {"deviceClassName": device_class}
        requests = [{"name": "gpu", "exactly": exactly}]
        template = {
            "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": requests}}},
        }
        (await self.api.post(self._path("resourceclaimtemplates"), template)).ok()
        notes = {"partita.dev/gpu-memory": "6Gi"}
        container = {"name": "main", "image": "example.org/serve:1"}
        pod = {
            "metadata": {"name": name, "annotations": notes},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
                "containers": [{**container, "resources": {"claims": [{"name": "gpu"}]}}],
            },
        }
        (await self.api.post(self._path("pods"), pod)).ok()

    async def post_pod_with_limits(self, name: str, limits: Body, **params: str) -> Answer:
        """Create a Pod whose container has these limits; it may be refused."""
        container = {"name": "main", "image": "example.org/serve:1"}
        spec = {"containers": [{**container, "resources": {"limits": limits}}]}
        return await self.api.post(
            self._path("pods"), {"metadata": {"name": name}, "spec": spec}, **params
        )

    async def pod_until(self, name: str, holds: Callable[[Body], Any]) -> Body:
        """Wait until something holds of a Pod, and return the Pod."""
        pod: Body = await self.api.until(f"{self._path('pods')}/{name}", holds)
        return pod

    async def bound(self, name: str) -> Body:
        """Wait until kube-scheduler has bound a Pod to the node of its GPU; return its claim."""
        pod = await self.pod_until(name, lambda pod: pod["spec"].get("nodeName"))
        claim = await self.claim_until(name, lambda claim: claim["status"].get("reservedFor"))
        assert [user["uid"] for user in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
        assert _node_of(claim) == pod["spec"]["nodeName"]
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        (server,) = [s for s in await self.servers() if s["metadata"]["name"] == result["pool"]]
        assert server["status"]["node"] == _node_of(claim)
        assert claim["metadata"]["uid"] in server["status"]["allocations"]
        return claim

    async def claim_until(self, pod: str, holds: Callable[[Body], Any]) -> Body:
        """Wait until the claim of a Pod is there and something holds of it; return the claim."""
        made = await self.pod_until(pod, lambda p: p["status"].get("resourceClaimStatuses"))
        (status,) = made["status"]["resourceClaimStatuses"]
        path = f"{self._path('resourceclaims')}/{status['resourceClaimName']}"
        claim: Body = await self.api.until(path, lambda c: holds({"status": {}, **c}))
        return claim

    async def is_allocated(self, pod: str) -> bool:
        """Say whether the claim of a Pod, which is there, is allocated."""
        claim = await self.claim_until(pod, bool)
        return "allocation" in claim.get("status", {})

    async def event(self, pod: str, reason: str) -> str:
        """Wait for an Event of a Pod, and return its message."""
        about = f"involvedObject.name={pod},reason={reason}"

        async def found() -> str:
            listed = (await self.api.get(self._path("events"), fieldSelector=about)).ok().body
            return next((event["message"] for event in listed["items"]), "")

        message: str = await until(found, what=f"no Event {reason} of {pod}")
        return message

    async def delete_pod(self, name: str) -> None:
        """Delete a Pod as kubelet does once its containers have ended; wait for its claim's end."""
        await self.api.delete(f"{self._path('pods')}/{name}", {"gracePeriodSeconds": 0})
        await self.api.gone(f"{self._path('pods')}/{name}")

    async def servers(self) -> list[Body]:
        """Return the GPUServers."""
        found: list[Body] = (await self.api.get(SERVERS)).ok().body["items"]
        return found

    async def nothing_allocated(self) -> None:
        """Wait until no claim is left, and no allocation in a ledger."""

        async def left() -> bool:
            claims = (await self.api.get(self._path("resourceclaims"))).ok().body["items"]
            return bool(claims) or any(s["status"].get("allocations") for s in await self.servers())

        await until(lambda: _not(left), what="claims or allocations are left")

    async def clean(self) -> None:
        """Delete the Pods of the test."""
        await self.api.delete(self._path("pods"), {"gracePeriodSeconds": 0})
        await self.nothing_allocated()

    def _path(self, plural: str) -> str:
        base = RESOURCES if plural.startswith("resource") else "/api/v1"
        return f"{base}/namespaces/{self.namespace}/{plural}"


async def _not(holds: Callable[[], Any]) -> bool:
    return not await holds()


def _node_of(claim: Body) -> str:
    """Return the node for which a claim is allocated."""
    (term,) = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    (node,) = term["matchFields"][0]["values"]
    return str(node)


def unscheduled(pod: Body) -> str:
    """Return why kube-scheduler has not bound a Pod; empty if it has not said so."""
    conditions = pod["status"].get("conditions", ())
    return next(
        (
            c["message"]
            for c in conditions
            if c["type"] == "PodScheduled" and c["status"] == "False"
        ),
        "",
    )
