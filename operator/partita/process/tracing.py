"""Sends a trace of each finished job to an OpenTelemetry collector.

A trace is sent in one piece when the job has finished, from its status. So no state is kept while
a job runs, and a restart of the operator does not split a trace.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context

from partita import __version__
from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus
from partita.times import Times

__all__ = ["JobTraces", "tracing"]

_NO_FAILURE = {Outcome.SUCCEEDED, Outcome.SUSPENDED, Outcome.PREEMPTED, Outcome.RECLAIMED}
"""Outcomes of an attempt that are not failures."""


class JobTraces:
    """Sends a trace of each job that finishes."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def on_status(self, job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
        """Send the trace of a job if this status is the first one in which it is finished."""
        before, now = job.status.phase, status.phase
        was_finished = before is not None and before.finished
        if now is None or not now.finished or was_finished:
            return
        meta, end = job.metadata, status.completion_time
        if meta.creation_timestamp is None or end is None:
            return
        attributes = {
            "k8s.namespace.name": meta.namespace,
            "partita.job.name": meta.name,
            "partita.job.uid": meta.uid,
            "partita.partition": job.spec.partition,
            "partita.application": job.spec.application or "",
        }
        failure = status.reason if now is Phase.FAILED else ""
        start = meta.creation_timestamp
        trace = self._span(Context(), "job", start, end, attributes, failure=failure)
        for attempt in status.attempts:
            self._attempt(trace, attempt)

    def _attempt(self, job: Context, attempt: Attempt) -> None:
        start, end, outcome = attempt.queued_time, attempt.end_time, attempt.outcome
        if start is None or end is None or outcome is None:
            return
        end = max(start, end)
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
        parent = self._span(job, "attempt", start, end, attributes, failure=failure)
        # Its steps in order; a step without a recorded time is left out.
        marks = (
            ("starting", attempt.booked_time),
            ("loading", attempt.start_time),
            ("running", attempt.first_use_time),
        )
        name, since = "queued", start
        for following, at in marks:
            if at is not None:
                at = min(max(at, since), end)  # noqa: PLW2901 - some times have no fractions
                self._span(parent, name, since, at)
                name, since = following, at
        if name == "loading":  # its first use of the GPU was not recorded
            name = "running"
        self._span(parent, name, since, end)

    def _span(
        self,
        parent: Context,
        name: str,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, str | int] | None = None,
        *,
        failure: str = "",
    ) -> Context:
        """Send a span, and return the parent of its children.

        Parameters
        ----------
        failure
            How the step failed; empty if it did not.
        """
        began = _nanoseconds(start)
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=began)
        if failure:
            span.set_status(Status(StatusCode.ERROR, failure))
        span.end(_nanoseconds(end))
        return set_span_in_context(span, parent)


def _nanoseconds(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000) * 1000


@contextmanager
def tracing(times: Times = Times()) -> Iterator[JobTraces]:
    """Send traces while the block runs; OpenTelemetry's environment variables set the collector.

    A thread of the SDK sends them. Spans that the collector does not accept in time are dropped.
    """
    name = os.environ.get("OTEL_SERVICE_NAME", "partita")
    resource = Resource.create({SERVICE_NAME: name, SERVICE_VERSION: __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield JobTraces(provider.get_tracer("partita", __version__))
    finally:
        # The SDK waits up to 30 s for a collector that does not answer.
        last = threading.Thread(target=provider.shutdown, name="trace-shutdown", daemon=True)
        last.start()
        last.join(times.close_traces)
