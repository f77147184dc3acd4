"""docs/metrics.md is generated from the definitions: `pytest --update-golden` writes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from partita.agent.metrics import SECTION
from partita.metric import Metric
from partita.operator.metrics.definitions import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

HEAD = """\
<!-- Generated from operator/partita/operator/metrics/definitions.py and operator/partita/agent/metrics.py:
     pytest tests/metrics/test_document.py --update-golden -->
# Metrics

`partita run --health-port PORT` serves `/metrics` next to `/healthz` and `/readyz`, in the Prometheus
text format or OpenMetrics. Scrape every replica. Only the leader exports its metrics below; the other
replicas export `partita_leader 0` and the metrics of their own process, so nothing is counted twice.
Gauges are read from the operator's state at each scrape. Counters and histograms start at 0 when a
process becomes the leader.

Each [agent](#agents) serves `/metrics` too, with what its GPU and each Pod on it use now.

[`manifests/monitoring`](../manifests/monitoring) has PodMonitors, alert rules and a Grafana dashboard.
Each alert has a runbook in [`runbooks`](runbooks/README.md).

No label of the operator contains the name of a job or a Pod. Names of namespaces are labels only with
`--namespace-metrics`. Labels are partitions, GPUs, nodes, policies
and values of fixed lists. Only the metrics of the agents name Pods. The history of a single job is in its status and in its [trace](#traces).
"""

TAIL = """\
## Traces

`partita run --trace` exports each finished job as OpenTelemetry spans over OTLP/HTTP. It is off by
default. OpenTelemetry's own environment variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, set the
endpoint, the headers and the sampler. The NetworkPolicy in [`manifests`](../manifests) allows the
operator to connect to the API server only. The kustomize component `tracing` and the chart's value
`extraEgress` add the collector and DNS to it: see [install](how-to/install.md#recordings-and-traces).

The span `job` lasts from the submission to the end of the job and has the job's UID as
`partita.job.uid`. It has one child span `attempt` for each start. The children of `attempt` are its
steps: `queued`, `starting`, `loading` (until the first use of the GPU, if it was observed) and `running`.
All times come from the job's status, so a restart of the operator loses nothing.

- A job that is deleted before it finishes has no trace.
- A job that is retried after it finished has another trace.
- Attempts that the status no longer holds are missing.
- Spans that the collector does not accept in time are dropped. They never delay the operator.
"""


def render() -> str:
    """Write the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    for section in (*SECTIONS, SECTION):
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
