"""How faults ask the API server, and choose among what is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import aiohttp

from support.api import Answer

__all__ = ["ANSWERS_WITHIN", "by_name", "call", "pick"]

T = TypeVar("T")

ANSWERS_WITHIN = 60.0
"""Seconds within which the API server must answer again, whatever was killed."""


async def call(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until there is an answer: etcd may be away."""
    async with asyncio.timeout(ANSWERS_WITHIN):
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                answer = await ask()
                if answer.status < 500 and answer.status != 429:
                    return answer
            await asyncio.sleep(0.2)


def pick(place: float, among: Sequence[T]) -> T | None:
    """Return what is that part of the way along; None where nothing is."""
    return among[int(place * len(among))] if among else None


def by_name(body: dict[str, Any]) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
