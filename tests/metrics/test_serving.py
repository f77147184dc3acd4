"""/metrics over HTTP, beside the probes."""

from __future__ import annotations

from collections import Counter

import aiohttp
import pytest

from partita.accounting.usage_meter import UsageMeter
from partita.operator.metrics.page import Metrics
from partita.operator.probes import Readiness, serve_health
from support.builders import a_state, partition_body


async def ask(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "text/plain"),
        ("nonsense;;;q=x", "text/plain"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics"),
    ],
)
async def test_prometheus_gets_the_format_that_it_asks_for(port: int, accept: str, kind: str):
    state = a_state(partition_body())
    metrics = Metrics(state, UsageMeter(state), leads=lambda: True, writes=Counter())
    metrics.lead(lambda _: None)
    async with serve_health(port, Readiness(), metrics.render):
        status, found, text = await ask(port, "/metrics", Accept=accept)
    assert status == 200
    assert found.startswith(kind)
    assert 'partita_partition_wanted_gpus{partition="shared"} 1.0\n' in text
    assert text.endswith("# EOF\n") == (kind != "text/plain")


async def test_a_page_that_cannot_be_made_disturbs_nothing_else(port: int):
    def page(_: str) -> tuple[bytes, str]:
        raise ValueError

    async with serve_health(port, Readiness(), page):
        assert (await ask(port, "/metrics"))[0] == 500
        assert (await ask(port, "/healthz"))[0] == 200
