"""The operator, serving its metrics on loopback alone, and with them how long its cycles take.

python -m bench.load.metered run --health-port PORT ...
"""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

from aiohttp import web
from typing_extensions import override

import bench.imports  # noqa: F401 - before those of the operator
from partita.cli import main
from partita.decide.cycle import run_cycle
from partita.decide.cycle_result import CycleResult
from partita.operator import main as operator
from partita.operator import partition_cycles as cycles
from partita.operator.metrics.page import Metrics

CYCLES = "bench_cycle_seconds"


class _LoopbackSite(web.TCPSite):
    def __init__(self, runner: web.BaseRunner, *, port: int) -> None:
        super().__init__(runner, host="127.0.0.1", port=port)


class _Cycles:
    """Counts all cycles and their time, from a look at the queue to what is to be written."""

    def __init__(self) -> None:
        self._count, self._seconds = 0, 0.0

    async def run(self, *given: Any, **named: Any) -> CycleResult:
        """Run a cycle."""
        began = time.perf_counter()
        try:
            return await run_cycle(*given, **named)
        finally:
            self._count += 1
            self._seconds += time.perf_counter() - began

    def page(self) -> bytes:
        """Return what was counted, as Prometheus reads it."""
        return f"{CYCLES}_sum {self._seconds}\n{CYCLES}_count {self._count}\n".encode()


class _Page(Metrics):
    cycles = _Cycles()

    @override
    def render(self, accept: str) -> tuple[bytes, str]:
        page, content_type = super().render(accept)
        return page + self.cycles.page(), content_type


if __name__ == "__main__":
    with (
        patch.object(web, "TCPSite", _LoopbackSite),
        patch.object(cycles, "run_cycle", _Page.cycles.run),
        patch.object(operator, "Metrics", _Page),
    ):
        main()
