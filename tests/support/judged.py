"""A system of one test, whose operator's log is shown where the test fails."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any, TypeVar

import structlog

from support.api import Api
from support.clusters import ApiServer
from support.history import History
from support.system import System

__all__ = ["captured_logs", "judged"]

S = TypeVar("S", bound=System)


@contextlib.asynccontextmanager
async def judged(
    kind: type[S], api: Api, history: History, server: ApiServer, namespace: str
) -> AsyncIterator[S]:
    """Record all that happens to a new system, and judge it at the end."""
    with captured_logs() as logs:
        async with history.recording():
            system = kind(api, history, server, namespace)
            system.logs = logs
            yield system
            problems = await history.judged()
            await system.clean()
    assert not problems, "\n".join(problems)
    assert not [entry for entry in logs if entry.get("exc_info")]


@contextlib.contextmanager
def captured_logs() -> Iterator[list[dict[str, Any]]]:
    """Keep what is logged, and print it: pytest shows that where a test fails."""
    logs: list[dict[str, Any]] = []

    def log(_: object, level: str, entry: MutableMapping[str, Any]) -> str:
        logs.append({**entry, "log_level": level})
        print(logs[-1])  # noqa: T201
        raise structlog.DropEvent

    structlog.reset_defaults()  # a command's test before this one may have made it quiet
    structlog.configure(processors=[log])
    try:
        yield logs
    finally:
        structlog.reset_defaults()
