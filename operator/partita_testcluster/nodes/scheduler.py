"""Where a Pod fits: the part of kube-scheduler that GPU Pods need, without I/O.

Considered are CPU, memory, ephemeral storage and GPUs, `nodeSelector`, required node affinity,
taints and tolerations, and cordoning. No node has the Pods that a required Pod affinity asks for.
Not considered is everything else about other Pods (anti-affinity, spreading, preemption).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["COMMON", "CORDON", "NodeCapacity", "Wants", "place", "why_not"]

CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""What cordoning a node means to Pods."""
_NEW: Final = "node.kubernetes.io/not-ready"
"""Put on new Nodes by the API server and taken off by the node controller; without a controller
(an API server by itself) it would stay, and these nodes are ready when they report so."""


COMMON: Final = ("cpu", "memory", "ephemeral-storage")
"""What every node has, and every Pod may ask for."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What a Pod asks of a node: amounts of resources (of CPUs thousandths), and its rules."""

    resources: Mapping[str, int] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Sequence[Mapping[str, Any]] = ()
    """Terms of which one must hold: `requiredDuringSchedulingIgnoredDuringExecution`."""
    pod_affinity: bool = False
    """It must run beside other Pods: a required Pod affinity."""

    @property
    def devices(self) -> dict[str, int]:
        """Numbers of GPUs and slices; a Pod that wants none is not simulated."""
        return {name: count for name, count in self.resources.items() if name not in COMMON}


@dataclass(slots=True)
class NodeCapacity:
    """The properties of a node that scheduling depends on."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()
    capacity: dict[str, int] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)

    def free(self, resource: str) -> int:
        """Return how many of a resource are left."""
        return self.capacity.get(resource, 0) - self.used[resource]

    def takes(self, wants: Wants) -> bool:
        """Tell whether a Pod may run here now."""
        return not self.refuses(wants)

    def refuses(self, wants: Wants) -> str:
        """Return kube-scheduler's reason why a Pod cannot run here now; empty where it can."""
        for taint in self.taints:
            if not _tolerated(taint, wants.tolerations):
                if taint["key"] == CORDON["key"]:
                    return "node(s) were unschedulable"
                return f"node(s) had untolerated taint(s) {{{taint['key']}}}"
        if not all(self.labels.get(k) == v for k, v in wants.node_selector.items()) or (
            wants.affinity and not any(_holds(t, self.labels) for t in wants.affinity)
        ):
            return "node(s) didn't match Pod's node affinity/selector"
        if wants.pod_affinity:
            return "node(s) didn't match pod affinity rules"
        lacking = (name for name, count in wants.resources.items() if self.free(name) < count)
        return next((f"Insufficient {name}" for name in lacking), "")


def place(wants: Wants, nodes: Iterable[NodeCapacity]) -> NodeCapacity | None:
    """Choose the node with the most devices left that a Pod wants; None when none takes it."""
    fitting = [node for node in nodes if node.takes(wants)]
    return min(fitting, key=lambda r: (-sum(map(r.free, wants.devices)), r.name), default=None)


def why_not(wants: Wants, nodes: Iterable[NodeCapacity]) -> str:
    """Return why no node takes a Pod, as in the message of the condition PodScheduled."""
    reasons = Counter(node.refuses(wants) for node in nodes)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{reasons.total()} nodes are available: {listed}."


def _tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return (
        taint["key"] == _NEW
        or taint["effect"] == "PreferNoSchedule"
        or any(
            t.get("key") in (taint["key"], None)
            and t.get("effect") in (taint["effect"], None, "")
            and (t.get("operator") == "Exists" or t.get("value", "") == taint.get("value", ""))
            for t in tolerations
        )
    )


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and int(value) < int(values[0]),
}


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return all(
        _OPERATORS[e["operator"]](labels.get(e["key"]), e.get("values") or ())
        for e in term.get("matchExpressions") or ()
    )
