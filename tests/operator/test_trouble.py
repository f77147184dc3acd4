"""The API server in trouble: nothing is lost, and nobody hammers it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from partita.store.state import State
from partita.store.watched_kinds import feeds
from support.behind_proxy import Behind
from support.clusters import ApiServer
from support.faults import CannedAnswer, unavailable, watches
from support.polling import until
from support.proxy import FaultProxy
from support.queues import LONG
from support.requests import Request
from support.system import System


async def test_jobs_survive_an_outage_of_the_api_server(system: System, behind: Behind) -> None:
    async with behind() as proxy:
        partition = await system.partition()
        before = await system.job("before", partition, gpuMemory="4Gi", sim=LONG)
        await before.runs()
        ending = await system.job("ending", partition, gpuMemory="4Gi", sim=LONG)
        await ending.runs()
        with proxy.outage():
            during = await system.job("during", partition, gpuMemory="4Gi")
            await before.delete()
            await ending.end()
        await ending.succeeds()
        await during.succeeds()
        assert during.outcomes == ["Succeeded"]


class Expired(CannedAnswer):
    """A watch that says at once that its resource version is too old, as kube-apiserver does."""

    def response(self) -> web.Response:
        status = {"kind": "Status", "code": self.status, "reason": self.reason}
        event = {"type": "ERROR", "object": {**status, "message": self.message}}
        return web.Response(text=json.dumps(event) + "\n", content_type="application/json")


async def test_what_went_while_a_watch_had_a_gap_is_found_out(
    system: System, behind: Behind
) -> None:
    async with behind() as proxy:
        partition = await system.partition()
        goes = await system.job("goes", partition, gpuMemory="30Gi", sim=LONG)
        await goes.runs()
        heir = await system.job("heir", partition, gpuMemory="30Gi")
        await heir.waits("InsufficientMemory")
        # All watches break, and what they stopped at is too old to go on from.
        expired = Expired(410, "Expired", "too old resource version")
        dark = proxy.inject(watches(), times=None, answer=expired)
        proxy.drop_watches()
        await goes.delete()
        await system.history.until(lambda: goes.body is None and goes.pod() is None)
        proxy.remove(dark)
        await heir.succeeds()


def lists(kind: str) -> Callable[[Request], bool]:
    """Match the lists of a kind."""

    def found(request: Request) -> bool:
        of_all = not request.target.name and not request.is_watch
        return of_all and request.kind == f"GET {kind}"

    return found


async def test_each_kind_is_listed_once(
    system: System, api_server: ApiServer, tmp_path: Path
) -> None:
    def whole(kind: str) -> Callable[[Request], bool]:
        """Match lists but those of one object, of which kopf asks before it watches."""
        found = lists(kind)
        return lambda request: found(request) and request.query.get("limit") != "1"

    async with FaultProxy(api_server) as proxy, system.nodes(1):
        kinds = [kind.plural for kind in feeds(State())]
        counts = {kind: proxy.inject(whole(kind), times=None, delay=0.001) for kind in kinds}
        single = {kind: proxy.inject(lists(kind), times=None, delay=0.001) for kind in kinds}
        partition = await system.partition()
        jobs = [await system.job(f"train-{n}", partition, gpuMemory="4Gi") for n in range(3)]
        async with system.operator(proxy.write_kubeconfig(tmp_path)):
            for job in jobs:
                await job.succeeds()
            await system.settle()
        assert {kind: fault.happened for kind, fault in counts.items()} == dict.fromkeys(kinds, 1)
        asked = dict.fromkeys(kinds, 1) | {"gpupartitions": 2, "sharedgpujobs": 2}
        assert {kind: fault.happened for kind, fault in single.items()} == asked


@pytest.mark.parametrize(
    "answer", [unavailable(), CannedAnswer(403, "Forbidden", 'RBAC: clusterrole "x" not found')]
)
async def test_who_leads_before_all_can_be_read_waits_for_it_or_for_its_end(
    system: System, api_server: ApiServer, tmp_path: Path, answer: CannedAnswer
) -> None:
    system.set_times(request_pause=0.001, retry_after=0.05)

    def reads(request: Request) -> bool:
        return request.method == "GET" and request.resource == "pods"

    async def waits() -> None:
        await until(lambda: any(e["event"] == "waiting for the API server" for e in system.logs))
        system.logs.clear()

    async with FaultProxy(api_server) as proxy, system.nodes(1):
        fault = proxy.inject(reads, times=None, answer=answer)
        kubeconfig = proxy.write_kubeconfig(tmp_path)
        async with system.operator(kubeconfig):
            await waits()
        async with system.operator(kubeconfig):
            await waits()
            proxy.remove(fault)
            partition = await system.partition()
            job = await system.job("train", partition, gpuMemory="4Gi")
            await job.succeeds()
            await system.settle()
