"""The life of a real job reaches a collector, whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from metrics.collecting import Collector, collecting
from partita.models.quantities import parse_time
from partita.operator.main import run_operator
from partita.operator.settings import OperatorSettings
from partita.operator.tracing import tracing
from support.clusters import ApiServer
from support.polling import TIMEOUT
from support.system import System


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting(monkeypatch) as running:
        yield running


async def test_a_job_that_came_back_larger_is_one_trace_of_two_attempts(
    system: System, api_server: ApiServer, collector: Collector
) -> None:
    async with system.nodes(1):
        with tracing() as traces:
            options, stop = OperatorSettings(identity="suite"), asyncio.Event()
            work = asyncio.create_task(
                run_operator(options, str(api_server.kubeconfig), traces.on_status, stop=stop)
            )
            try:
                partition = await system.partition()
                await system.ready(partition)
                job = await system.job("grows", partition, gpuMemory="8Gi", sim={"memory": "9Gi"})
                status = await job.succeeds()
                await system.settle()
            finally:
                stop.set()
                async with asyncio.timeout(TIMEOUT):
                    await work
    spans = {span.span_id: span for span in collector.spans}
    assert len({span.trace_id for span in spans.values()}) == 1
    (root,) = [span for span in spans.values() if not span.parent_span_id]
    named = {a.key: a.value.string_value for a in root.attributes}
    assert named["partita.job.uid"] == job.uid
    names = Counter(span.name for span in spans.values())
    assert (names["job"], names["attempt"], names["queued"], names["starting"]) == (1, 2, 2, 2)
    failures = {s.status.message for s in spans.values() if s.status.message}
    assert failures == {"OutOfMemory"}
    end = parse_time(status["completionTime"]).timestamp()
    assert abs(root.end_time_unix_nano / 1e9 - end) < 1e-3
    assert all(s.start_time_unix_nano >= root.start_time_unix_nano for s in spans.values())
    assert all(s.end_time_unix_nano <= root.end_time_unix_nano for s in spans.values())
