"""/metrics over HTTP, beside the probes."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from metrics.example import operator
from partita.process.probes import Readiness, serve_health


async def ask(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest.mark.parametrize(
    ("accept", "kind", "parser"),
    [
        ("*/*", "text/plain", parse),
        ("nonsense;;;q=x", "text/plain", parse),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text",
            parse_openmetrics,
        ),
    ],
)
async def test_prometheus_gets_the_format_that_it_asks_for(port: int, accept, kind, parser):
    registry = operator().registry
    async with serve_health(port, Readiness(), registry):
        status, found, text = await ask(port, "/metrics", Accept=accept)
    assert status == 200
    assert found.startswith(kind)
    assert 'partita_partition_wanted_gpus{partition="shared"} 1.0\n' in text
    read = {(family.name, sample.name) for family in parser(text) for sample in family.samples}
    assert read == {(f.name, sample.name) for f in registry.collect() for sample in f.samples}


async def test_a_page_that_cannot_be_made_disturbs_nothing_else(port: int):
    class Broken(CollectorRegistry):
        def collect(self):
            raise ValueError

    async with serve_health(port, Readiness(), Broken()):
        assert (await ask(port, "/metrics"))[0] == 500
        assert (await ask(port, "/healthz"))[0] == 200
