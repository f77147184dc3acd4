from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from support.api import Api
from support.clusters import ApiServer, check_for_tests
from support.kubectl import Kubectl
from support.proxy import (
    FaultProxy,
    When,
    conflict,
    everything,
    internal_error,
    too_many_requests,
    unavailable,
    watches,
    writes,
)


@pytest.fixture
async def proxy(api_server: ApiServer, connections: None) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(api_server) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Api]:
    """A client that goes through the proxy, without credentials of its own."""
    async with aiohttp.ClientSession(headers={"User-Agent": "tester/1"}) as session:
        yield Api(session, proxy.url, ssl_context=None)


@pytest.fixture
def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def config_map(name: str = "c") -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def test_passes_requests_and_answers_on_unchanged(client: Api, api: Api, path: str):
    created = await client.post(path, config_map())
    assert created.status == 201
    assert created.headers["Content-Type"].startswith("application/json")
    assert (await client.get(f"{path}/c")).body == (await api.get(f"{path}/c")).body
    assert (await client.get(path, labelSelector="a in (b, c)")).body["items"] == []
    assert (await client.post(path, config_map())).body["reason"] == "AlreadyExists"


async def test_records_writes_with_their_author_and_answer(
    proxy: FaultProxy, client: Api, path: str
):
    await client.get(path)
    await client.post(path, config_map())
    await client.post(path, config_map())
    await client.patch(f"{path}/c", {"data": {"a": "1"}}, fieldManager="m")
    await client.delete(f"{path}/c", dryRun="All")
    assert [(w.request.kind, w.status, w.answered) for w in proxy.writes] == [
        ("POST configmaps", 201, 201),
        ("POST configmaps", 409, 409),
        ("PATCH configmaps", 200, 200),
    ]
    assert [w.request.manager for w in proxy.writes] == ["tester", "tester", "m"]
    assert proxy.writes[2].request.json() == {"data": {"a": "1"}}
    assert proxy.counts() == {"POST configmaps": 1, "PATCH configmaps": 1}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (conflict(), "Conflict"),
        (too_many_requests(3), "TooManyRequests"),
        (internal_error(), "InternalError"),
        (unavailable(), "ServiceUnavailable"),
    ],
)
async def test_answers_the_nth_write_instead_of_the_server(
    proxy: FaultProxy, client: Api, path: str, answer, reason: str
):
    fault = proxy.inject(writes("configmaps"), nth=2, answer=answer)
    answers = [await client.post(path, config_map(name)) for name in "abc"]
    assert [a.status for a in answers] == [201, answer.status, 201]
    assert (answers[1].body["kind"], answers[1].body["reason"]) == ("Status", reason)
    assert answers[1].headers.get("Retry-After") == ("3" if answer.status == 429 else None)
    assert (await client.get(path, fieldSelector="metadata.name=b")).names == []
    assert (fault.matched, fault.happened) == (3, 1)
    assert (proxy.writes[1].status, proxy.writes[1].answered) == (None, answer.status)


async def test_a_fault_after_the_effect_hides_it_from_the_client(
    proxy: FaultProxy, client: Api, path: str
):
    proxy.inject(writes(), when=When.AFTER, answer=internal_error())
    assert (await client.post(path, config_map())).status == 500
    assert (await client.post(path, config_map())).body["reason"] == "AlreadyExists"
    assert [(w.status, w.answered) for w in proxy.writes] == [(201, 500), (409, 409)]


async def test_a_fault_after_the_effect_counts_effects_only(
    proxy: FaultProxy, client: Api, path: str
):
    seen = []
    proxy.inject(writes(), nth=2, when=When.AFTER, hook=lambda r: seen.append(r.target.name))
    await client.post(path, config_map())
    await client.post(path, config_map())  # already exists: no effect
    assert seen == []
    await client.delete(f"{path}/c")
    assert seen == ["c"]


async def test_a_fault_can_last(proxy: FaultProxy, client: Api, path: str):
    fault = proxy.inject(writes(), times=None, answer=unavailable())
    assert {(await client.post(path, config_map())).status for _ in range(3)} == {503}
    proxy.remove(fault)
    assert (await client.post(path, config_map())).status == 201


@pytest.mark.parametrize(("when", "took_effect"), [(When.BEFORE, False), (When.AFTER, True)])
async def test_cuts_a_connection(
    proxy: FaultProxy, client: Api, api: Api, path: str, when: When, *, took_effect: bool
):
    proxy.inject(writes(), when=when, cut=True)
    with pytest.raises(aiohttp.ClientError):
        await client.post(path, config_map())
    assert ((await api.get(f"{path}/c")).status == 200) is took_effect
    assert proxy.writes[0].answered is None
    assert (await client.get(path)).status == 200


