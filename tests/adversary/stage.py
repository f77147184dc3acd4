"""Keeps a cluster for many attacks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from typing_extensions import override

from adversary.attacked_cluster import AttackedCluster, running_cluster
from support.clusters import ApiServer
from support.crds import install_kinds
from support.history import History
from support.judged import captured_logs
from support.system import System

__all__ = ["Stage"]


class Stage:
    """Keeps a cluster for many attacks, and makes another once one has come to harm."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._stack = contextlib.AsyncExitStack()
        self._world: AttackedCluster | None = None

    async def cluster(self) -> AttackedCluster:
        """The cluster, in which no harm was done so far."""
        if self._world is None:
            self._world = await self._stack.enter_async_context(_world(self._server))
        return self._world

    async def close(self, *, spoilt: bool = False) -> None:
        """End it; of one that came to harm nothing is expected any more."""
        self._world = None
        try:
            await self._stack.aclose()
        except BaseException:
            if not spoilt:
                raise


class _Errors(logging.Handler):
    """Adds kopf's errors to those of the operator."""

    def __init__(self, logs: list[dict[str, Any]]) -> None:
        super().__init__(logging.ERROR)
        self._logs = logs

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._logs.append({"log_level": "error", "event": record.getMessage()})


@contextlib.asynccontextmanager
async def _world(server: ApiServer) -> AsyncIterator[AttackedCluster]:
    async with server.session() as session:
        admin = server.api(session)
        await install_kinds(admin)
        history = History(admin)
        async with history.recording():
            system = System(admin, history, server, "default")
            with captured_logs() as system.logs:
                theirs = _Errors(system.logs)
                logging.getLogger("kopf").addHandler(theirs)
                try:
                    async with running_cluster(server, system, admin) as cluster:
                        yield cluster
                finally:
                    logging.getLogger("kopf").removeHandler(theirs)
                    await system.clean()
