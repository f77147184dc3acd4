"""Watches the agent's own GPUServer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import structlog

from partita.kube.client import SERVERS, Kube
from partita.kube.errors import KubernetesError
from partita.kube.watch import watch

__all__ = ["server_versions"]

_FIRST_PAUSE: Final = 0.5
"""Seconds before a failed watch is opened again; doubled after each further failure."""
_LONGEST_PAUSE: Final = 8.0


async def server_versions(kube: Kube, name: str) -> AsyncIterator[dict[str, Any]]:
    """Yield each version of a GPUServer, without end.

    The API server ends a watch after a few minutes. The next watch begins with the current version,
    so a version that was missed is made up for.
    """
    log = structlog.get_logger(__name__).bind(server=name)
    pause = _FIRST_PAUSE
    while True:
        try:
            async with watch(kube, SERVERS, name=name) as events:
                async for kind, body in events:
                    pause = _FIRST_PAUSE
                    if kind == "DELETED":
                        log.warning("the GPUServer has been deleted")
                    elif kind != "BOOKMARK":
                        yield body
            continue
        except KubernetesError as error:
            log.warning("GPUServer not watched", error=str(error))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