async def test_delays_a_request_without_holding_the_others(
    proxy: FaultProxy, client: Api, path: str
):
    release = asyncio.Event()

    async def hold(_: object) -> None:
        await release.wait()

    proxy.inject(writes(), hook=hold)
    slow = asyncio.create_task(client.post(path, config_map("slow")))
    assert (await client.get(path)).status == 200
    assert (await client.post(path, config_map("fast"))).status == 201
    assert not slow.done()
    release.set()
    assert (await slow).status == 201


async def test_a_delay_is_waited_for(proxy: FaultProxy, client: Api, path: str):
    proxy.inject(writes(), delay=0.2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await client.post(path, config_map())).status == 201
    assert loop.time() - began >= 0.2


async def test_streams_watches(client: Api, api: Api, path: str):
    version = (await client.get(path)).version
    async with client.watch(path, resourceVersion=version) as watch:
        for name in "ab":
            (await api.post(path, config_map(name))).ok()
            assert (await watch.next())[1]["metadata"]["name"] == name
    async with client.watch(path, timeoutSeconds=1, resourceVersion=version) as watch:
        assert len(await watch.rest()) == 2


async def test_drops_watches(proxy: FaultProxy, client: Api, path: str, namespace: str):
    async with client.watch(path) as dropped, client.watch(f"/api/v1/namespaces/{namespace}/pods"):
        assert proxy.drop_watches(watches("configmaps")) == 1
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await dropped.next()
        assert proxy.drop_watches() == 1


async def test_refuses_a_watch(proxy: FaultProxy, client: Api, path: str):
    proxy.inject(watches(), answer=too_many_requests())
    assert (await client.get(path, watch="true")).status == 429
    assert (await client.get(path, watch="true", timeoutSeconds=1)).status == 200


async def test_is_unreachable_during_an_outage(proxy: FaultProxy, client: Api, path: str):
    async with client.watch(path) as watch:
        with proxy.outage():
            with pytest.raises((aiohttp.ClientError, EOFError)):
                await watch.next()
            with pytest.raises(aiohttp.ClientError):
                await client.get(path)
    assert (await client.get(path)).status == 200


CLIENT = """
import asyncio, sys, aiohttp

async def main(url):
    async with aiohttp.ClientSession() as session:
        async def create(n):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{n}"}}
            async with session.post(url, json=body):
                pass
        await asyncio.gather(*(create(n) for n in range(8)))
        await asyncio.sleep(3600)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize(("when", "created"), [(When.BEFORE, 2), (When.AFTER, 3)])
async def test_kills_a_client_between_two_of_its_writes(
    api_server: ApiServer, api: Api, path: str, when: When, created: int
):
    async with FaultProxy(api_server, serial=True) as proxy:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, proxy.url + path
        )
        proxy.inject(writes(), nth=3, when=when, hook=proxy.killing(process.pid))
        assert await process.wait() == -9
        assert sum(proxy.counts().values()) == created
        mine = [n for n in (await api.get(path)).names if n.startswith("c")]
        assert len(mine) == created
        async with aiohttp.ClientSession() as session:  # a new process is served again
            again = Api(session, proxy.url, ssl_context=None)
            assert (await again.post(path, config_map("next"))).status == 201


async def test_serial_writes_do_not_overlap(api_server: ApiServer, path: str):
    running, most = 0, 0

    async def count(_: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    async with FaultProxy(api_server, serial=True) as proxy, aiohttp.ClientSession() as session:
        proxy.inject(everything, times=None, hook=count)
        client = Api(session, proxy.url, ssl_context=None)
        answers = await asyncio.gather(*(client.post(path, config_map(f"c{n}")) for n in range(6)))
    assert {answer.status for answer in answers} == {201}
    assert most == 1


async def test_kubectl_works_through_it(
    proxy: FaultProxy, kubectl: Kubectl, namespace: str, tmp_path: Path
):
    kubeconfig = proxy.write_kubeconfig(tmp_path, account="")
    check_for_tests(kubeconfig)
    manifest = tmp_path / "map.json"
    manifest.write_text(json.dumps(config_map("by-kubectl")))
    arguments = ("--kubeconfig", str(kubeconfig), "create", "-f", str(manifest))
    (await kubectl(*arguments, "-n", namespace)).ok()
    assert proxy.counts() == {"POST configmaps": 1}
    assert proxy.writes[0].request.agent.startswith("kubectl")
