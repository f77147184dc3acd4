"""A job's life as spans: what they tell, and that a real collector can read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan as Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from metrics.collecting import Collector, collecting
from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.models.job import Phase
from partita.process.tracing import JobTraces, tracing
from partita.times import Times
from support.builders import GIB, START, a_job, at
from support.polling import TIMEOUT

FIRST = Attempt(
    number=1,
    pod="train-1",
    node="node-1",
    servers=("shared-0",),
    memory=8 * GIB,
    peak_memory=8 * GIB,
    queued_time=at(0),
    booked_time=at(3),
    start_time=at(5),
    first_use_time=at(9),
    end_time=at(20),
    outcome=Outcome.OUT_OF_MEMORY,
)
SECOND = Attempt(
    number=2,
    pod="train-2",
    memory=12 * GIB,
    queued_time=at(20),
    booked_time=at(21),
    start_time=at(22),
    end_time=at(60),
    outcome=Outcome.SUCCEEDED,
)
DONE = SharedGPUJobStatus(
    phase=Phase.SUCCEEDED, reason="Succeeded", completion_time=at(60), attempts=(FIRST, SECOND)
)


def told(status: SharedGPUJobStatus = DONE) -> list[Span]:
    """The spans of a job that ends so."""
    sent, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(sent))
    JobTraces(provider.get_tracer("test")).on_status(a_job(), status)
    return list(sent.get_finished_spans())


def below(spans: list[Span], number: int) -> list[tuple[str, float, float]]:
    """The steps of an attempt, and when they began and ended, in seconds."""
    attempt = [span for span in spans if span.name == "attempt"][number].context
    return times(span for span in spans if span.parent and span.parent.span_id == attempt.span_id)


def times(spans: Iterable[Span]) -> list[tuple[str, float, float]]:
    begin = START.timestamp()
    return [(s.name, s.start_time / 1e9 - begin, s.end_time / 1e9 - begin) for s in spans]


def test_a_life_reaches_from_submission_to_the_end_with_a_span_for_each_attempt():
    whole, first, second = [span for span in told() if span.name in {"job", "attempt"}]
    assert times([whole, first, second]) == [
        ("job", 0, 60),
        ("attempt", 0, 20),
        ("attempt", 20, 60),
    ]
    assert whole.parent is None
    assert first.parent.span_id == second.parent.span_id == whole.context.span_id
    assert whole.attributes["partita.job.uid"] == "uid-train"
    assert whole.attributes["k8s.namespace.name"] == "team-a"
    said = [span.status.description for span in (whole, first, second)]
    assert said == [None, "OutOfMemory", None]
    assert first.attributes["partita.memory.peak"] == 8 * GIB
    assert "partita.memory.peak" not in second.attributes


def test_the_steps_of_an_attempt_follow_each_other_without_a_gap():
    spans = told()
    assert below(spans, 0) == [
        ("queued", 0, 3), ("starting", 3, 5), ("loading", 5, 9), ("running", 9, 20),
    ]  # fmt: skip
    # Nobody saw it use the GPU.
    assert below(spans, 1) == [("queued", 20, 21), ("starting", 21, 22), ("running", 22, 60)]


@pytest.mark.parametrize(
    ("update", "steps"),
    [
        (
            {"start_time": None, "first_use_time": None, "outcome": Outcome.NODE_LOST},
            [("queued", 0, 3), ("starting", 3, 20)],
        ),
        (
            {"first_use_time": at(4.5)},
            [("queued", 0, 3), ("starting", 3, 5), ("loading", 5, 5), ("running", 5, 20)],
        ),
        (
            {"first_use_time": at(21)},
            [("queued", 0, 3), ("starting", 3, 5), ("loading", 5, 20), ("running", 20, 20)],
        ),
    ],
    ids=["never ran", "first use told too early", "first use told too late"],
)
def test_steps_that_are_missing_or_out_of_order(update: dict[str, Any], steps: list[Any]):
    odd = DONE.model_copy(update={"attempts": (FIRST.model_copy(update=update),)})
    assert below(told(odd), 0) == steps


@pytest.mark.parametrize("outcome", [Outcome.SUSPENDED, Outcome.PREEMPTED])
def test_an_attempt_that_was_ended_for_others_is_no_failure(outcome: Outcome):
    ended = DONE.model_copy(update={"attempts": (FIRST.model_copy(update={"outcome": outcome}),)})
    assert all(span.status.is_unset for span in told(ended))


def test_a_job_that_failed_says_why():
    failed = {"phase": Phase.FAILED, "reason": "DeadlineExceeded"}
    assert told(DONE.model_copy(update=failed))[0].status.description == "DeadlineExceeded"


def test_a_job_whose_end_has_no_time_leaves_no_trace():
    assert told(DONE.model_copy(update={"completion_time": None})) == []


# The wire.


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting(monkeypatch) as running:
        yield running


def test_a_collector_gets_the_whole_tree_once(collector: Collector):
    with tracing(Times(close_traces=TIMEOUT)) as traces:
        job = a_job()
        running = DONE.model_copy(update={"phase": Phase.RUNNING, "completion_time": None})
        for status in (running, DONE, DONE):
            traces.on_status(job, status)
            job = job.model_copy(update={"status": status})
    (request,) = collector.requests
    (resource,) = request.resource_spans
    named = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert named["service.name"] == "partita"
    spans = collector.spans
    assert len(spans) == 10
    assert len({span.trace_id for span in spans}) == 1
    (root,) = [span for span in spans if not span.parent_span_id]
    assert (root.name, root.start_time_unix_nano) == ("job", int(START.timestamp()) * 10**9)


def test_a_collector_that_does_not_answer_holds_nobody_up(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    collector.may_answer.clear()
    with tracing(Times(close_traces=0.1)) as traces:
        traces.on_status(a_job(), DONE)
    assert collector.asked.wait(TIMEOUT)
    assert not collector.may_answer.is_set()
