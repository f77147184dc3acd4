"""What a claim asks for: its capacity requests and the annotations of its Pod.

A claim is resolved as a job with the same settings would be. So slices, learnt memory, growth, node
rules and priorities mean the same for both.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from partita.constants import (
    ANNOTATION_APPLICATION,
    ANNOTATION_EXPECTED_DURATION,
    ANNOTATION_FRAMEWORK,
    ANNOTATION_MEMORY,
    ANNOTATION_MEMORY_LIMIT,
    ANNOTATION_PROCESSES,
    ANNOTATION_THREADS,
)
from partita.informer.claim_view import ClaimView
from partita.informer.workload_pod import WorkloadPod
from partita.models import Framework, GPUPartition, ObjectMeta, SharedGPUJob
from partita.models.device_class import device_class_of
from partita.models.job import SharedGPUJobSpec
from partita.models.quantities import parse_duration, parse_memory
from partita.models.template import PackedTemplate, PodTemplate
from partita.reconcile.job_request import Largest, resolve
from partita.reconcile.reasons import Reason, Why, gib
from partita_policies import types as policy

__all__ = [
    "ClaimError",
    "application_of",
    "as_job",
    "duration_of",
    "is_lasting",
    "priority_of",
    "resolve_claim",
]

T = TypeVar("T")

_NO_TEMPLATE: Final = PackedTemplate.pack(PodTemplate(spec={"containers": []}))
_MAX_PRIORITY: Final = 1_000_000
"""As in SharedGPUJob. The priority of a Pod may be up to 2,000,001,000 (`SystemCriticalPriority` in
pkg/apis/scheduling/types.go)."""
_MAX_PROCESSES: Final = 60
_LONGEST_APPLICATION: Final = 63


class ClaimError(ValueError):
    """A request that cannot be read. The message says what to write instead."""


def resolve_claim(
    claim: ClaimView,
    pod: WorkloadPod,
    partition: GPUPartition,
    slice_name: str,
    *,
    profile: policy.Profile | None,
    largest: Largest,
    avoided: Collection[str] = (),
    refused: int = 0,
) -> policy.Job | Why:
    """Convert a claim to the numbers for policies and guard.

    Parameters
    ----------
    slice_name
        The fixed slice that its device class stands for; empty if none.
    profile
        The history of its application.
    largest, avoided, refused
        As in `resolve`.

    Returns
    -------
    policy.Job or Why
        The request, or why it can never be met as it is written.
    """
    try:
        job = as_job(claim, pod, partition.metadata.name, slice_name)
    except ClaimError as error:
        return Why(Reason.INVALID_SPEC, str(error))
    asks = resolve(
        job,
        partition,
        refused=refused,
        profile=profile,
        largest=largest,
        avoided=avoided,
        # All containers of a claim share one slot (`partita.agent.dra.prepare`).
        needs=replace(pod.needs, slots=1),
    )
    if isinstance(asks, Why) or not is_lasting(pod):
        return asks
    # The duration in its profile is that of what was measured until now.
    return replace(asks, lasting=True, duration=None)


def is_lasting(pod: WorkloadPod) -> bool:
    """Return whether a Pod never ends by itself: it always restarts, and states no duration."""
    return pod.restarts_always and ANNOTATION_EXPECTED_DURATION not in pod.annotations


def application_of(pod: WorkloadPod) -> str:
    """Return the application of a Pod: its annotation, or kind and name of its controller."""
    return pod.annotations.get(ANNOTATION_APPLICATION) or pod.application


def priority_of(pod: WorkloadPod) -> int:
    """Return the priority of a Pod, in the range of those of jobs."""
    return max(-_MAX_PRIORITY, min(pod.priority, _MAX_PRIORITY))


def duration_of(pod: WorkloadPod) -> float | None:
    """Return the expected duration of a Pod in seconds; None if it states none that is valid."""
    try:
        return _read(pod.annotations, ANNOTATION_EXPECTED_DURATION, _duration)
    except ClaimError:
        return None


def as_job(claim: ClaimView, pod: WorkloadPod, partition: str, slice_name: str) -> SharedGPUJob:
    """Return the job that asks for the same as a claim.

    Raises
    ------
    ClaimError
        If an annotation is invalid, or contradicts the claim.
    """
    notes = pod.annotations
    memory = _one(claim.memory, _read(notes, ANNOTATION_MEMORY, _memory), ANNOTATION_MEMORY, gib)
    threads = _one(
        claim.threads, _read(notes, ANNOTATION_THREADS, _percent), ANNOTATION_THREADS, "{} %".format
    )
    limit = _read(notes, ANNOTATION_MEMORY_LIMIT, _memory)
    if slice_name and (memory is not None or threads is not None or limit is not None):
        raise ClaimError(
            f"class {claim.device_class} is a fixed slice with its own memory and threads: ask for "
            f"no amounts, or use class {device_class_of(partition)}"
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
    spec: dict[str, Any] = {
        "partition": partition,
        "application": _application(pod),
        "gpu_memory": memory,
        "gpu_memory_limit": limit,
        "thread_percent": threads,
        "processes": _read(notes, ANNOTATION_PROCESSES, _processes) or 1,
        "slice": slice_name or None,
        "expected_duration": _read(notes, ANNOTATION_EXPECTED_DURATION, _duration),
        "priority": priority_of(pod),
        "framework": _read(notes, ANNOTATION_FRAMEWORK, _framework) or Framework.NONE,
        "template": _NO_TEMPLATE,
    }
    return SharedGPUJob(
        metadata=ObjectMeta(
            name=claim.name,
            namespace=claim.namespace,
            uid=claim.uid,
            creation_timestamp=claim.created,
        ),
        spec=SharedGPUJobSpec(**spec),
    )


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


def _memory(text: str) -> int:
    memory = parse_memory(text)
    if memory <= 0:
        raise ValueError(f"{text!r} is not above zero: write an amount such as 4Gi")
    return memory


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
