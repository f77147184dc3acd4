"""Explains a rollout that waits: its new Pod needs the slice that an old Pod has until then.

By default a Deployment starts a new Pod before it ends an old one
(https://kubernetes.io/docs/concepts/workloads/controllers/deployment/, "Max Surge"). Without room
for both the rollout never ends by itself.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from partita.models import Allocation
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita.store.views import PodView

__all__ = ["explain_surge"]

_DEPLOYMENT: Final = "Deployment/"
_LACKS_ROOM: Final = frozenset(
    {
        Reason.INSUFFICIENT_MEMORY,
        Reason.TOO_MANY_JOBS,
        Reason.TOO_MANY_CLIENTS,
        Reason.GPU_NOT_IDLE,
        Reason.INSUFFICIENT_NODE,
        Reason.QUOTA_EXCEEDED,
        Reason.SERVICES_LIMIT,
    }
)


def explain_surge(
    why: WaitingReason, pod: PodView, beside: Iterable[tuple[PodView, Mapping[str, Allocation]]]
) -> WaitingReason:
    """Return why a Pod waits, with what to write if it is the surge Pod of a rollout.

    Parameters
    ----------
    why
        Why it waits, without the rollout.
    pod
        The waiting Pod.
    beside
        The other Pods of its controller, each with its allocations by GPUServer.
    """
    workload = pod.workload
    if why.reason not in _LACKS_ROOM or not workload.revision:
        return why
    if not workload.controller.startswith(_DEPLOYMENT):
        return why
    name = workload.controller.removeprefix(_DEPLOYMENT)
    for old, allocated in sorted(beside, key=lambda each: each[0].name):
        replaced = old.workload.revision != workload.revision
        if replaced and old.alive and not old.deleting and allocated:
            entry = next(iter(allocated.values()))
            return WaitingReason(
                Reason.NO_ROOM_FOR_SURGE,
                f"the rollout of Deployment {name} starts this Pod before Pod {old.name} ends, "
                f"which has {gib(entry.memory)} on {', '.join(allocated)}, and there is no room "
                "for both: write maxSurge: 0 and maxUnavailable: 1 in strategy.rollingUpdate; "
                f"{why.message}",
            )
    return why
