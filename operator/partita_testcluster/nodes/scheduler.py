"""Placement of Pods: the part of kube-scheduler that GPU Pods need, without I/O.

It considers CPU, memory, ephemeral storage and GPUs, `nodeSelector`, required node affinity,
taints and tolerations, cordoning, and the allocations of ResourceClaims. It allocates no claim: the
devices of Partita have a taint. No node satisfies a required Pod affinity. Other rules that involve
other Pods (anti-affinity, spreading, preemption) are ignored.

The reasons are those of kube-scheduler, and it considers claims last as well (k8s.io/kubernetes
v1.36.3, pkg/scheduler/apis/config/v1/default_plugins.go and pkg/scheduler/framework/plugins).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from partita.pods.node_rules import NodeRules, Taint

__all__ = ["COMMON", "CORDON", "NodeCapacity", "Wants", "place", "wants_other_node", "why_not"]

CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node."""
_NEW: Final = "node.kubernetes.io/not-ready"
"""The API server adds this taint to new Nodes, and the node controller removes it. It is ignored
here, since it would remain without a controller (a standalone API server)."""
_ELSEWHERE: Final = "resourceclaim not available on the node"

COMMON: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that every node has, and that every Pod may request."""


@dataclass(frozen=True, slots=True)
class Wants:
    """Requests of a Pod to a node: amounts of resources (CPUs in thousandths), and rules."""

    resources: Mapping[str, int] = field(default_factory=dict)
    rules: NodeRules = field(default_factory=NodeRules)
    """Its node selector, required node affinity and tolerations."""
    pod_affinity: bool = False
    """Whether the Pod has a required Pod affinity."""
    allocated_on: Sequence[NodeRules] = ()
    """The node selector of each allocated claim."""
    unallocated: bool = False
    """Whether a claim has no allocation."""

    @property
    def devices(self) -> dict[str, int]:
        """Number of whole GPUs, by resource."""
        return {name: count for name, count in self.resources.items() if name not in COMMON}


@dataclass(slots=True)
class NodeCapacity:
    """The properties of a node that scheduling depends on."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    capacity: dict[str, int] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)

    def free(self, resource: str) -> int:
        """Return the free amount of a resource."""
        return self.capacity.get(resource, 0) - self.used[resource]

    def takes(self, wants: Wants) -> bool:
        """Return whether a Pod can run here now."""
        return not self.refuses(wants)

    def refuses(self, wants: Wants) -> str:
        """Return kube-scheduler's reason why a Pod cannot run here now; empty if it can."""
        for taint in wants.rules.untolerated(t for t in self.taints if t.key != _NEW):
            if taint.key == CORDON.key:
                return "node(s) were unschedulable"
            return f"node(s) had untolerated taint(s) {{{taint.key}}}"
        if self._unmet(wants.rules):
            return "node(s) didn't match Pod's node affinity/selector"
        if wants.pod_affinity:
            return "node(s) didn't match pod affinity rules"
        lacking = (name for name, count in wants.resources.items() if self.free(name) < count)
        if reason := next((f"Insufficient {name}" for name in lacking), ""):
            return reason
        if wants.unallocated:
            return "cannot allocate all claims"
        return _ELSEWHERE if any(map(self._unmet, wants.allocated_on)) else ""

    def _unmet(self, rules: NodeRules) -> bool:
        return bool(rules.unmet(self.name, self.labels))


def place(wants: Wants, nodes: Iterable[NodeCapacity]) -> NodeCapacity | None:
    """Return the fitting node with the most free devices of the requested kinds, if any."""
    fitting = [node for node in nodes if node.takes(wants)]
    return min(fitting, key=lambda r: (-sum(map(r.free, wants.devices)), r.name), default=None)


def why_not(wants: Wants, nodes: Iterable[NodeCapacity]) -> str:
    """Return why a Pod fits on no node, as in the message of the condition PodScheduled."""
    reasons = Counter(node.refuses(wants) for node in nodes)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{reasons.total()} nodes are available: {listed}."


def wants_other_node(wants: Wants, nodes: Iterable[NodeCapacity]) -> bool:
    """Return whether a node could run the Pod if its claims were not allocated on another one.

    kube-scheduler then clears such an allocation (`PostFilter` of its plugin dynamicresources).
    """
    return any(node.refuses(wants) == _ELSEWHERE for node in nodes)
