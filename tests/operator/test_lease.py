"""Two operators, one Lease: one works, the other is ready to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.clusters import ApiServer
from support.operator_process import Forge, OperatorProcess
from support.polling import TIMEOUT, until
from support.proxy import FaultProxy
from support.requests import Request
from support.system import LEASE, System

DURATION = 20.0
"""Seconds of the lease: long for a slow machine, short for a test."""


async def holder(system: System, *names: str) -> None:
    """Wait until the lease is held by one of these."""
    await system.api.until(LEASE, lambda lease: lease["spec"].get("holderIdentity") in names)


def kill(*operators: OperatorProcess) -> None:
    """End those that a failed test has left."""
    for operator in operators:
        if not operator.ended.done():
            os.kill(operator.pid, signal.SIGKILL)


def of_kopf(request: Request) -> bool:
    """Match what only kopf asks for, and the lists before it starts."""
    return request.resource in {"gpupartitions", "sharedgpujobs"}


@dataclass
class Pair:
    """A first operator that leads, and a second that waits."""

    proxy: FaultProxy
    """What the first writes goes through it."""
    first: OperatorProcess


@pytest.fixture
def pair(
    system: System, api_server: ApiServer, forge: Forge, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[Pair]]:
    """Runs two operators; at the block's end the second must lead, and must do its work."""

    async def start(name: str, proxy: FaultProxy) -> OperatorProcess:
        folder = tmp_path / name
        folder.mkdir()
        kubeconfig, options = proxy.write_kubeconfig(folder), {"lease_duration": DURATION}
        return await forge.start(kubeconfig, folder / "log", identity=name, **options)

    @asynccontextmanager
    async def run() -> AsyncIterator[Pair]:
        await system.api.delete(LEASE)
        async with (
            FaultProxy(api_server) as proxy,
            FaultProxy(api_server) as second_proxy,
            system.nodes(1),
            AsyncExitStack() as stack,
        ):
            first = await start("first", proxy)
            await holder(system, "first")
            looked = second_proxy.inject(of_kopf, times=None, delay=0.001)
            second = await start("second", second_proxy)
            stack.callback(kill, first, second)
            partition = await system.partition()
            job = await system.job("one", partition, gpuMemory="4Gi")
            await job.succeeds()
            await until(lambda: "waiting for the lease" in second.log)
            assert not second_proxy.writes
            assert not looked.happened, "kopf watches before it leads"
            yield Pair(proxy, first)
            await holder(system, "second")
            job = await system.job("two", partition, gpuMemory="4Gi")
            await job.succeeds()
            await system.settle()
            for operator in (first, second):
                if not operator.ended.done():
                    await operator.stop()

    return run


Run = Callable[[], AbstractAsyncContextManager[Pair]]


async def test_the_second_takes_over_at_once_from_one_that_is_stopped(pair: Run) -> None:
    async with pair() as run:
        assert await run.first.stop() == 0


async def test_one_that_slept_past_its_lease_wakes_up_and_writes_nothing(
    pair: Run, system: System
) -> None:
    async with pair() as run:
        os.kill(run.first.pid, signal.SIGSTOP)
        await holder(system, "second")
        run.proxy.writes.clear()
        # Something to do for whoever believes that it leads.
        job = await system.job("between", system.named("gpus"), gpuMemory="4Gi")
        await job.succeeds()
        os.kill(run.first.pid, signal.SIGCONT)
        async with asyncio.timeout(TIMEOUT):
            assert await run.first.ended != 0
        assert not [write.request.kind for write in run.proxy.writes if write.took_effect]
        assert "the lease is lost to" in run.first.log
