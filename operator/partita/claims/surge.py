"""Explains a rollout that waits: its new Pod needs the slice that an old Pod has until then.

By default a Deployment starts a new Pod before it ends an old one
(https://kubernetes.io/docs/concepts/workloads/controllers/deployment/, "Max Surge"). Without room
for both the rollout never ends by itself.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from partita.models import Allocation
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita.store.views import PodView

__all__ = ["Holder", "explain_surge", "holders"]

Holder: TypeAlias = tuple[PodView, Mapping[str, Allocation]]
"""A Pod with its allocations by GPUServer."""

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


def holders(pods: Iterable[Holder]) -> dict[str, Holder]:
    """Return the first Pod by name of each revision that has an allocation and is not ending."""
    holding = (each for each in pods if each[1] and each[0].alive and not each[0].deleting)
    ordered = sorted(holding, key=lambda each: each[0].name, reverse=True)
    return {each[0].workload.revision: each for each in ordered}


def explain_surge(
    why: WaitingReason, pod: PodView, held: Callable[[], Mapping[str, Holder]]
) -> WaitingReason:
    """Return why a Pod waits, with what to write if it is the surge Pod of a rollout.

    Parameters
    ----------
    why
        Why it waits, without the rollout.
    pod
        The waiting Pod.
    held
        Called for the holders among the Pods of its controller, if it is a Deployment's.
    """
    workload = pod.workload
    if why.reason not in _LACKS_ROOM or not workload.revision:
        return why
    if not workload.controller.startswith(_DEPLOYMENT):
        return why
    name = workload.controller.removeprefix(_DEPLOYMENT)
    replaced = [each for revision, each in held().items() if revision != workload.revision]
    if not replaced:
        return why
    old, allocated = min(replaced, key=lambda each: each[0].name)
    memory = next(iter(allocated.values())).memory
    return WaitingReason(
        Reason.NO_ROOM_FOR_SURGE,
        f"the rollout of Deployment {name} starts this Pod before Pod {old.name} ends, which has "
        f"{gib(memory)} on {', '.join(allocated)}, and there is no room for both: write "
        "maxSurge: 0 and maxUnavailable: 1 in strategy.rollingUpdate; " + why.message,
    )
