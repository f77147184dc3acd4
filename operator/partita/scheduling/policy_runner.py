"""Builds and runs policies in threads, within a time budget and with a fallback."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from partita.models.partition import PolicySpec
from partita.times import Times
from partita_policies.errors import PolicyError
from partita_policies.fifo import FIFO, FIFOParameters
from partita_policies.registry import create
from partita_policies.start_times.wait_change import WaitChange
from partita_policies.types import Placement, Policy, Snapshot

__all__ = ["Answer", "PolicyFailure", "PolicyRunner", "ShadowCount", "Thought", "WaitingRule"]

TIME_BUDGET = 2.0
"""Maximum seconds for one decision of a policy. An assumption: four times the allowance of a
learned policy for 10,000 jobs on 1,000 GPUs."""

_MAX_FOREIGN_TEXT = 500
"""Maximum characters of a policy's own text in a condition."""
_MAX_PROBLEM = 2000
"""Maximum characters of the reason why a policy cannot be built. The reason contains the names of
files, parameters and policies."""


T = TypeVar("T")


class PolicyFailure(Exception):  # noqa: N818 - it is the failure, not an error of ours
    """A policy did not return a usable answer."""


@dataclass(frozen=True, slots=True)
class WaitingRule:
    """By which rule a policy lets jobs wait although they fit; see `partita_policies.Policy`."""

    reason: str = ""
    """The rule, as a predicate; empty if the policy states none."""
    in_order: bool = False
    """Whether a job waits for those before it in the queue."""
    slowdown_budget: float | None = None
    """The largest slowdown that the policy may predict for any job; None for no limit."""
    kept_for: Mapping[str, str] = field(default_factory=dict)
    """The job for which the policy keeps the room that another one fits, by the UID of that."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Placements, and the policy that chose them."""

    placements: Sequence[Placement]
    policy: str
    failure: str = ""
    """Why the active policy did not decide."""
    seconds: float = 0.0
    rule: WaitingRule = WaitingRule()


@dataclass(slots=True)
class ShadowCount:
    """Counts of a shadow policy's decisions."""

    cycles: int = 0
    agreed: int = 0
    placements: int = 0
    failures: int = 0
    message: str = ""
    waits: WaitChange = field(default_factory=WaitChange)


@dataclass(slots=True)
class _Candidate:
    """One policy with its calls in progress."""

    name: str
    parameters: dict[str, Any]
    times: Times
    policy: Policy | None = None
    problem: str = ""
    built_at: float = -inf
    thinking: "Thought[list[Placement]] | None" = field(default=None, repr=False)
    building: "Thought[Policy] | None" = field(default=None, repr=False)

    @property
    def rule(self) -> WaitingRule:
        """The policy's rule to let jobs wait although they fit; none if it cannot be read."""
        try:
            reason: object = getattr(self.policy, "waiting_reason", "")
            budget: object = getattr(self.policy, "slowdown_budget", None)
            kept: object = getattr(self.policy, "kept_for", None)
            return WaitingRule(
                _cut(reason) if isinstance(reason, str) else "",
                getattr(self.policy, "in_order", False) is True,
                float(budget) if isinstance(budget, int | float) else None,
                _names(kept) if isinstance(kept, dict) else {},
            )
        except Exception:  # noqa: BLE001 - third-party code, which must not stop a partition
            return WaitingRule()

    async def ask(self, snapshot: Snapshot, budget: float) -> list[Placement]:
        """Return the policy's decision.

        Raises
        ------
        PolicyFailure
            If the policy cannot be built, raises, returns an invalid answer or takes too long. It
            is not called again while a call from an earlier cycle is still running.
        """
        policy = self.policy or await self.build()
        if self.thinking is not None and not self.thinking.over:
            raise PolicyFailure(f"policy {self.name} has not come back from an earlier cycle")
        self.thinking = Thought(self.name, lambda: _placements(self.name, policy, snapshot))
        answer = self.thinking.answer
        # Unlike asyncio.timeout, it keeps an answer that came while the event loop stood still.
        await asyncio.wait([answer], timeout=budget)
        if not answer.done():
            answer.cancel()
            raise PolicyFailure(f"policy {self.name} took longer than its budget of {budget:g} s")
        return answer.result()

    async def build(self) -> Policy:
        """Build the policy from its parameters, if the last attempt is long enough ago.

        Raises
        ------
        PolicyFailure
            If it cannot be built, or takes too long. Then a later call uses what comes of the same
            attempt.
        """
        building = self.building
        if building is None:
            if time.monotonic() < self.built_at + self.times.build_policy_again:
                raise PolicyFailure(self.problem)
            self.built_at = time.monotonic()
            work = partial(_created, self.name, self.parameters)
            building = self.building = Thought(self.name, work)
            await asyncio.wait([building.answer], timeout=self.times.policy_built)
        if not building.answer.done():
            self.problem = f"policy {self.name} is still being built"
            raise PolicyFailure(self.problem)
        self.building = None
        try:
            self.policy, self.problem = building.answer.result(), ""
        except PolicyFailure as failure:
            self.problem = str(failure)
            raise
        return self.policy


