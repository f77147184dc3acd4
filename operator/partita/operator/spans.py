"""A job's life as a tree of spans, from its status alone. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus

__all__ = ["Span", "life"]

_WANTED = {Outcome.SUCCEEDED, Outcome.SUSPENDED, Outcome.PREEMPTED}
"""Ends of an attempt that are nobody's failure."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took a while."""

    name: str
    start: datetime
    end: datetime
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    failure: str = ""
    """In what way it went wrong; empty where it did not."""
    children: tuple["Span", ...] = ()


def life(job: SharedGPUJob, status: SharedGPUJobStatus) -> Span | None:
    """Tell the life of a job that has come to its end; None where its times are not known.

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
    failure = "" if outcome in _WANTED else outcome.value
    steps = tuple(_steps(attempt, start, end))
    yield Span("attempt", start, max(start, end), attributes, failure, steps)


def _steps(attempt: Attempt, start: datetime, end: datetime) -> Iterator[Span]:
    """Yield what an attempt did one after the other; a step that nobody saw is left out."""
    marks = (
        ("starting", attempt.booked_time),
        ("loading", attempt.start_time),
        ("running", attempt.first_use_time),
    )
    name, since = "queued", start
    for following, at in marks:
        if at is not None:
            at = min(max(at, since), max(since, end))  # noqa: PLW2901 - some are to the second
            yield Span(name, since, at)
            name, since = following, at
    if name == "loading":  # nobody saw when it was done with that
        name = "running"
    yield Span(name, since, max(since, end))
