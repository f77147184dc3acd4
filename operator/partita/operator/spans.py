"""The trace of a finished job as a tree of spans, computed only from its status. No I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus

__all__ = ["Span", "job_span"]

_NO_FAILURE = {Outcome.SUCCEEDED, Outcome.SUSPENDED, Outcome.PREEMPTED, Outcome.RECLAIMED}
"""Outcomes of an attempt that are not failures."""


@dataclass(frozen=True, slots=True)
class Span:
    """One step with its start and end."""

    name: str
    start: datetime
    end: datetime
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    failure: str = ""
    """How the step failed; empty if it did not."""
    children: tuple["Span", ...] = ()


def job_span(job: SharedGPUJob, status: SharedGPUJobStatus) -> Span | None:
    """Return the spans of a finished job; None if its times are unknown.

    Parameters
    ----------
    status
        Its last status.
    """
    meta, end = job.metadata, status.completion_time
    if meta.creation_timestamp is None or end is None:
        return None
    return Span(
        "job",
        meta.creation_timestamp,
        end,
        {
            "k8s.namespace.name": meta.namespace,
            "partita.job.name": meta.name,
            "partita.job.uid": meta.uid,
            "partita.partition": job.spec.partition,
            "partita.application": job.spec.application or "",
        },
        failure=status.reason if status.phase is Phase.FAILED else "",
        children=tuple(span for attempt in status.attempts for span in _attempt(attempt)),
    )


def _attempt(attempt: Attempt) -> Iterator[Span]:
    start, end, outcome = attempt.queued_time, attempt.end_time, attempt.outcome
    if start is None or end is None or outcome is None:
        return
    attributes: dict[str, str | int] = {
        "k8s.pod.name": attempt.pod,
        "k8s.node.name": attempt.node,
        "partita.attempt": attempt.number,
        "partita.outcome": outcome.value,
        "partita.gpus": ",".join(attempt.servers),
        "partita.memory.allocated": attempt.memory,
    }
    if attempt.peak_memory is not None:
        attributes["partita.memory.peak"] = attempt.peak_memory
    failure = "" if outcome in _NO_FAILURE else outcome.value
    steps = tuple(_steps(attempt, start, end))
    yield Span("attempt", start, max(start, end), attributes, failure, steps)


def _steps(attempt: Attempt, start: datetime, end: datetime) -> Iterator[Span]:
    """Yield the steps of an attempt in order; a step without a recorded time is left out."""
    marks = (
        ("starting", attempt.booked_time),
        ("loading", attempt.start_time),
        ("running", attempt.first_use_time),
    )
    name, since = "queued", start
    for following, at in marks:
        if at is not None:
            at = min(max(at, since), max(since, end))  # noqa: PLW2901 - some times have no fractions
            yield Span(name, since, at)
            name, since = following, at
    if name == "loading":  # its first use of the GPU was not recorded
        name = "running"
    yield Span(name, since, max(since, end))