class _Threads:
    """Reusable daemon threads for third-party code. Starting a thread would delay the event loop.

    A thread that hangs blocks neither the loop nor the exit, and gets no more work.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []

    def run(self, work: Callable[[], None]) -> None:
        """Run a function in an idle thread, or in a new one."""
        try:
            tasks = self._idle.pop()
        except IndexError:
            tasks = SimpleQueue()
            threading.Thread(target=self._work, args=(tasks,), name="policy", daemon=True).start()
        tasks.put(work)

    def _work(self, tasks: "SimpleQueue[Callable[[], None]]") -> None:
        while True:
            tasks.get()()
            self._idle.append(tasks)


_threads = _Threads()


class Thought(Generic[T]):
    """A call of third-party code in a thread, whose result is awaited in the event loop."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._name = name
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self._loop.create_future()
        self.over = False
        """Whether the policy has returned."""
        _threads.run(self._run)

    def _run(self) -> None:
        answer: T | PolicyFailure
        try:
            answer = self._work()
        except PolicyFailure as failure:
            answer = failure
        except BaseException as error:  # noqa: BLE001 - third-party code, even sys.exit()
            answer = PolicyFailure(f"policy {self._name} raised {_said(error)}")
        self.over = True
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, answer)

    def _deliver(self, answer: T | PolicyFailure) -> None:
        if self.answer.done():
            return  # the caller no longer waits for it
        if isinstance(answer, PolicyFailure):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


def _created(name: str, parameters: dict[str, Any]) -> Policy:
    try:
        return create(name, parameters)
    except PolicyError as error:
        raise PolicyFailure(_cut(str(error), _MAX_PROBLEM)) from error


def _placements(name: str, policy: Policy, snapshot: Snapshot) -> list[Placement]:
    most = len(snapshot.jobs)
    # An endless iterator must not fill the memory.
    placements = list(islice(policy.decide(snapshot), most + 1))
    if len(placements) > most:
        raise PolicyFailure(f"policy {name} answered more placements than there are jobs")
    for placement in placements:
        if not _is_placement(placement):
            raise PolicyFailure(
                f"policy {name} answered {_cut(repr(placement))}, not a Placement of a job's id "
                "and a tuple of GPUs' ids"
            )
    return placements


def _is_placement(value: object) -> bool:
    if not isinstance(value, Placement):
        return False
    job: object = value.job
    gpus: object = value.gpus
    whole = isinstance(job, str) and isinstance(gpus, tuple)
    return whole and all(isinstance(gpu, str) for gpu in value.gpus)


def _names(found: dict[object, object]) -> dict[str, str]:
    return {
        job: other
        for job, other in found.items()
        if isinstance(job, str) and isinstance(other, str)
    }


def _said(error: BaseException) -> str:
    try:
        return _cut(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - its __str__ is third-party code as well
        return type(error).__name__


def _cut(text: str, most: int = _MAX_FOREIGN_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


class PolicyRunner:
    """The policies of one partition: the active policy, its fallback and the shadow policies.

    It is rebuilt whenever `spec.policy` changes.
    """

    def __init__(
        self, spec: PolicySpec, *, budget: float = TIME_BUDGET, times: Times = Times()
    ) -> None:
        self.spec = spec
        self._budget = budget
        self._charge = _Candidate(spec.name, spec.all_parameters, times)
        self._fallback = _Candidate(spec.fallback, {}, times)
        self._shadows = [_Candidate(name, {}, times) for name in spec.shadow]
        self.shadow_counts = {name: ShadowCount() for name in spec.shadow}
        self.cycles = self.fallbacks = self.rejected = 0
        self.failure = ""
        """Why the active policy did not decide in the last cycle; empty if it did, or was built
        since then."""
        self.active = spec.name
        """The policy that decided in the last cycle, or is to decide in the next one."""

    @property
    def problem(self) -> str:
        """Why the active policy, the fallback or a shadow policy cannot be built."""
        return "; ".join(c.problem for c in self._everyone() if c.problem)

    async def build(self) -> None:
        """Build the policies that are not built yet; `problem` says which cannot be."""
        was_built = self._charge.policy is not None
        unbuilt = (c.build() for c in self._everyone() if c.policy is None)
        await asyncio.gather(*unbuilt, return_exceptions=True)
        if self._charge.policy is not None and not was_built:
            self.failure, self.active = "", self.spec.name
        elif self._charge.problem and not self.cycles:
            self.active = self.spec.fallback

    def _everyone(self) -> tuple[_Candidate, ...]:
        return (self._charge, self._fallback, *self._shadows)

    async def decide(self, snapshot: Snapshot) -> Answer:
        """Call the active policy, and the fallback if it fails."""
        self.cycles += 1
        began = time.perf_counter()
        try:
            placements = await self._charge.ask(snapshot, self._budget)
        except PolicyFailure as failure:
            return await self.fall_back(snapshot, str(failure))
        self.failure, self.active = "", self.spec.name
        seconds, rule = time.perf_counter() - began, self._charge.rule
        return Answer(placements, self.spec.name, seconds=seconds, rule=rule)

    async def fall_back(self, snapshot: Snapshot, failure: str) -> Answer:
        """Call the fallback, because the active policy failed or broke a rule."""
        self.failure = failure
        self.fallbacks += 1
        rule = WaitingRule()
        began = time.perf_counter()
        try:
            placements = await self._fallback.ask(snapshot, self._budget)
            self.active, rule = self.spec.fallback, self._fallback.rule
        except PolicyFailure as second:
            # The last resort is built in, so that broken plug-ins cannot stop a partition.
            self.failure = f"{failure}; the fallback too: {second}; fifo decides"
            placements = list(FIFO(FIFOParameters()).decide(snapshot))
            self.active = "fifo"
        seconds = time.perf_counter() - began
        return Answer(placements, self.active, self.failure, seconds, rule)

    async def run_shadows(self, snapshot: Snapshot, placed: Sequence[Placement]) -> None:
        """Run the shadow policies on the same snapshot, and only count their decisions."""
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
