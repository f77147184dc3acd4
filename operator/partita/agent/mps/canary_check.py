"""Decides when a canary client is needed, and what its result means.

A canary costs one MPS client, the GPU memory of one context and less than a second (an assumption),
so it runs only when nothing else has shown that MPS works:

- after MPS has started, or the agent, and after a client ended uncleanly: the GPU takes no jobs
  until a canary has passed (`require`);
- after the last client has left, and after an attempt of which no sample showed a client: the GPU
  takes jobs meanwhile (`renew`).

No further canary runs while clients come and go.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from partita.agent.mps.canary_runner import CanaryOutcome, CanaryResult

__all__ = ["CanaryCheck"]

_FIRST_RETRY: Final = 2.0
_LONGEST_RETRY: Final = 30.0
"""Seconds before another canary runs after one that was refused, doubled each time."""
_ANSWERED_WITHIN: Final = 20.0
"""Seconds for the MPS container to answer a request, beside those that a canary may take."""


@dataclass(slots=True)
class CanaryCheck:
    """The canaries of one GPU.

    Parameters
    ----------
    request
        Requests a canary and returns the number of the request.
    read
        Returns the newest canary.
    busy
        Returns whether the control daemon executes another command. While it terminates a client,
        the server refuses new clients, so a canary could not pass.
    """

    request: Callable[[], int]
    read: Callable[[], CanaryResult | None]
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
    _number: int = 0
    """Number of the request that is not answered yet; 0 for none."""
    _again: bool = False
    """Whether something has happened since the request, so that passing it does not suffice."""
    _disturbed: bool = False
    _requested_at: float = 0.0
    _retry_at: float = 0.0

    @property
    def running(self) -> bool:
        """Whether a canary was requested and has not ended."""
        return self._number != 0

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
        self._number, self._again, self._retry_at, self.hung = 0, False, 0.0, 0

    def pid(self) -> int:
        """Return the PID of the newest canary, which is no client of a job; 0 if there is none."""
        result = self.read()
        return result.pid if result is not None else 0

    def step(self, now: float, *, queued: bool = False) -> CanaryOutcome | None:
        """Request a canary if one is needed; return the outcome of one that has ended.

        Call it while MPS is ACTIVE.

        Parameters
        ----------
        now
            Seconds of a monotonic clock.
        queued
            Whether a canary would wait until the clients of another user have exited.
        """
        busy = queued or self.busy()
        if self._number:
            self._disturbed |= busy
            result = self.read()
            if result is not None and result.number != self._number:
                result = None
            if result is not None and result.outcome is not None:
                return self._ended(result, now)
            within = result.within if result is not None else 0.0
            if now - self._requested_at >= _ANSWERED_WITHIN + within:
                said = "the container mps did not run a canary"
                return self._ended(CanaryResult(0, 0, CanaryOutcome.REFUSED, message=said), now)
        elif (self.required or self._renew) and now >= self._retry_at and not busy:
            self._number, self._requested_at = self.request(), now
            self._disturbed = False
        return None

    def _ended(self, result: CanaryResult, now: float) -> CanaryOutcome | None:
        self._number = 0
        self.checks += 1
        self.seconds, self.error = result.seconds, result.message
        outcome = result.outcome
        if outcome is CanaryOutcome.PASSED:
            self.refused = self.hung = 0
            self._renew = False
            if not self._again:
                self.required = ""
            self._again = False
            return outcome
        self.failures += 1
        self._again = False
        if outcome is CanaryOutcome.HUNG and not self._disturbed:
            self.hung += 1
            self.required = f"a canary client hung: {result.message}"
            return outcome
        self.hung = 0
        self.refused += 1
        self._retry_at = now + min(_FIRST_RETRY * 2.0 ** (self.refused - 1), _LONGEST_RETRY)
        self.require(f"a canary client was refused: {result.message}")
        return CanaryOutcome.REFUSED

    def status(self) -> dict[str, Any]:
        """Return the field `canary` of the status of MPS."""
        return {
            "checks": self.checks,
            "failures": self.failures,
            "durationMilliseconds": round(self.seconds * 1000),
        }
