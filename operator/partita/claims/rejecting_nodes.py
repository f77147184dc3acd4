"""Nodes on which kubelet has rejected Pods, for the next Pods of the same controller.

A controller replaces a rejected Pod at once, by a Pod with a claim of its own. Without this the new
claim would get the same GPU, on whose node kubelet would reject the Pod again, for example because
CPUs and GPU are at different NUMA nodes (`TopologyAffinityError`). After a restart of the operator
the nodes are those of the rejected Pods that still exist.
"""

from datetime import datetime

from partita.models.quantities import later
from partita.scheduling.avoided_nodes import AVOIDED_FOR
from partita.store.views import PodView

__all__ = ["RejectingNodes"]


class RejectingNodes:
    """Which nodes rejected the Pods of which controllers, and until when these avoid them."""

    def __init__(self) -> None:
        self._until: dict[str, dict[str, tuple[datetime, str]]] = {}

    def note(self, pod: PodView) -> None:
        """Record that kubelet rejected a Pod, if it did."""
        time, key = pod.outcome.rejected_at, _controller(pod)
        if time is not None and key and pod.node:
            said = f"kubelet rejected Pod {pod.name} with {pod.outcome.reason}"
            until = later(time, AVOIDED_FOR.total_seconds())
            # Of controllers whose Pods are gone nobody asks again.
            self._until = {k: v for k, v in self._until.items() if max(v.values())[0] > time}
            self._until.setdefault(key, {})[pod.node] = until, said

    def of(self, pod: PodView, now: datetime) -> dict[str, tuple[datetime, str]]:
        """Return the nodes that a Pod avoids, each with the end of that time and the reason."""
        key = _controller(pod)
        left = {node: it for node, it in self._until.pop(key, {}).items() if it[0] > now}
        if left:
            self._until[key] = left
        return left


def _controller(pod: PodView) -> str:
    if not pod.workload.controller:
        return ""  # no other Pod follows it
    return f"{pod.namespace}/{pod.workload.application}"
