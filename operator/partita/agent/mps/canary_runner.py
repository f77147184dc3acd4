"""Runs canary clients of the MPS control daemon in processes of their own."""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import structlog

from partita.agent.event_wait import ends_within
from partita.agent.mps.namespaces import CANARY, namespace_directory
from partita.agent.mps.report import MPSReport

__all__ = ["CanaryOutcome", "CanaryResult", "CanaryRunner"]

_SLOWER: Final = 3.0
"""How much longer than the start of its server a canary may take. Both initialise CUDA, which takes
0.5 s, but 6.6 s with confidential computing and no persistence daemon
(https://github.com/NVIDIA/nvtrust/issues/113). That a canary is three times as slow at most, on a
GPU that jobs use, is an assumption."""
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
class CanaryResult:
    """What a canary has shown, and how long it took."""

    outcome: CanaryOutcome
    seconds: float
    message: str = ""
    """Its error."""


@dataclass(slots=True)
class CanaryRunner:
    """Runs the canaries of one GPU.

    Parameters
    ----------
    uuid
        The GPU.
    pipes
        CUDA_MPS_PIPE_DIRECTORY of the control daemon.
    report
        Returns what the MPS container has started.
    within
        Seconds in which a canary must end, unless the server needed long to start.
    """

    uuid: str
    pipes: Path
    report: Callable[[], MPSReport | None]
    within: float
    pid: int = 0
    """PID of the newest canary; 0 before the first one."""
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    async def run(self) -> CanaryResult:
        """Run a canary; it is killed if it hangs, or if this is cancelled."""
        loop = asyncio.get_running_loop()
        began, report = loop.time(), self.report()
        within = max(self.within, _SLOWER * report.started_in) if report else self.within
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "partita.agent.mps.canary", self.uuid),
                env={**os.environ, **self._environment(report)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            return CanaryResult(CanaryOutcome.REFUSED, 0.0, f"it did not start: {error}")
        self.pid = process.pid
        try:
            outcome, message = await _ended(process, within)
        finally:
            await _kill(process)
        result = CanaryResult(outcome, loop.time() - began, message)
        self._log.info("canary", outcome=outcome, seconds=result.seconds, error=message)
        return result

    def _environment(self, report: MPSReport | None) -> dict[str, str]:
        """Return the variables that make a canary a client.

        With static SM partitions a client must choose one; clients may share a partition.
        """
        pipes = self.pipes
        if report is not None and report.protocol == 3:
            pipes = namespace_directory(pipes, CANARY)
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_VISIBLE_DEVICES": self.uuid}
        if report is not None and report.sm_partitions:
            environment["CUDA_MPS_SM_PARTITION"] = report.sm_partitions[0]
        return environment


async def _ended(process: asyncio.subprocess.Process, within: float) -> tuple[CanaryOutcome, str]:
    try:
        async with asyncio.timeout(within):
            _, said = await process.communicate()
    except TimeoutError:
        return CanaryOutcome.HUNG, f"CUDA did not return within {within:.3g} s"
    if process.returncode == 0:
        return CanaryOutcome.PASSED, ""
    lines = said.decode(errors="replace").strip().splitlines()
    error = lines[-1] if lines else f"exit code {process.returncode}"
    return CanaryOutcome.REFUSED, error[:_MESSAGE]


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await ends_within(_KILLED_WITHIN, process.wait())
