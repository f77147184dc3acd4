"""Nodes on which kubelet has rejected Pods, for the next Pods of the same controller.

A controller replaces a rejected Pod at once, by a Pod with a claim of its own. Without this the new
claim would get the same GPU, on whose node kubelet would reject the Pod again, for example because
CPUs and GPU are at different NUMA nodes (`TopologyAffinityError`). After a restart of the operator
the nodes are those of the rejected Pods that still exist.
"""

from datetime import datetime

from partita.pause import Pause
from partita.scheduling.avoided_nodes import AVOIDED_FOR
from partita.store.views import PodView

__all__ = ["RejectingNodes"]


class RejectingNodes:
    """Which nodes rejected the Pods of which controllers, and when these avoid them."""

    def __init__(self) -> None:
        self._avoided: dict[str, dict[str, tuple[Pause, str]]] = {}

    def note(self, pod: PodView) -> None:
        """Record that kubelet rejected a Pod, if it did."""
        time, key = pod.outcome.rejected_at, _controller(pod)
        if time is not None and key and pod.node:
            said = f"kubelet rejected Pod {pod.name} with {pod.outcome.reason}"
            # Of controllers whose Pods are gone nobody asks again.
            self._avoided = {
                controller: nodes
                for controller, nodes in self._avoided.items()
                if any(until > time for (_, until), _ in nodes.values())
            }
            self._avoided.setdefault(key, {})[pod.node] = Pause.around(time, AVOIDED_FOR), said

    def of(self, pod: PodView, now: datetime) -> dict[str, tuple[Pause, str]]:
        """Return the nodes that a Pod avoids, each with that time and the reason."""
        key = _controller(pod)
        left = {node: it for node, it in self._avoided.pop(key, {}).items() if it[0].holds(now)}
        if left:
            self._avoided[key] = left
        return left


def _controller(pod: PodView) -> str:
    if not pod.workload.controller:
        return ""  # no other Pod follows it
    return f"{pod.namespace}/{pod.workload.application}"
