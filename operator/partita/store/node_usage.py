"""The sum of the requests of all Pods on each node, updated with each Pod event."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from partita.pods.requests import NOTHING, Requests, effective_requests, requests_of

__all__ = ["NodeUsage"]

_OVER = frozenset({"Succeeded", "Failed"})


class _Used(NamedTuple):
    """Record of one Pod."""

    version: int
    node: str
    """Empty as long as the Pod counts on no node."""
    requests: Requests
    """Zero once the Pod has finished."""


class NodeUsage:
    """The requests of all Pods that are bound to a node and have not finished, by node.

    Pods are counted like in kube-scheduler: a Pod that is being deleted counts until it is gone,
    and a Pod for which others are preempted counts on its nominated node before it is bound
    (https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/). A nominated
    Pod with claims does not: it counts with its allocation (`partita.scheduling.node_resources`).
    There is one record per Pod, and the total of a node is always the sum of the records of its
    Pods. So a repeated event changes nothing.

    Parameters
    ----------
    on_freed
        Called with the name of a node on which a Pod requests less than before.
    """

    def __init__(self, on_freed: Callable[[str], None]) -> None:
        self._on_freed = on_freed
        self._pods: dict[str, _Used] = {}
        self._nodes: dict[str, Requests] = {}

    def on(self, node: str) -> Requests:
        """Return the sum of the requests of the Pods on a node."""
        return self._nodes.get(node, NOTHING)

    def of(self, uid: str) -> Requests:
        """Return the requests of a Pod; zero if it has finished or is unknown."""
        used = self._pods.get(uid)
        return used.requests if used else NOTHING

    def take(self, body: dict[str, Any], *, deleted: bool = False) -> None:
        """Apply a version of a Pod, or its deletion."""
        if deleted:
            self._replace(self._pods.pop(body["metadata"]["uid"], None), None)
        else:
            self._apply(body)

    def forget_missing(self, uids: Collection[str], version: int) -> int:
        """Remove Pods that are missing in a list and not newer than it; return their number."""
        gone = [u for u, used in self._pods.items() if u not in uids and used.version <= version]
        for uid in gone:
            self._replace(self._pods.pop(uid), None)
        return len(gone)

    def _apply(self, body: dict[str, Any]) -> None:
        meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
        uid, version = meta["uid"], int(meta["resourceVersion"])
        old = self._pods.get(uid)
        if old is not None and old.version >= version:
            return
        over = status.get("phase") in _OVER
        requests = NOTHING if over else requests_of(effective_requests(spec, status))
        if old is not None and old.requests == requests:
            requests = old.requests  # shares one object in memory
        new = self._pods[uid] = _Used(version, _node_of(spec, status), requests)
        self._replace(old, new)

    def _replace(self, old: _Used | None, new: _Used | None) -> None:
        if old is not None and new is not None and old[1:] == new[1:]:
            return
        for used, sign in ((old, -1), (new, 1)):
            if used is not None and used.node and used.requests != NOTHING:
                total = zip(self._nodes.get(used.node, NOTHING), used.requests, strict=True)
                self._nodes[used.node] = Requests(*(sum_ + sign * each for sum_, each in total))
                if self._nodes[used.node] == NOTHING:
                    del self._nodes[used.node]
        if old is None or not old.node:
            return
        after = new.requests if new is not None and new.node == old.node else NOTHING
        if any(now < before for now, before in zip(after, old.requests, strict=True)):
            self._on_freed(old.node)


def _node_of(spec: dict[str, Any], status: dict[str, Any]) -> str:
    """Return the node on which a Pod counts; empty for none."""
    nominated = "" if spec.get("resourceClaims") else status.get("nominatedNodeName")
    return spec.get("nodeName") or nominated or ""
