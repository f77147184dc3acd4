"""Asks a policy for its decision: in a thread, within a time budget, with a fallback."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from partita.models.partition import PolicySpec
from partita_policies.errors import PolicyError
from partita_policies.fifo import FIFO, FIFOParameters
from partita_policies.registry import create
from partita_policies.types import Placement, Policy, Snapshot

__all__ = ["Answer", "PolicyFailure", "PolicyRunner", "ShadowCount"]

T = TypeVar("T")

TIME_BUDGET = 2.0
"""Seconds a policy may take for one decision (an assumption: four times what issue-sized
queues, 10,000 jobs on 1,000 GPUs, may cost a learned policy)."""


class PolicyFailure(Exception):  # noqa: N818 - it is the failure, not an error of ours
    """A policy gave no usable answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be placed, and who said so."""

    placements: Sequence[Placement]
    policy: str
    failure: str = ""
    """Why the policy in charge did not decide."""
    seconds: float = 0.0


@dataclass(slots=True)
class ShadowCount:
    """What a shadow policy would have done so far."""

    cycles: int = 0
    agreed: int = 0
    placements: int = 0
    failures: int = 0
    message: str = ""


@dataclass(slots=True)
class _Candidate:
    """One policy and the thread that it thinks in."""

    name: str
    policy: Policy | None = None
    problem: str = ""
    thinking: threading.Thread | None = field(default=None, repr=False)

    async def ask(self, snapshot: Snapshot, budget: float) -> list[Placement]:
        """Return its decision.

        Raises
        ------
        PolicyFailure
            If it cannot be had, raises, answers nonsense or takes too long. A policy that has
            not come back from an earlier cycle is not asked again until it has.
        """
        if self.policy is None:
            raise PolicyFailure(self.problem)
        if self.thinking is not None and self.thinking.is_alive():
            raise PolicyFailure(f"policy {self.name} has not come back from an earlier cycle")
        decide = self.policy.decide
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.thinking = _in_thread(lambda: list(decide(snapshot)), answer, self.name)
        try:
            async with asyncio.timeout(budget):
                placements: list[Placement] = await answer
        except TimeoutError:
            raise PolicyFailure(
                f"policy {self.name} took longer than its budget of {budget:g} s"
            ) from None
        except Exception as error:
            raise PolicyFailure(
                f"policy {self.name} raised {type(error).__name__}: {error}"
            ) from error
        for placement in placements:
            if not isinstance(placement, Placement):
                raise PolicyFailure(
                    f"policy {self.name} answered {type(placement).__name__}, not Placement"
                )
        return placements


def _in_thread(work: Callable[[], T], answer: "asyncio.Future[T]", name: str) -> threading.Thread:
    """Run work in a daemon thread: one that hangs keeps neither the loop nor the exit."""
    loop = asyncio.get_running_loop()

    def deliver(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        problem: Exception | None = None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - somebody else's code; it is reported
            # A future refuses a StopIteration.
            problem = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
        except BaseException as error:  # noqa: BLE001 - such as sys.exit() in a policy
            problem = RuntimeError(repr(error))
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result, problem)

    thread = threading.Thread(target=run, name=f"policy-{name}", daemon=True)
    thread.start()
    return thread


class PolicyRunner:
    """The policies of one partition: the one in charge, its fallback, its shadows.

    Built anew whenever `spec.policy` changes.
    """

    def __init__(self, spec: PolicySpec, *, budget: float = TIME_BUDGET) -> None:
        self.spec = spec
        self._budget = budget
        parameters = dict(spec.parameters)
        if spec.model is not None:
            parameters["model"] = spec.model
        self._charge = _candidate(spec.name, parameters)
        self._fallback = _candidate(spec.fallback, {})
        self._shadows = [_candidate(name, {}) for name in spec.shadow]
        self.shadow_counts = {name: ShadowCount() for name in spec.shadow}
        self.cycles = self.fallbacks = self.rejected = 0
        self.failure = ""
        """Why the policy in charge did not decide in the last cycle; empty when it did."""

    @property
    def problem(self) -> str:
        """Why the policy in charge, the fallback or a shadow cannot be had."""
        everyone = (self._charge, self._fallback, *self._shadows)
        return "; ".join(c.problem for c in everyone if c.problem)

    async def decide(self, snapshot: Snapshot) -> Answer:
        """Ask the policy in charge, and the fallback if it fails."""
        self.cycles += 1
        began = time.perf_counter()
        try:
            placements = await self._charge.ask(snapshot, self._budget)
        except PolicyFailure as failure:
            return await self.fall_back(snapshot, str(failure))
        self.failure = ""
        return Answer(placements, self.spec.name, seconds=time.perf_counter() - began)

    async def fall_back(self, snapshot: Snapshot, failure: str) -> Answer:
        """Ask the fallback, because the policy in charge failed or broke a rule."""
        self.failure = failure
        self.fallbacks += 1
        began = time.perf_counter()
        try:
            placements = await self._fallback.ask(snapshot, self._budget)
            decided = self.spec.fallback
        except PolicyFailure as second:
            # The last resort comes with us, so that no broken plug-in stops a partition.
            self.failure = f"{failure}; the fallback too: {second}; fifo decides"
            placements = list(FIFO(FIFOParameters()).decide(snapshot))
            decided = "fifo"
        seconds = time.perf_counter() - began
        return Answer(placements, decided, failure=self.failure, seconds=seconds)

    async def run_shadows(self, snapshot: Snapshot, placed: Sequence[Placement]) -> None:
        """Let the shadow policies decide on the same snapshot; count, do nothing."""
        done = {(p.job, p.gpus) for p in placed}
        for shadow in self._shadows:
            count = self.shadow_counts[shadow.name]
            count.cycles += 1
            try:
                placements = await shadow.ask(snapshot, self._budget)
            except PolicyFailure as failure:
                count.failures += 1
                count.message = str(failure)
                continue
            count.placements += len(placements)
            count.agreed += {(p.job, p.gpus) for p in placements} == done


def _candidate(name: str, parameters: dict[str, Any]) -> _Candidate:
    try:
        return _Candidate(name, create(name, parameters))
    except PolicyError as error:
        return _Candidate(name, problem=str(error))
