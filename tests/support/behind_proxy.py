"""An operator behind a proxy that can break what it asks and hears."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from support.clusters import ApiServer
from support.proxy import FaultProxy
from support.system import System

__all__ = ["Behind", "behind"]

Behind = Callable[..., AbstractAsyncContextManager[FaultProxy]]


@pytest.fixture
def behind(system: System, api_server: ApiServer, tmp_path: Path) -> Behind:
    """Runs nodes with so many GPUs each, and an operator behind a proxy that can break things."""

    @asynccontextmanager
    async def run(*gpus: int) -> AsyncIterator[FaultProxy]:
        async with (
            FaultProxy(api_server) as proxy,
            system.nodes(*(gpus or (1,))),
            system.operator(proxy.write_kubeconfig(tmp_path)),
        ):
            yield proxy
            await system.settle()

    return run
