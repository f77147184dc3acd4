"""The outcome of a job's Pod, read from its status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from partita.constants import CONTROL_CODES
from partita.models import Outcome
from partita.pods.container_ends import ContainerEnd, container_ends, container_states
from partita.pods.memory_errors import (
    is_gpu_out_of_memory,
    is_mps_client_terminated,
    names_cuda_error,
    names_mps_error,
    over_budget,
    refused_memory,
)
from partita.pods.pod_status import condition, read_time

__all__ = ["MAX_MESSAGE", "POD_DELETED", "PodOutcome", "read_outcome"]

MAX_MESSAGE: Final = 2048
"""Number of characters kept from the end of a message. kubelet keeps the same number of bytes of a
log."""

_MAX_REASON: Final = 256
"""Maximum length of a reason in a job's status. Reasons of Kubernetes are single words."""

POD_DELETED: Final = "the Pod was deleted"

_LOST: Final = frozenset({"NodeLost", "Shutdown", "NodeShutdown", "Terminated"})
"""`status.reason` of a Pod whose node was unreachable or shut down gracefully (`Terminated`,
before 1.22 `Shutdown`):
https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/."""
_LOST_DISRUPTIONS: Final = frozenset({"DeletionByPodGC"})
"""Reasons of the condition DisruptionTarget if the node no longer exists. With all other reasons
(preemption, taint, API, kubelet) the Pod was evicted:
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions."""
_EVICTED: Final = frozenset({"Evicted", "Preempting"})
"""Evicted by kubelet because the node lacked a resource or to admit a critical Pod:
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/."""
_REJECTED: Final = frozenset({"UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError"})
"""Reasons of a Pod that kubelet rejected because the node's devices or resources had changed since
the Pod was scheduled. The `OutOf<resource>` reasons are similar (pkg/kubelet/lifecycle)."""

_HOST_MEMORY_HINT: Final = (
    "over its memory limit (the node's memory, not the GPU's): raise resources.limits.memory"
)


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """The state of a Pod, and its outcome if it has finished."""

    finished: bool = False
    """Whether the Pod has finished."""
    outcome: Outcome | None = None
    """The outcome; None if the Pod has not finished."""
    exit_code: int | None = None
    """Exit code of the container that determines the outcome; None if no program ended."""
    message: str = ""
    """The program's last output or a message of Kubernetes, with a remedy if one is known."""
    reason: str = ""
    """Why kubelet evicted or rejected the Pod, such as `OutOfcpu`; empty otherwise."""
    ended_from_outside: bool = False
    """Whether it failed like a program that the agent ended because it exceeded its allocation."""
    gpu_error: bool = False
    """Whether it failed with a CUDA error."""
    mps_terminated: bool = False
    """Whether it failed because MPS terminated its GPU work."""
    mps_error: bool = False
    """Whether it failed with one of CUDA's MPS errors."""
    refused_memory: int = 0
    """Size of the failed GPU memory allocation that it reports (bytes); 0 if unknown."""
    over_budget: str = ""
    """Which framework failed at its start because it asked for more memory than it may use; empty
    if none."""
    started_at: datetime | None = None
    """When its first main container started, or its first init container if no main one has."""
    finished_at: datetime | None = None
    """When its last container ended; never before `started_at`."""
    rejected_at: datetime | None = None
    """When kubelet rejected it before any of its containers started; None if it did not."""
    running: bool = False
    """Whether a main container is running."""

    def removed(self) -> Self:
        """Return the outcome after the Pod was deleted."""
        if self.finished:
            return self
        return replace(
            self,
            finished=True,
            outcome=Outcome.POD_DELETED,
            message=POD_DELETED,
            running=False,
        )


