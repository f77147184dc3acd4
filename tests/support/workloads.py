"""Pods with claims in a whole system.

A test creates each claim with its Pod, as kube-controller-manager makes it from a template. The
simulated nodes bind and run the Pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from partita.constants import ALLOCATION_GATE
from support.claims import claim_request
from support.polling import TIMEOUT
from support.system import System
from support.versions import Body

__all__ = ["Workload", "delete", "submit"]

CLAIMS = "/apis/resource.k8s.io/v1"


@dataclass(frozen=True)
class Workload:
    """A Pod and its claim."""

    system: System
    namespace: str
    pod: Body
    claim: Body

    @property
    def name(self) -> str:
        name: str = self.pod["metadata"]["name"]
        return name

    @property
    def uid(self) -> str:
        uid: str = self.claim["metadata"]["uid"]
        return uid

    def now(self, plural: str) -> Body:
        """Return the Pod or the claim as it is now; empty once it is gone."""
        name = self.claim["metadata"]["name"] if plural == "resourceclaims" else self.name
        return self.system.history.get(plural, name, self.namespace) or {}

    @property
    def phase(self) -> str:
        """The phase of its Pod; empty while there is none."""
        return str(self.now("pods").get("status", {}).get("phase", ""))

    @property
    def allocation(self) -> Body:
        found: Body = self.now("resourceclaims").get("status", {}).get("allocation") or {}
        return found

    @property
    def status(self) -> str:
        """The annotation that says why it waits."""
        return self.note("status")

    def note(self, name: str) -> str:
        """Return an annotation of Partita on its claim."""
        meta = self.now("resourceclaims").get("metadata", {})
        return str(meta.get("annotations", {}).get(f"partita.dev/{name}", ""))

    @property
    def entries(self) -> list[Body]:
        """Return what ledgers have of the claim."""
        ledgers = [
            s["status"].get("allocations", {}) for s in self.system.history.all("gpuservers")
        ]
        return [ledger[self.uid] for ledger in ledgers if self.uid in ledger]

    async def until(self, holds: Any, *, within: float = TIMEOUT) -> None:
        """Wait for its Pod and claim to be so, and for what was written before."""
        history = self.system.history
        await history.until(
            lambda: holds(self),
            seconds=within,
            what=lambda: (self.now("pods"), self.now("resourceclaims"), self.entries),
        )
        for body in filter(None, (self.now("pods"), self.now("resourceclaims"))):
            await history.reach(body, "pods", "resourceclaims", "gpuservers")

    async def allocated(self) -> Body:
        """Wait for the allocation, and for the Pod's gate to be removed."""
        await self.until(
            lambda w: w.allocation and w.phase and not w.now("pods")["spec"].get("schedulingGates")
        )
        return self.allocation

    async def waits(self, reason: str, *words: str, within: float = TIMEOUT) -> str:
        """Wait until claim and Pod say that it waits for this reason."""
        await self.until(
            lambda w: (
                w.status.startswith(f"{reason}: ")
                and all(word in w.status for word in words)
                and any(reason == event for event, _ in self.system.history.events(self.name))
            ),
            within=within,
        )
        return self.status

    async def runs(self) -> None:
        """Wait until its container runs."""
        await self.until(lambda w: w.phase == "Running")

    async def end(self, phase: str = "Succeeded") -> None:
        """Do what kubelet does when the program ends; the claim controller then frees the claim."""
        await self.patch("pods", {"status": {"phase": phase}}, "/status")

    async def patch(self, plural: str, patch: Body, subresource: str = "") -> None:
        (await self.system.api.patch(self.path(plural) + subresource, patch)).ok()

    def path(self, plural: str) -> str:
        name = self.claim["metadata"]["name"] if plural == "resourceclaims" else self.name
        base = CLAIMS if plural == "resourceclaims" else "/api/v1"
        return f"{base}/namespaces/{self.namespace}/{plural}/{name}"


async def submit(
    system: System,
    name: str,
    partition: str,
    *,
    memory: str = "8Gi",
    count: int = 1,
    annotations: dict[str, str] | None = None,
    duration: str = "10h",
    sim: dict[str, str] | None = None,
    **spec: Any,
) -> Workload:
    """Create a Pod, and its claim as kube-controller-manager makes it.

    Parameters
    ----------
    sim
        What its program does, as in `partita_testcluster.nodes.simulated_pods`.
    """
    namespace = system.namespace
    meta = {"name": name, "namespace": namespace}
    notes = {f"partita.dev/{k}": v for k, v in (annotations or {}).items()}
    notes["sim.partita.dev/duration"] = duration
    notes |= {f"sim.partita.dev/{key}": value for key, value in (sim or {}).items()}
    container = {"name": "main", "image": "example.org/serve:1"}
    claimed = {"resources": {"claims": [{"name": "gpu"}]}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "annotations": notes},
        "spec": {
            "containers": [{**container, **claimed}],
            "schedulingGates": [{"name": ALLOCATION_GATE}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu-8gi"}],
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            **spec,
        },
    }
    pod = (await system.api.post(f"/api/v1/namespaces/{namespace}/pods", body)).ok().body
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
    request = claim_request(f"{partition}.gpu.partita.dev", memory=memory, count=count)
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{name}-gpu",
            "namespace": namespace,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"devices": {"requests": [request]}},
    }
    path = f"{CLAIMS}/namespaces/{namespace}/resourceclaims"
    made = (await system.api.post(path, claim)).ok().body
    status = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    patch = {"status": {"resourceClaimStatuses": status}}
    (await system.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", patch)).ok()
    return Workload(system, namespace, pod, made)


async def delete(workload: Workload) -> None:
    """Delete the Pod at once, as after its grace period."""
    path, api = workload.path("pods"), workload.system.api
    (await api.delete(path, {"gracePeriodSeconds": 0})).ok()
