"""Programs that a test starts, and whose output it reads."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import Any

__all__ = ["program"]


@contextlib.asynccontextmanager
async def program(*command: str, **options: Any) -> AsyncIterator[Process]:
    """Run a program, and end it on leaving the context if it still runs."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # to its pipes' ends: they close with the loop then
