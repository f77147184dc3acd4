"""Runs canary clients beside the MPS control daemon, when the agent requests one.

The request is a number in `MPSConfig`, the result is a file beside it. Both survive a restart of
either container, so a request is answered once, by whichever container is there.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from partita.agent.shared_file import SharedFile

__all__ = ["CanaryOutcome", "CanaryResult", "CanaryRunner"]

_KILLED_WITHIN: Final = 2.0
"""Seconds for a killed canary to exit. One that hangs in the driver may not exit before MPS does;
it is left behind."""
_MESSAGE: Final = 200
"""Characters of an error that are reported."""


class CanaryOutcome(StrEnum):
    """What a canary has shown."""

    PASSED = "Passed"
    """MPS accepts clients."""
    REFUSED = "Refused"
    """CUDA returned an error: MPS answers, but it does not accept clients."""
    HUNG = "Hung"
    """CUDA did not return within the deadline: MPS may be wedged."""


@dataclass(frozen=True, slots=True)
class CanaryResult(SharedFile):
    """The newest canary."""

    number: int
    """Number of the request."""
    pid: int
    """The canary's PID."""
    outcome: CanaryOutcome | None = None
    """What it has shown; None while it runs."""
    seconds: float = 0.0
    """How long it took."""
    message: str = ""
    """Its error."""
    within: float = 0.0
    """Seconds in which it must end."""


class CanaryRunner:
    """Runs one canary at a time.

    Parameters
    ----------
    path
        The file for the results.
    within
        Seconds in which a canary must end.
    """

    def __init__(self, path: Path, within: float) -> None:
        self._path = path
        self._within = within
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger(__name__)

    def request(self, number: int, uuid: str, environment: Mapping[str, str]) -> None:
        """Run a canary unless this request was answered, or a canary runs.

        Parameters
        ----------
        number
            Number of the request; 0 for none.
        uuid
            The GPU.
        environment
            Variables that make the canary a client of the MPS control daemon.
        """
        if number == 0 or (self._task is not None and not self._task.done()):
            return
        last = CanaryResult.read(self._path)
        if last is None or last.number != number or last.outcome is None:
            self._task = asyncio.create_task(self._run(number, uuid, environment))

    async def close(self) -> None:
        """Kill a canary that runs; its request stays unanswered."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self, number: int, uuid: str, environment: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "partita.agent.mps.canary", uuid),
            env={**os.environ, **environment, "CUDA_VISIBLE_DEVICES": uuid},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            CanaryResult(number, process.pid, within=self._within).write(self._path)
            outcome, message = await self._ended(process)
        finally:
            await _kill(process)
        took = loop.time() - start
        result = CanaryResult(number, process.pid, outcome, took, message, self._within)
        self._log.info("canary", outcome=outcome, seconds=result.seconds, error=message)
        result.write(self._path)

    async def _ended(self, process: asyncio.subprocess.Process) -> tuple[CanaryOutcome, str]:
        try:
            async with asyncio.timeout(self._within):
                _, said = await process.communicate()
        except TimeoutError:
            return CanaryOutcome.HUNG, f"CUDA did not return within {self._within:.3g} s"
        if process.returncode == 0:
            return CanaryOutcome.PASSED, ""
        lines = said.decode(errors="replace").strip().splitlines()
        error = lines[-1] if lines else f"exit code {process.returncode}"
        return CanaryOutcome.REFUSED, error[:_MESSAGE]


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_WITHIN):
                await process.wait()
