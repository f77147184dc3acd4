"""What a claim asks for: its capacity requests and the annotations of its Pod.

Slices, learnt memory, growth, node rules and priorities mean the same for claims and for jobs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from partita.constants import (
    ANNOTATION_APPLICATION,
    ANNOTATION_EXPECTED_DURATION,
    ANNOTATION_FRAMEWORK,
    ANNOTATION_MEMORY,
    ANNOTATION_MEMORY_LIMIT,
    ANNOTATION_PROCESSES,
    ANNOTATION_THREADS,
)
from partita.models import Allocation, Framework
from partita.models.device_class import ClassTarget, device_class_of
from partita.models.quantities import parse_duration, parse_gpu_memory
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita.scheduling.request import Request
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.workload_pod import WorkloadPod

__all__ = [
    "Settings",
    "application_of",
    "is_lasting",
    "priority_of",
    "request_of_claim",
    "settings_of",
]

T = TypeVar("T")

_MAX_PRIORITY: Final = 1_000_000
"""As in SharedGPUJob. The priority of a Pod may be up to 2,000,001,000 (`SystemCriticalPriority` in
pkg/apis/scheduling/types.go)."""
_MAX_PROCESSES: Final = 60
_LONGEST_APPLICATION: Final = 63


class ClaimError(ValueError):
    """A request that cannot be read. The message says what to write instead."""


def request_of_claim(
    claim: ClaimView, pod: WorkloadPod, target: ClassTarget, *, refused: int = 0
) -> Request | WaitingReason:
    """Return what a claim and its Pod ask for, or which annotation must be corrected.

    Parameters
    ----------
    target
        What its device class stands for.
    refused
        Bytes with which Pods of its application ran out of memory; 0 if none did.
    """
    notes = pod.annotations
    try:
        memory, limit, threads = _amounts(claim, notes, target)
        _read(notes, ANNOTATION_FRAMEWORK, _framework)
        return Request(
            uid=claim.uid,
            name=claim.key,
            namespace=claim.namespace,
            partition=target.partition,
            submitted=claim.created.timestamp(),
            # All containers of a claim share one slot (`partita.agent.dra.prepare`).
            needs=replace(pod.needs, slots=1),
            application=_application(pod),
            slice=target.slice,
            memory=memory,
            memory_limit=limit,
            threads=threads,
            processes=_read(notes, ANNOTATION_PROCESSES, _processes) or _users_of(claim, pod),
            gpus=claim.count,
            priority=priority_of(pod),
            duration=_read(notes, ANNOTATION_EXPECTED_DURATION, _duration),
            lasting=is_lasting(pod),
            refused=refused,
        )
    except ClaimError as error:
        return WaitingReason(Reason.INVALID_SPEC, str(error))


def _users_of(claim: ClaimView, pod: WorkloadPod) -> int:
    """Return how many containers of a Pod use a claim at the same time, at least 1.

    It is the number of processes if the Pod states none: MPS terminates the newest process above
    the number.
    """
    mine = [one.users for one in pod.claims if one.claim == claim.name or len(pod.claims) == 1]
    return max([1, *mine])


def is_lasting(pod: WorkloadPod) -> bool:
    """Return whether a Pod never ends by itself: it always restarts, and states no duration."""
    return pod.restarts_always and ANNOTATION_EXPECTED_DURATION not in pod.annotations


def application_of(pod: WorkloadPod) -> str:
    """Return the application of a Pod: its annotation, or kind and name of its controller."""
    return pod.annotations.get(ANNOTATION_APPLICATION) or pod.application


def priority_of(pod: WorkloadPod) -> int:
    """Return the priority of a Pod, in the range of those of jobs."""
    return max(-_MAX_PRIORITY, min(pod.priority, _MAX_PRIORITY))


class Settings(NamedTuple):
    """What a job or a Pod with a slice says of itself. Invalid annotations do not count."""

    priority: int = 0
    duration: float | None = None
    """Expected seconds; None if it states none."""
    framework: Framework = Framework.NONE
    """The framework whose own memory limit is also set."""


def settings_of(entry: Allocation, state: State) -> Settings:
    """Return the settings of a job or a Pod that has a claim; those by default if it is gone."""
    if (job := state.jobs.get(entry.job_uid)) is not None:
        return Settings(job.spec.priority, job.spec.expected_duration, job.spec.framework)
    if (pod := state.pods.get(entry.pod_uid)) is None:
        return Settings()
    duration = _valid(pod.workload, ANNOTATION_EXPECTED_DURATION, _duration)
    framework = _valid(pod.workload, ANNOTATION_FRAMEWORK, _framework) or Framework.NONE
    return Settings(priority_of(pod.workload), duration, framework)


def _valid(pod: WorkloadPod, name: str, parse: Callable[[str], T]) -> T | None:
    """Return the value of an annotation; None if it is not set, or invalid."""
    try:
        return _read(pod.annotations, name, parse)
    except ClaimError:
        return None


def _amounts(
    claim: ClaimView, notes: Mapping[str, str], target: ClassTarget
) -> tuple[int | None, int | None, int | None]:
    """Return memory and its limit in bytes, and percent of the threads; None if not given."""
    memory = _one(
        claim.memory, _read(notes, ANNOTATION_MEMORY, parse_gpu_memory), ANNOTATION_MEMORY, gib
    )
    threads = _one(
        claim.threads, _read(notes, ANNOTATION_THREADS, _percent), ANNOTATION_THREADS, "{} %".format
    )
    limit = _read(notes, ANNOTATION_MEMORY_LIMIT, parse_gpu_memory)
    if target.slice and (memory is not None or threads is not None or limit is not None):
        raise ClaimError(
            f"class {claim.device_class} is a fixed slice with its own memory and threads: ask for "
            f"no amounts, or use class {device_class_of(target.partition)}"
        )
    if limit is not None and memory is None:
        raise ClaimError(
            f"annotation {ANNOTATION_MEMORY_LIMIT} needs a guaranteed amount beside it: ask for "
            f"memory in the claim or in the annotation {ANNOTATION_MEMORY}"
        )
    if limit is not None and memory is not None and limit < memory:
        raise ClaimError(
            f"annotation {ANNOTATION_MEMORY_LIMIT} is {gib(limit)}, which is below the "
            f"{gib(memory)} that the Pod is guaranteed: write at least as much"
        )
    return memory, limit, threads


def _read(notes: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    """Return the value of an annotation; None if it is not set."""
    text = notes.get(name)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise ClaimError(f"annotation {name}: {error}") from None


def _one(
    claimed: int | None, noted: int | None, name: str, show: Callable[[int], str]
) -> int | None:
    """Return an amount that a claim or its Pod asks for."""
    if claimed is not None and noted is not None and claimed != noted:
        raise ClaimError(
            f"the claim asks for {show(claimed)}, and the annotation {name} of its Pod for "
            f"{show(noted)}: remove one of them"
        )
    return noted if claimed is None else claimed


def _percent(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise ValueError(f"{text!r} is no percentage from 1 to 100: write a number such as 50")
    return int(text)


def _processes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_PROCESSES:
        raise ValueError(
            f"{text!r} is no number of processes from 1 to {_MAX_PROCESSES}: write one such as 2"
        )
    return int(text)


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} is not above zero: write a duration such as 20m")
    return seconds


def _framework(text: str) -> Framework:
    try:
        return Framework(text)
    except ValueError:
        raise ValueError(f"{text!r} is unknown: write {', '.join(Framework)}") from None


def _application(pod: WorkloadPod) -> str:
    name = application_of(pod)
    if len(name) > _LONGEST_APPLICATION:
        raise ClaimError(
            f"annotation {ANNOTATION_APPLICATION} has {len(name)} characters: write at most "
            f"{_LONGEST_APPLICATION}"
        )
    return name
