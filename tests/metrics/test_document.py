"""docs/metrics.md is generated from the definitions: `pytest --update-golden` writes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from partita.operator.metrics.definitions import SECTIONS, Metric

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

HEAD = """\
<!-- Generated from operator/partita/operator/metrics/definitions.py:
     pytest tests/metrics/test_document.py --update-golden -->
# Metrics

`partita run --health-port PORT` serves `/metrics` beside `/healthz` and `/readyz`, in Prometheus'
text format or OpenMetrics. Scrape every replica: the one that leads tells everything, the others
only `partita_leader 0` and of their own process, so no queue is counted twice. Figures of the state
are read from it at the scrape; counters and histograms begin at zero when a process begins to lead,
as Prometheus expects of a restart.

[`manifests/monitoring`](../manifests/monitoring) holds a PodMonitor, rules and a Grafana dashboard;
each alert has a page in [`runbooks`](runbooks).

No label holds the name of a job, a Pod or a namespace: labels are partitions, GPUs, nodes and
policies that exist, and words of fixed lists. A job's own story is in its status, and in
[traces](#traces).
"""

TAIL = """\
## Traces

`partita run --trace` sends the life of each job, once it has come to its end, as OpenTelemetry
spans over OTLP/HTTP (`pip install 'partita[trace]'`). It is off by default. Where to, with which
headers and which sampler is said by OpenTelemetry's own variables, such as
`OTEL_EXPORTER_OTLP_ENDPOINT`. The NetworkPolicy of [`manifests`](../manifests) lets the operator reach
nothing but the API server: add the collector, and DNS, to its egress.

The span `job` reaches from submission to the end and has the job's UID as `partita.job.uid`; below
it is one span `attempt` for each start, and below that its steps: `queued`, `starting`, `loading`
(until the first use of the GPU, where that was seen) and `running`. All times are those of the
job's status, so a restart of the operator in between loses nothing. A job that is deleted before
its end leaves no trace, one that is retried after its end leaves another, and of very many attempts
those are left out that the status does not keep. What a collector does not take in time is dropped;
it holds nothing up.
"""


def render() -> str:
    """Write the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    for section in SECTIONS:
        yield f"## {section.title}\n\n{section.text}\n"
        yield "| metric | type | labels | |\n| --- | --- | --- | --- |"
        yield from map(_row, section.metrics)
        yield ""
        yield from map(_buckets, filter(lambda metric: metric.buckets, section.metrics))
    yield TAIL.rstrip("\n")


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def _buckets(metric: Metric) -> str:
    bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
    return f"Bounds of `{metric.name}`: {bounds}.\n"


def test_the_page_is_what_the_definitions_say(pytestconfig: pytest.Config):
    if pytestconfig.getoption("--update-golden"):
        PAGE.write_text(render())
    assert render() == PAGE.read_text(), "run this test with --update-golden and read the diff"
