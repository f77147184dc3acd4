"""An operator that is killed after every so many of its writes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from support.faults import When
from support.operator_process import Forge
from support.proxy import FaultProxy
from support.requests import Request

__all__ = ["kill_while"]


async def kill_while(
    scenario: Coroutine[Any, Any, None],
    forge: Forge,
    proxy: FaultProxy,
    folder: Path,
    counts: Callable[[Request], bool],
    *,
    lives: Sequence[int],
    when: When,
) -> int:
    """Let users do something while operators run one after the other; return how many were killed.

    Parameters
    ----------
    scenario
        What users do and see.
    counts
        Tells the writes that count.
    lives
        After how many writes the operators are killed, in turn.
    when
        Whether the last write of each takes effect.
    """
    kubeconfig, log = proxy.write_kubeconfig(folder), folder / "log"
    work = asyncio.create_task(scenario)
    kills, writes = 0, itertools.cycle(lives)
    while not work.done():
        operator = await forge.start(kubeconfig, log, identity="crash")
        fault = proxy.inject(counts, nth=next(writes), when=when, hook=proxy.killing(operator.pid))
        ends: set[asyncio.Future[Any]] = {work, operator.ended}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        proxy.remove(fault)
        if operator.ended.done():
            assert fault.happened, operator.log[-4000:]
            kills += 1
        else:
            await operator.stop()
    await work
    assert "Traceback" not in log.read_text()
    return kills
