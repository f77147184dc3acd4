"""Sends a trace of each finished job to an OpenTelemetry collector.

A trace is sent in one piece when the job has finished, from its status. So no state is kept while
a job runs, and a restart of the operator does not split a trace.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context

from partita import __version__
from partita.models import SharedGPUJob, SharedGPUJobStatus
from partita.operator.spans import Span, job_span
from partita.times import Times

__all__ = ["JobTraces", "tracing"]


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
        span = job_span(job, status)
        if span is not None:
            self._send(span, Context())

    def _send(self, span: Span, parent: Context) -> None:
        sent = self._tracer.start_span(
            span.name, parent, attributes=span.attributes, start_time=_nanoseconds(span.start)
        )
        for child in span.children:
            self._send(child, set_span_in_context(sent, parent))
        if span.failure:
            sent.set_status(Status(StatusCode.ERROR, span.failure))
        sent.end(_nanoseconds(span.end))


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
