"""Simulated nodes that run while a block does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from partita_testcluster.nodes import NodeSpec, run_nodes
from support.polling import TIMEOUT

__all__ = ["simulated_nodes"]


@contextlib.asynccontextmanager
async def simulated_nodes(
    kubeconfig: Path, nodes: Sequence[NodeSpec], **options: Any
) -> AsyncIterator[None]:
    """Run nodes, from when all have started."""
    stop, started = asyncio.Event(), asyncio.Event()
    work = asyncio.create_task(
        run_nodes(kubeconfig, nodes=nodes, stop=stop, started=started, **options)
    )
    waiting = asyncio.create_task(started.wait())
    async with asyncio.timeout(TIMEOUT):
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        if work.done():
            work.result()
        yield
    finally:
        stop.set()
        await work
