"""Which calls the simulated nodes repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kubernetes.aio.client import Configuration

from kube.conftest import Server, answer, failure
from partita.kube.errors import ConflictError
from partita_testcluster.nodes.api import APIServer


@pytest.fixture
async def calls(server: Server) -> AsyncIterator[APIServer]:
    made = APIServer(Configuration(host=server.url))
    yield made
    await made.close()


async def test_a_call_is_repeated_until_it_gets_an_answer(calls: APIServer, server: Server) -> None:
    server.answers = [answer(429), answer(200, {"kind": "Pod"})]
    assert await calls.call("POST", "/x", {"a": 1}) == {"kind": "Pod"}
    assert len(server.asked) == 2


async def test_a_patch_is_a_merge_patch_and_repeated_on_a_conflict(
    calls: APIServer, server: Server
) -> None:
    server.answers = [failure(409), answer(200)]
    await calls.call("PATCH", "/x", {"a": 1})
    assert server.asked[1].headers["Content-Type"] == "application/merge-patch+json"


async def test_a_patch_of_one_version_is_not_repeated_when_there_is_a_newer_one(
    calls: APIServer, server: Server
) -> None:
    server.answers = [failure(409, "Conflict", "modified")]
    with pytest.raises(ConflictError, match="409 modified"):
        await calls.call("PATCH", "/x", {"metadata": {"resourceVersion": "7"}})
    assert len(server.asked) == 1
