"""The simulated kube-scheduler: finds a machine for each waiting Pod, and binds the Pod to it.

Of the claims of a Pod it treats only allocated ones (`dynamicresources` in k8s.io/kubernetes
v1.36.3, pkg/scheduler/framework/plugins): it reserves them for the Pod, and clears an allocation if
the Pod fits on no node but would on one without it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from partita.kube.client import CLAIMS
from partita.kube.errors import KubernetesError
from partita.pods.node_rules import NodeRules
from partita_testcluster.nodes.claims import SimulatedClaim
from partita_testcluster.nodes.cluster import SimulatedCluster
from partita_testcluster.nodes.node import Machine
from partita_testcluster.nodes.pod_status import unschedulable
from partita_testcluster.nodes.scheduler import (
    NodeCapacity,
    Wants,
    place,
    wants_other_node,
    why_not,
)
from partita_testcluster.nodes.simulated_pods import GATED, REQUIRED, SimulatedPod

__all__ = ["PodScheduler"]

log = structlog.get_logger(__name__)

Body = dict[str, Any]


class PodScheduler:
    """The scheduler of all machines.

    Parameters
    ----------
    cluster
        The state that all parts of the simulation share.
    admit
        Called with a Pod and the machine on which it has to be bound.
    """

    def __init__(
        self, cluster: SimulatedCluster, admit: Callable[[SimulatedPod, Machine], None]
    ) -> None:
        self._cluster = cluster
        self._admit = admit
        self._waiting: dict[str, SimulatedPod] = {}

    def add(self, pod: SimulatedPod) -> None:
        """Find a machine for a Pod now or later."""
        self.defer(pod)
        self._place(pod)

    def defer(self, pod: SimulatedPod) -> None:
        """Find a machine for a Pod when something has changed."""
        self._waiting[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """Forget a Pod; no effect if it does not wait."""
        self._waiting.pop(uid, None)

    def retry(self) -> None:
        """Try to place the waiting Pods again after resources were released."""
        refused: list[Wants] = []
        for pod in list(self._waiting.values()):
            wants = self._wants(pod)
            if wants is None or wants.unallocated or wants in refused:
                continue
            if not self._place(pod):
                refused.append(wants)

    async def bind(self, pod: SimulatedPod, machine: Machine) -> bool:
        """Reserve the claims of a Pod for it and bind it; return whether both were accepted."""
        user = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        for claim in self._cluster.claims.of(pod):
            if not claim.reserved_for_pod(pod.uid):
                users = [*claim.reserved_for, user]
                if not await self._patch_status(claim, {"reservedFor": users}):
                    return False
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        target = {"apiVersion": "v1", "kind": "Node", "name": machine.spec.name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        return await self._cluster.write("POST", f"{pod.path}/binding", binding)

    def _place(self, pod: SimulatedPod) -> bool:
        wants = self._wants(pod)
        if wants is None:
            return False
        nodes = [machine.capacity for machine in self._cluster.machines.values() if machine.up]
        node = None if pod.gated else place(wants, nodes)
        if node is not None:
            del self._waiting[pod.uid]
            self._admit(pod, self._cluster.machines[node.name])
            return True
        why = GATED if pod.gated else why_not(wants, nodes)
        elsewhere = [] if pod.gated else self._allocated_elsewhere(pod, wants, nodes)
        if elsewhere or why != pod.unschedulable:
            pod.unschedulable = why
            self._cluster.tasks.create_task(self._refuse(pod, why, elsewhere))
        return False

    def _wants(self, pod: SimulatedPod) -> Wants | None:
        """Return what a Pod requests of a node; None while a claim is missing or being deleted."""
        if not pod.claim_names:
            return pod.wants
        claims = self._cluster.claims.of(pod)
        if not self._cluster.claims.complete(pod) or any(claim.deleted for claim in claims):
            return None
        if not all(claim.allocated for claim in claims):
            return replace(pod.wants, unallocated=True)
        return replace(pod.wants, allocated_on=[_rules(claim) for claim in claims])

    def _allocated_elsewhere(
        self, pod: SimulatedPod, wants: Wants, nodes: list[NodeCapacity]
    ) -> list[SimulatedClaim]:
        """Return the claims without whose allocation another node could run the Pod."""
        return [
            claim
            for claim in self._cluster.claims.of(pod)
            if claim.allocated
            and all(user["uid"] == pod.uid for user in claim.reserved_for)
            and wants_other_node(replace(wants, allocated_on=[_rules(claim)]), nodes)
        ]

    async def _refuse(self, pod: SimulatedPod, why: str, elsewhere: list[SimulatedClaim]) -> None:
        """Clear one allocation, and write why no node fits."""
        for claim in elsewhere[:1]:
            log.info("allocation cleared", claim=claim.name, pod=pod.name, why=why)
            await self._patch_status(
                claim, {"reservedFor": None, "allocation": None, "devices": None}
            )
        await self._cluster.write("PATCH", f"{pod.path}/status", unschedulable(pod, why))

    async def _patch_status(self, claim: SimulatedClaim, status: Body) -> bool:
        """Change the status of this version of a claim; return whether that was accepted."""
        meta = {"uid": claim.uid, "resourceVersion": claim.version}
        patch = {"metadata": meta, "status": status}
        path = CLAIMS.path(claim.name, claim.namespace, "status")
        try:
            body = await self._cluster.api.call("PATCH", path, patch)
        except KubernetesError as error:
            log.info("claim not changed", claim=claim.name, error=str(error))
            return False
        self._cluster.claims.written(body)
        return True


def _rules(claim: SimulatedClaim) -> NodeRules:
    """Return the node selector of an allocation as that of a Pod."""
    if not claim.nodes:
        return NodeRules()
    terms = {REQUIRED: {"nodeSelectorTerms": claim.nodes}}
    return NodeRules.read({"affinity": {"nodeAffinity": terms}})
