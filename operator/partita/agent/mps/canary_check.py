"""Decides when a canary client is needed, and what its result means.

A canary costs one MPS client, the GPU memory of one context and less than a second (an assumption),
so it runs only when nothing else has shown that MPS works:

- after MPS has started, or the agent, and after a client ended uncleanly: the GPU takes no jobs
  until a canary has passed (`require`);
- after the last client has left, and after an attempt of which no sample showed a client: the GPU
  takes jobs meanwhile (`renew`).

No further canary runs while clients come and go.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from partita.agent.mps.canary_runner import CanaryOutcome, CanaryResult, CanaryRunner

__all__ = ["CanaryCheck"]

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
