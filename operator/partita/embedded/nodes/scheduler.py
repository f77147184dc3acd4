"""Which node has room for a Pod: the part of kube-scheduler that GPU Pods need, without I/O.

Looked at: extended resources, `nodeSelector`, required node affinity, taints and tolerations,
cordoning. Not looked at: CPU and main memory, of which a simulated node has plenty, and
everything about other Pods (affinity, spreading, preemption).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Cluster", "SchedulableNode", "Unschedulable", "Wants"]

_LIFECYCLE_TAINTS: Final = frozenset({"node.kubernetes.io/not-ready"})
"""Put on new Nodes by the API server and taken off by the node controller; without a controller
(an API server by itself) it would stay for ever, and these nodes are ready when they say so."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What a Pod asks of a node: numbers of extended resources, and its rules, as in its spec."""

    resources: Mapping[str, int] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Sequence[Mapping[str, Any]] = ()
    """Terms of which one must hold: `requiredDuringSchedulingIgnoredDuringExecution`."""


@dataclass(slots=True)
class SchedulableNode:
    """What of a node decides about Pods."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()
    cordoned: bool = False
    allocatable: dict[str, int] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)

    def free(self, resource: str) -> int:
        """Tell how many of a resource are left."""
        return self.allocatable.get(resource, 0) - self.used[resource]


class Unschedulable(Exception):  # noqa: N818 - an answer rather than an error
    """No node can take the Pod; the text says what is in the way, as kube-scheduler's does."""


class Cluster:
    """The nodes, and which Pod holds what on which of them."""

    def __init__(self) -> None:
        self.nodes: dict[str, SchedulableNode] = {}
        self._held: dict[str, tuple[str, Wants]] = {}
        self._offers: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, node: SchedulableNode) -> None:
        """Add a node, without resources."""
        self.nodes[node.name] = node

    def remove(self, name: str) -> None:
        """Remove a node and forget what Pods held on it."""
        node = self.nodes.pop(name, None)
        if node is not None:
            for resource in node.allocatable:
                self._offers[resource].discard(name)
            self._held = {uid: held for uid, held in self._held.items() if held[0] != name}

    def offer(self, name: str, resource: str, count: int) -> None:
        """Set how many of a resource a node has; 0 when it has it no more."""
        node = self.nodes[name]
        if count:
            node.allocatable[resource] = count
            self._offers[resource].add(name)
        else:
            node.allocatable.pop(resource, None)
            self._offers[resource].discard(name)

    def place(self, uid: str, wants: Wants) -> str:
        """Choose the node with the most left of what the Pod wants, and hold it there.

        Raises
        ------
        Unschedulable
            If there is none.
        """
        fitting = [node for node in self._candidates(wants) if not _obstacle(node, wants)]
        if not fitting:
            raise Unschedulable(self._explain(wants))
        best = min(fitting, key=lambda n: (-sum(map(n.free, wants.resources)), n.name))
        self.hold(uid, wants, best.name)
        return best.name

    def hold(self, uid: str, wants: Wants, name: str) -> None:
        """Hold a Pod's resources on a node, whether or not there is room."""
        if uid not in self._held:
            self._held[uid] = (name, wants)
            self.nodes[name].used.update(wants.resources)

    def release(self, uid: str) -> Iterable[str]:
        """Give back what a Pod holds; returns the resources of which there is more now."""
        name, wants = self._held.pop(uid, ("", Wants()))
        if name:
            self.nodes[name].used.subtract(wants.resources)
        return wants.resources

    def available(self, resource: str) -> bool:
        """Tell whether any node has some of a resource left."""
        return any(self.nodes[name].free(resource) > 0 for name in self._offers[resource])

    def _candidates(self, wants: Wants) -> list[SchedulableNode]:
        # A slice's resource is offered by one node only: most Pods look at one node.
        offers = [self._offers[resource] for resource in wants.resources]
        names = min(offers, key=len) if offers else self.nodes.keys()
        return [self.nodes[name] for name in names]

    def _explain(self, wants: Wants) -> str:
        reasons = Counter(_obstacle(node, wants) for node in self.nodes.values())
        what = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        return f"0/{len(self.nodes)} nodes are available: {what or 'there is no node'}."


def _obstacle(node: SchedulableNode, wants: Wants) -> str:
    """Name the first thing that keeps a Pod off a node; empty when nothing does."""
    if node.cordoned and not _tolerated(_CORDON, wants.tolerations):
        return "node(s) were unschedulable"
    for taint in node.taints:
        matters = taint.get("effect") in {"NoSchedule", "NoExecute"}
        if matters and taint["key"] not in _LIFECYCLE_TAINTS | {_CORDON["key"]}:
            if _tolerated(taint, wants.tolerations):
                continue
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    matches = all(node.labels.get(k) == v for k, v in wants.node_selector.items())
    terms = wants.affinity
    if not matches or (terms and not any(_term_holds(t, node.labels) for t in terms)):
        return "node(s) didn't match Pod's node affinity/selector"
    lacking = [name for name, count in wants.resources.items() if node.free(name) < count]
    return f"Insufficient {lacking[0]}" if lacking else ""


_CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        t.get("key") in (taint["key"], None)
        and t.get("effect") in (taint.get("effect"), None, "")
        and (t.get("operator") == "Exists" or t.get("value", "") == taint.get("value", ""))
        for t in tolerations
    )


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and int(value) < int(values[0]),
}


def _term_holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return all(
        _OPERATORS[e["operator"]](labels.get(e["key"]), e.get("values") or ())
        for e in term.get("matchExpressions") or ()
    )
