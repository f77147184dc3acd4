"""Sends the jobs' lives as OpenTelemetry spans; needs the extra `trace`.

A life is sent at once when it is over, from what the status says. So nothing has to be kept while
a job runs, and no restart of the operator tears a trace apart.
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
from partita.operator.spans import Span, life

__all__ = ["Lives", "tracing"]

CLOSING = 3.0
"""Seconds for which the process waits at its end for spans that are still to be sent."""


class Lives:
    """Turns the ends of jobs into spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def told(self, job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
        """Take a status that was written; only a job's end is of interest."""
        was, now = job.status.phase, status.phase
        over = was is not None and was.finished
        if now is None or not now.finished or over:
            return
        whole = life(job, status)
        if whole is not None:
            self._send(whole, Context())

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
def tracing() -> Iterator[Lives]:
    """Send lives while the block runs, to where OpenTelemetry's own variables say.

    A thread of the SDK's sends; what a collector does not take in time is dropped.
    """
    name = os.environ.get("OTEL_SERVICE_NAME", "partita")
    resource = Resource.create({SERVICE_NAME: name, SERVICE_VERSION: __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Lives(provider.get_tracer("partita", __version__))
    finally:
        # The SDK would wait for half a minute for a collector that does not answer.
        last = threading.Thread(target=provider.shutdown, name="trace-shutdown", daemon=True)
        last.start()
        last.join(CLOSING)
