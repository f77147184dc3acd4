"""What is remembered counts as whole only while its lists can be had."""

from __future__ import annotations

import asyncio

import pytest

from partita.informer import resync as module
from partita.informer.resync import Resync
from partita.informer.state import State
from partita.kube.client import JOBS, PODS
from partita.kube.errors import KubernetesError


class Kube:
    """Lists nothing, or fails to."""

    def __init__(self) -> None:
        self.fails = True
        self.asked: asyncio.Queue[bool] = asyncio.Queue()

    async def uids(self, kind, **_):
        self.asked.put_nowait(self.fails)
        if self.fails and kind is JOBS:
            raise KubernetesError("jobs", 503, "no list today")
        return set(), "7"


async def until(kube: Kube, resync: Resync, *, complete: bool) -> None:
    async with asyncio.timeout(30):
        while resync.complete is not complete:
            await kube.asked.get()


async def test_after_a_list_that_failed_it_is_incomplete_until_one_succeeds(monkeypatch) -> None:
    monkeypatch.setattr(module, "SETTLE", 0.0)
    monkeypatch.setattr(module, "RETRY_AFTER", 0.0)
    kube = Kube()
    resync = Resync(kube, State())  # type: ignore[arg-type]
    assert resync.complete
    work = asyncio.create_task(resync.run())
    resync.relisted(PODS)
    resync.relisted(JOBS)
    await until(kube, resync, complete=False)
    kube.fails = False
    await until(kube, resync, complete=True)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
