"""Runs canary clients of the MPS control daemon, decides when one is needed, and what it shows.

A canary costs one MPS client, the GPU memory of one context and less than a second (an assumption),
so it runs only when nothing else has shown that MPS works:

- after MPS has started, or the agent, and after a client ended uncleanly: the GPU takes no jobs
  until a canary has passed (`require`);
- after the last client has left, and after an attempt of which no sample showed a client: the GPU
  takes jobs meanwhile (`renew`).

No further canary runs while clients come and go.
"""

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
from partita.agent.mps.exchange import MPSReport
from partita.agent.mps.namespaces import CANARY, namespace_directory

__all__ = ["CanaryCheck", "CanaryOutcome", "CanaryResult", "CanaryRunner"]

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
    _processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    """The newest canary, and older ones that have not exited."""
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    @property
    def pids(self) -> frozenset[int]:
        """PIDs of the newest canary, and of older ones that hang in the driver."""
        return frozenset(process.pid for process in self._processes)

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
        self._processes = [p for p in self._processes if p.returncode is None] + [process]
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


_FIRST_RETRY: Final = 2.0
_LONGEST_RETRY: Final = 30.0
"""Seconds before another canary runs after one that was refused, doubled each time."""


@dataclass(slots=True)
class CanaryCheck:
    """The canaries of one GPU.

    Parameters
    ----------
    runner
        Runs them.
    busy
        Returns whether the control daemon executes another command. While it terminates a client,
        the server refuses new clients, so a canary could not pass.
    """

    runner: CanaryRunner
    busy: Callable[[], bool]
    required: str = "MPS has just started"
    """Why the GPU takes no jobs until a canary has passed; empty if it takes jobs."""
    refused: int = 0
    """Consecutive canaries that did not pass and did not hang."""
    hung: int = 0
    """Consecutive canaries that hung."""
    error: str = ""
    """Why the last canary did not pass; empty if it passed."""
    checks: int = 0
    """Canaries that have ended."""
    failures: int = 0
    """Canaries that did not pass."""
    seconds: float = 0.0
    """How long the last canary took."""
    _renew: bool = False
    _task: asyncio.Future[CanaryResult] | None = None
    """The canary that has not ended; None if none runs."""
    _again: bool = False
    """Whether something has happened since its start, so that passing it does not suffice."""
    _disturbed: bool = False
    _retry_at: float = 0.0

    @property
    def running(self) -> bool:
        """Whether a canary has not ended."""
        return self._task is not None

    def require(self, why: str) -> None:
        """Require a canary that starts from now on before the GPU takes jobs."""
        self.required = why
        self._again = self.running

    def renew(self) -> None:
        """Run a canary soon, while the GPU takes jobs."""
        self._renew = True

    def restarted(self) -> None:
        """Require a canary of an MPS that is about to start."""
        self.required = "MPS was restarted"
        self._again, self._retry_at, self.hung = False, 0.0, 0
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Kill a canary that runs, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def step(self, now: float, *, queued: bool = False) -> bool:
        """Start a canary if one is needed; return whether one has hung.

        Call it while MPS is ACTIVE.

        Parameters
        ----------
        now
            Seconds of a monotonic clock.
        queued
            Whether a canary would wait until the clients of another user have exited.
        """
        busy = queued or self.busy()
        if self._task is not None:
            self._disturbed |= busy
            if self._task.done():
                return self._ended(self._task.result(), now)
        elif (self.required or self._renew) and now >= self._retry_at and not busy:
            self._task = asyncio.ensure_future(self.runner.run())
            self._disturbed = False
        return False

    def _ended(self, result: CanaryResult, now: float) -> bool:
        self._task = None
        self.checks += 1
        self.seconds, self.error = result.seconds, result.message
        outcome = result.outcome
        if outcome is CanaryOutcome.PASSED:
            self.refused = self.hung = 0
            self._renew = False
            if not self._again:
                self.required = ""
            self._again = False
            return False
        self.failures += 1
        self._again = False
        if outcome is CanaryOutcome.HUNG and not self._disturbed:
            self.hung += 1
            self.required = f"a canary client hung: {result.message}"
            return True
        self.hung = 0
        self.refused += 1
        self._retry_at = now + min(_FIRST_RETRY * 2.0 ** (self.refused - 1), _LONGEST_RETRY)
        self.require(f"a canary client was refused: {result.message}")
        return False

    def status(self) -> dict[str, Any]:
        """Return the field `canary` of the status of MPS."""
        return {
            "checks": self.checks,
            "failures": self.failures,
            "durationMilliseconds": round(self.seconds * 1000),
        }