def read_outcome(status: Mapping[str, Any]) -> PodOutcome:
    """Read the status of a job's Pod.

    Parameters
    ----------
    status
        `status` of the Pod as the API server returns it; empty for a new Pod.

    Notes
    -----
    Only the Pod's phase determines whether it has finished. The cause is then the first container
    that failed. An attempt ran out of GPU memory if any failed container reports it. A container
    that was killed for exceeding its limit of node memory (`OOMKilled`) does not count.
    """
    main = list(container_ends(status.get("containerStatuses")))
    ends = main or list(container_ends(status.get("initContainerStatuses")))
    started = _first(_starts(status.get("containerStatuses"))) or _first(
        _starts(status.get("initContainerStatuses"))
    )
    phase = status.get("phase")
    if phase not in {"Succeeded", "Failed"}:
        running = any(c.get("running") for c in container_states(status.get("containerStatuses")))
        return PodOutcome(started_at=started, running=running)
    finished = max((e.finished_at for e in ends if e.finished_at), default=None)
    if started and finished:
        finished = max(started, finished)
    outcome, exit_code, message = (
        (Outcome.SUCCEEDED, 0, "") if phase == "Succeeded" else _failure(status, main)
    )
    failed = [e for e in ends if e.exit_code] if outcome is Outcome.FAILED else []
    evicted = _is_kubelet_eviction(status)
    return PodOutcome(
        finished=True,
        outcome=outcome,
        exit_code=exit_code,
        message=_shown(message)[-MAX_MESSAGE:],
        reason=str(status["reason"])[:_MAX_REASON] if evicted else "",
        ended_from_outside=any(end.from_outside for end in failed),
        gpu_error=any(names_cuda_error(end.message) for end in failed),
        mps_terminated=any(is_mps_client_terminated(end.message) for end in failed),
        mps_error=any(names_mps_error(end.message) for end in failed),
        refused_memory=refused_memory(message) if outcome is Outcome.OUT_OF_MEMORY else 0,
        over_budget=over_budget(message),
        started_at=started,
        finished_at=finished,
        # kubelet's status manager sets the time when it first reports a status.
        rejected_at=read_time(status.get("startTime")) if evicted and not started else None,
    )


def _failure(
    status: Mapping[str, Any], main: list[ContainerEnd]
) -> tuple[Outcome, int | None, str]:
    failed = [e for e in main if e.exit_code] or [
        e for e in container_ends(status.get("initContainerStatuses")) if e.exit_code
    ]
    failed.sort(key=lambda e: e.finished_at or datetime.max.replace(tzinfo=UTC))
    code = failed[0].exit_code if failed else None
    if (taken := _ended_by_kubernetes(status, failed)) is not None:
        outcome, message = taken
        return outcome, code, message
    for end in failed:
        if end.reason != "OOMKilled" and is_gpu_out_of_memory(end.message):
            return Outcome.OUT_OF_MEMORY, end.exit_code, _last_output(end, len(failed))
    if failed:
        return Outcome.FAILED, code, _last_output(failed[0], len(failed))
    return Outcome.FAILED, code, _kubernetes_message(status)


def _shown(text: str) -> str:
    """Remove control codes, which a terminal would execute."""
    return text.translate(CONTROL_CODES)


def _ended_by_kubernetes(
    status: Mapping[str, Any], failed: list[ContainerEnd]
) -> tuple[Outcome, str] | None:
    """Return the outcome and message if Kubernetes ended the Pod, not its program."""
    reason = str(status.get("reason") or "")
    if reason in _LOST:
        return Outcome.NODE_LOST, _kubernetes_message(status)
    if reason == "DeadlineExceeded":
        # kubelet ended the Pod because of the template's activeDeadlineSeconds.
        return Outcome.DEADLINE_EXCEEDED, _kubernetes_message(status)
    if _is_kubelet_eviction(status):
        return Outcome.EVICTED, _kubernetes_message(status)
    disruption = condition(status, "DisruptionTarget")
    if disruption.get("status") == "True":
        why = f"{disruption.get('reason') or 'Disrupted'}: {disruption.get('message') or ''}"
        lost = disruption.get("reason") in _LOST_DISRUPTIONS
        return (Outcome.NODE_LOST if lost else Outcome.EVICTED), why.rstrip(": ")
    if failed and all(e.reason == "ContainerStatusUnknown" for e in failed):
        # kubelet no longer found the Pod's containers, for example after a restart of the node.
        return Outcome.NODE_LOST, _last_output(failed[0], len(failed))
    return None


def _is_kubelet_eviction(status: Mapping[str, Any]) -> bool:
    reason = str(status.get("reason") or "")
    return reason in _EVICTED | _REJECTED or reason.startswith("OutOf")


def _last_output(end: ContainerEnd, count: int) -> str:
    if end.reason == "OOMKilled":
        text = f"the container {end.container} was killed for going {_HOST_MEMORY_HINT}"
        return f"{text}\n{end.message}".strip()
    text = end.message.strip() or f"{end.reason or 'Error'}, exit code {end.exit_code}"
    return f"{end.container}: {text[-MAX_MESSAGE + 80 :]}" if count > 1 else text


def _kubernetes_message(status: Mapping[str, Any]) -> str:
    parts = (status.get("reason"), status.get("message"))
    return ": ".join(str(p) for p in parts if p) or "the Pod failed without saying why"


def _starts(statuses: list[dict[str, Any]] | None) -> Iterator[datetime | None]:
    for state in container_states(statuses):
        current = state.get("running") or state.get("terminated") or {}
        yield read_time(current.get("startedAt"))


def _first(times: Iterator[datetime | None]) -> datetime | None:
    return min((t for t in times if t), default=None)
