"""What a user can change about a workload that waits, does not start, or does not use its slice."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from partita.claims.workload_view import WorkloadView
from partita.models.quantities import gib, mebibytes, seconds_since
from partita.scheduling.memory_request import HISTORY_MARGIN_PERCENT, with_margin
from partita.scheduling.reasons import Reason, stalled
from partita_policies.types import Profile

__all__ = ["advice_for", "memory_needed"]

_SOONER: Final = (
    "it starts when enough is released; to start it sooner, ask for less, give its Pod a "
    "priorityClassName, or add a GPU to the partition (spec.gpus)"
)
_ADVICE: Final[dict[str, str]] = {
    Reason.INSUFFICIENT_MEMORY: _SOONER,
    Reason.TOO_MANY_JOBS: _SOONER,
    Reason.TOO_MANY_CLIENTS: _SOONER,
    Reason.GPU_NOT_IDLE: (
        "it needs a GPU alone; if it asks for no memory, write capacity.requests.memory in its "
        "claim template, and it can share a GPU"
    ),
    Reason.INSUFFICIENT_NODE: (
        "lower the CPU or memory requests of its containers, or wait until others release them"
    ),
    Reason.OTHER_PRODUCT: "use the partition that has these GPUs, or remove the requirement",
    Reason.NODE_NOT_ELIGIBLE: (
        "check node selector, node affinity and tolerations of its Pod, and the state of the nodes"
    ),
    Reason.QUOTA_EXCEEDED: (
        "end other workloads or jobs of the namespace, or have an administrator raise its quota in "
        "spec.quotas of the partition"
    ),
    Reason.SERVICES_LIMIT: (
        "services together get at most spec.services.percent of the partition: scale another "
        "service down, or, if this one ends by itself, write annotation partita.dev/"
        "expected-duration"
    ),
    Reason.BEHIND_SERVICES: "ask for less, scale a service down, or add a GPU to the partition",
    Reason.NO_ROOM_FOR_SURGE: (
        "write maxSurge: 0 and maxUnavailable: 1 in strategy.rollingUpdate of its Deployment"
    ),
    Reason.NO_GPU_READY: "have an administrator look at `kubectl get gpuservers`",
    Reason.GPU_HELD: "nothing: a GPU is held for it, or for what has waited longer",
    Reason.POLICY_WAITS: "nothing, or have an administrator choose another policy (spec.policy)",
    Reason.SCHEDULING: "nothing: it has just been queued",
    "SchedulingGated": "admit it in the system that owns the gate, such as Kueue",
    "Unschedulable": (
        "the message is that of kube-scheduler: check CPU and memory requests, node selector, "
        "taints and PersistentVolumeClaims of its Pod"
    ),
    "ImagePullBackOff": "check the image name, the registry and imagePullSecrets",
    "ErrImagePull": "check the image name, the registry and imagePullSecrets",
    "CreateContainerConfigError": "check the ConfigMaps and Secrets that its containers name",
}
"""By reason. The messages of reasons that only a change of YAML removes say what to write."""

IDLE_FOR: Final = 600.0
"""Seconds without a kernel after which advice is given. An assumption: pauses are shorter."""
_MOSTLY_UNUSED: Final = 0.5
"""Most of its memory that a workload uses if it is advised to ask for less. An assumption."""
_MEASURED_FOR: Final = 3600.0
"""Seconds after the allocation from which the peak is compared with it. An assumption: most
programs have reached their peak by then."""


def advice_for(view: WorkloadView, now: datetime) -> str:
    """Return what to change about a workload; empty if nothing."""
    place = view.place
    if place is None or view.phase == "Assigned":
        return "" if stalled(view.reason) else _ADVICE.get(view.reason, "")
    if place.idle_since is not None and seconds_since(place.idle_since, now) >= IDLE_FOR:
        return "no kernel runs: scale it to zero or delete it, if nobody needs it"
    ran = seconds_since(place.since, now)
    peak, memory = place.peak, view.memory
    if view.slice or not peak or not memory or ran < _MEASURED_FOR:
        return ""
    if peak < memory * _MOSTLY_UNUSED:
        less = mebibytes(with_margin(peak))
        return f"it has used at most {gib(peak)} of {gib(memory)}: ask for less, such as {less}"
    return ""


def memory_needed(
    view: WorkloadView, profile: Profile | None, peak: int | None, refused: Iterable[int]
) -> str:
    """Return how much GPU memory a job or workload needs, as one sentence.

    Parameters
    ----------
    profile
        The history of its application.
    peak
        The most that it has used itself, in bytes; None if that was not measured.
    refused
        Amounts with which it, or its application, ran out of memory.
    """
    learnt = profile.peak_memory if profile is not None else 0
    known, most_refused = max(learnt, peak or 0), max(refused, default=0)
    enough = with_margin(known)
    if most_refused and enough <= most_refused:
        said, has = f"more than {gib(most_refused)}, with which it ran out of it", view.memory or 0
        now = f"; it {'gets' if view.waits else 'has'} {gib(has)}" if has > most_refused else ""
        return f"{said}{now}"
    if known:
        runs = f" in {profile.runs} runs" if profile is not None and profile.runs > 1 else ""
        so_far = " so far" if profile is None and not view.ended else ""
        return (
            f"{mebibytes(enough)} ({gib(enough)}): at most {gib(known)} used{runs}{so_far}, and "
            f"{HISTORY_MARGIN_PERCENT} % more because runs differ"
        )
    if not view.application:
        return "not known: name an application, so that what its runs use is kept"
    return f"not known yet: no run of application {view.application} was measured"
