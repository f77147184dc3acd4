"""Asks a policy for its decision: in a thread, within a time budget, with a fallback."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from partita.models.partition import PolicySpec
from partita_policies.errors import PolicyError
from partita_policies.fifo import FIFO, FIFOParameters
from partita_policies.registry import create
from partita_policies.types import Placement, Policy, Snapshot

__all__ = ["Answer", "PolicyFailure", "PolicyRunner", "ShadowCount"]

TIME_BUDGET = 2.0
"""Seconds a policy may take for one decision (an assumption: four times what issue-sized
queues, 10,000 jobs on 1,000 GPUs, may cost a learned policy)."""


_MAX_FOREIGN_TEXT = 500
"""Characters of a policy's own words that reach a condition."""


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
    thinking: "_Thought | None" = field(default=None, repr=False)

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
        if self.thinking is not None and not self.thinking.over:
            raise PolicyFailure(f"policy {self.name} has not come back from an earlier cycle")
        self.thinking = _Thought(self.name, self.policy, snapshot)
        try:
            async with asyncio.timeout(budget):
                return await self.thinking.answer
        except TimeoutError:
            raise PolicyFailure(
                f"policy {self.name} took longer than its budget of {budget:g} s"
            ) from None


class _Thought:
    """One decision, in a daemon thread: one that hangs keeps neither the loop nor the exit."""

    def __init__(self, name: str, policy: Policy, snapshot: Snapshot) -> None:
        self._name = name
        self._policy = policy
        self._snapshot = snapshot
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[list[Placement]] = self._loop.create_future()
        self.over = False
        """Whether the policy has come back."""
        threading.Thread(target=self._run, name=f"policy-{name}", daemon=True).start()

    def _run(self) -> None:
        answer: list[Placement] | PolicyFailure
        try:
            answer = self._decide()
        except PolicyFailure as failure:
            answer = failure
        except BaseException as error:  # noqa: BLE001 - somebody else's code, even sys.exit()
            answer = PolicyFailure(f"policy {self._name} raised {_said(error)}")
        self.over = True
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, answer)

    def _decide(self) -> list[Placement]:
        most = len(self._snapshot.jobs)
        # One that never ends must not fill the memory.
        placements = list(islice(self._policy.decide(self._snapshot), most + 1))
        if len(placements) > most:
            raise PolicyFailure(f"policy {self._name} answered more placements than there are jobs")
        for placement in placements:
            if not _is_placement(placement):
                raise PolicyFailure(
                    f"policy {self._name} answered {_cut(repr(placement))}, not a Placement of a "
                    "job's id and a tuple of GPUs' ids"
                )
        return placements

    def _deliver(self, answer: list[Placement] | PolicyFailure) -> None:
        if self.answer.done():
            return  # nobody waits for it any more
        if isinstance(answer, PolicyFailure):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


def _is_placement(value: object) -> bool:
    if not isinstance(value, Placement):
        return False
    job: object = value.job
    gpus: object = value.gpus
    whole = isinstance(job, str) and isinstance(gpus, tuple)
    return whole and all(isinstance(gpu, str) for gpu in value.gpus)


def _said(error: BaseException) -> str:
    try:
        return _cut(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - its message is somebody else's code as well
        return type(error).__name__


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_FOREIGN_TEXT else f"{text[:_MAX_FOREIGN_TEXT]}..."


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
        self.active = spec.fallback if self._charge.problem else spec.name
        """The policy that decided in the last cycle, or will in the first."""

    @property
    def problem(self) -> str:
        """Say why the policy in charge, the fallback or a shadow cannot be had."""
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
        self.failure, self.active = "", self.spec.name
        return Answer(placements, self.spec.name, seconds=time.perf_counter() - began)

    async def fall_back(self, snapshot: Snapshot, failure: str) -> Answer:
        """Ask the fallback, because the policy in charge failed or broke a rule."""
        self.failure = failure
        self.fallbacks += 1
        began = time.perf_counter()
        try:
            placements = await self._fallback.ask(snapshot, self._budget)
            self.active = self.spec.fallback
        except PolicyFailure as second:
            # The last resort comes with us, so that no broken plug-in stops a partition.
            self.failure = f"{failure}; the fallback too: {second}; fifo decides"
            placements = list(FIFO(FIFOParameters()).decide(snapshot))
            self.active = "fifo"
        seconds = time.perf_counter() - began
        return Answer(placements, self.active, failure=self.failure, seconds=seconds)

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
