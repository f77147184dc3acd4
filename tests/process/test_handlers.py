"""What the handlers make of an object that kopf has read."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import kopf
import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from kube.conftest import Server, failure, server
from partita.handlers import RECURSION_LIMIT, Operator, job_changed, log_in
from partita.kube.client import JOBS, Kube
from partita.kube.turns import Turns
from partita.models.json_text import parse
from partita.process.watches import follow
from support.polling import TIMEOUT

__all__ = ["server"]


@pytest.fixture
def raised() -> Iterator[None]:
    """Python's recursion limit as it is while kopf runs."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION_LIMIT)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("levels", [1, 500, 9_000])
async def test_an_object_is_told_as_our_own_client_reads_it(raised: None, levels: int) -> None:
    text = '{"spec": ' + '{"a": ' * levels + "1" + "}" * (levels + 1)
    told = Mock()
    operator = Operator(Mock(), {}, {JOBS: told}, Mock(), {})
    event = {"type": "DELETED", "object": json.loads(text)}
    await job_changed(event=event, memo=operator)  # type: ignore[arg-type]
    told.assert_called_once_with(parse(text), deleted=True)


async def test_kopf_knows_the_connection_that_was_refused(server: Server) -> None:
    """Else it would ask again and again, without a pause."""
    server.answers = [failure(401, "Unauthorized")]
    async with ApiClient(Configuration(host=server.url)) as api:
        operator = Operator(Kube(api), {}, {}, Mock(), {})
        async with asyncio.timeout(TIMEOUT):
            with pytest.raises(kopf.LoginError):
                await follow(operator, asyncio.Event())
    assert len(server.asked) < 10


async def test_in_the_watches_of_kopf_namespaces_take_turns_without_the_operators_own_writes(
    server: Server,
) -> None:
    told = Mock()
    of = enumerate(("flood", "flood", "flood", "other"))
    metas = ({"namespace": name, "uid": uid, "resourceVersion": "7"} for uid, name in of)
    events = [{"type": "MODIFIED", "object": {"metadata": meta}} for meta in metas]
    written, many, more, single = (json.dumps(event) + "\n" for event in events)

    async def flood(_: web.Request) -> web.StreamResponse:
        return web.Response(text=written + many + more + single)

    server.answers = [flood]
    async with ApiClient(Configuration(host=server.url)) as api:
        known = {n: Mock(metadata=Mock(resource_version=of)) for n, of in enumerate(("7", "6"))}
        kube = Mock(api=api, turns=Turns())
        connection = await log_in(Operator(kube, {}, {JOBS: told}, Mock(), known))  # type: ignore[arg-type]
        read = (await connection.aiohttp_session.get(server.url)).content.iter_chunked(1)
        lines, others = list[str](), Mock()
        async for line in read:
            assert others.call_count == len(lines)
            lines.append(line.decode())
            asyncio.get_running_loop().call_soon(others)
        assert lines == [single, many, more]
        await connection.aiohttp_session.close()
    told.assert_called_once_with(events[0]["object"])
