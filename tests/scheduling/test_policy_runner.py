"""Policies think in threads of their own, under a budget, with somebody to fall back on."""

import asyncio
import os
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from partita.models.partition import PolicySpec
from partita.scheduling.policy_runner import PolicyFailure, PolicyRunner
from partita.times import Times
from partita_policies import GPU, Job, Parameters, Placement, Snapshot, registry
from support.polling import TIMEOUT, until

SNAPSHOT = Snapshot(
    "shared",
    0.0,
    (Job("job", "team-a/job", "team-a", memory=1),),
    (GPU("gpu", "node", memory=10, max_jobs=2),),
)
PLACED = [Placement("job", ("gpu",))]


class Hanging:
    """A policy that answers when it is let go; it counts how often it was asked."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = 0

    def decide(self, _: Snapshot) -> list[Placement]:
        self.asked += 1
        self.let_go.wait(TIMEOUT)
        return PLACED


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    policy = Hanging()
    yield policy
    policy.let_go.set()


def with_policies(charge: Any, second: Any = None, budget: float = TIMEOUT) -> PolicyRunner:
    spec = PolicySpec(name="sjf", fallback="tetris" if second else "fifo")
    runner = PolicyRunner(spec, budget=budget)
    runner._charge.policy = charge
    if second is not None:
        runner._fallback.policy = second
    return runner


def raising(error: BaseException) -> Any:
    return Mock(decide=Mock(side_effect=error))


async def test_the_policy_in_charge_decides():
    runner = PolicyRunner(PolicySpec(name="sjf"), budget=TIMEOUT)
    answer = await runner.decide(SNAPSHOT)
    assert (answer.policy, answer.failure, list(answer.placements)) == ("sjf", "", PLACED)
    assert (runner.cycles, runner.fallbacks, runner.active) == (1, 0, "sjf")
    assert answer.seconds > 0


async def test_one_that_hangs_is_not_asked_again_until_it_comes_back(hanging: Hanging):
    runner = with_policies(hanging)
    with pytest.raises(PolicyFailure, match=r"longer than its budget of 0\.05 s$"):
        await runner._charge.ask(SNAPSHOT, 0.05)
    for _ in range(2):
        answer = await runner.decide(SNAPSHOT)
    assert answer.failure == "policy sjf has not come back from an earlier cycle"
    assert (runner.cycles, runner.fallbacks) == (2, 2)
    hanging.let_go.set()
    thought = runner._charge.thinking
    assert thought is not None
    await until(lambda: thought.over)
    assert hanging.asked == 1
    answer = await runner.decide(SNAPSHOT)
    assert (answer.policy, answer.failure, runner.failure) == ("sjf", "", "")


async def test_the_same_policy_can_be_asked_again_at_once():
    runner = with_policies(Mock(decide=lambda _: PLACED, slowdown_budget=10**400))  # no float
    for _ in range(50):
        assert (await runner.decide(SNAPSHOT)).failure == ""


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnprintableError(), "raised UnprintableError"),
        (KeyError("gpu"), "raised KeyError: 'gpu'"),
        (TimeoutError("mine"), "raised TimeoutError: mine"),
        (StopIteration(3), "raised StopIteration: 3"),
        (SystemExit(1), "raised SystemExit: 1"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt"),
        (asyncio.CancelledError(), "raised CancelledError"),
        (ValueError("x" * 9000), "..."),
    ],
)
async def test_whatever_it_raises_is_told_and_cut(error: BaseException, said: str):
    runner = with_policies(raising(error))
    answer = await runner.decide(SNAPSHOT)
    assert said in answer.failure
    assert len(answer.failure) < 600
    assert answer.policy == "fifo"


async def test_fifo_decides_where_the_fallback_fails_too():
    runner = with_policies(raising(KeyError("a")), raising(KeyError("b")))
    answer = await runner.decide(SNAPSHOT)
    assert list(answer.placements) == PLACED
    assert answer.failure == (
        "policy sjf raised KeyError: 'a'; the fallback too: policy tetris raised KeyError: 'b'; "
        "fifo decides"
    )
    assert runner.active == "fifo"


async def test_a_policy_that_there_is_not_is_named_from_the_beginning():
    spec = PolicySpec(name="best", fallback="sjf", shadow=("worst",))
    runner = PolicyRunner(spec, budget=TIMEOUT)
    await runner.build()
    assert "best" in runner.problem
    assert "worst" in runner.problem
    assert runner.active == "sjf"
    answer = await runner.decide(SNAPSHOT)
    assert answer.policy == "sjf"
    assert "best" in answer.failure


async def test_a_model_is_handed_to_the_policy_and_one_without_use_for_it_says_so():
    runner = PolicyRunner(PolicySpec(name="fifo", model="m.onnx"))
    await runner.build()
    assert "model" in runner.problem


class Learned:
    """A policy that needs a file."""

    parameters = Parameters

    def __init__(self, _: Parameters) -> None:
        self.model = (Path.cwd() / "model.onnx").read_text()
        if self.model == "exit":
            raise SystemExit(3)

    def decide(self, _: Snapshot) -> list[Placement]:
        return PLACED


@pytest.fixture
def learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy `learned` is installed; returns where its model is to be."""
    entry = EntryPoint("learned", f"{__name__}:Learned", "partita.policies")
    monkeypatch.setattr(registry, "_entry_points", lambda: [*entry_points_of_ours(), entry])
    monkeypatch.setattr(EntryPoint, "load", lambda e: Learned if e is entry else LOAD(e))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "model.onnx"


entry_points_of_ours, LOAD = registry._entry_points, EntryPoint.load


async def test_a_model_that_is_missing_is_named_and_taken_once_it_is_there(learned: Path):
    runner = PolicyRunner(PolicySpec(name="learned", fallback="sjf"), budget=TIMEOUT)
    await runner.build()
    assert str(learned) in runner.problem
    await asyncio.to_thread(learned.write_text, "weights")
    answer = await runner.decide(SNAPSHOT)
    assert (answer.policy, answer.failure) == ("sjf", runner.problem)  # not tried again so soon
    runner._charge.built_at -= Times().build_policy_again
    await runner.build()  # its status says so, though nothing waits that would need a decision
    assert (runner.active, runner.failure, runner.problem) == ("learned", "", "")


async def test_a_model_that_stays_missing_is_named_each_time(learned: Path):
    runner = PolicyRunner(PolicySpec(name="learned"), times=Times(build_policy_again=0.0))
    for _ in range(3):
        answer = await runner.decide(SNAPSHOT)
        assert (answer.policy, answer.failure) == ("fifo", runner.problem)
        assert str(learned) in answer.failure


async def test_a_policy_that_would_exit_while_it_is_built_is_told(learned: Path):
    await asyncio.to_thread(learned.write_text, "exit")
    runner = PolicyRunner(PolicySpec(name="learned"))
    await runner.build()
    assert runner.problem == "policy learned raised SystemExit: 3"


async def test_one_whose_constructor_hangs_decides_once_it_is_built(learned: Path):
    os.mkfifo(learned)
    spec = PolicySpec(name="learned", fallback="sjf")
    runner = PolicyRunner(spec, budget=TIMEOUT, times=Times(policy_built=0.05))
    await runner.build()
    assert runner.active == "sjf"
    answer = await runner.decide(SNAPSHOT)
    assert answer.failure.startswith("policy learned is still being built")
    building = runner._charge.building
    assert building is not None
    await asyncio.to_thread(learned.write_text, "weights")
    await until(building.answer.done)
    answer = await runner.decide(SNAPSHOT)
    assert (answer.policy, answer.failure) == ("learned", "")


async def test_the_loop_may_end_while_a_policy_thinks(hanging: Hanging):
    def decide_and_leave() -> None:
        asyncio.run(with_policies(hanging, budget=0.05).decide(SNAPSHOT))

    await asyncio.to_thread(decide_and_leave)
    hanging.let_go.set()


async def test_a_shadow_that_hangs_or_raises_is_counted(hanging: Hanging):
    runner = PolicyRunner(PolicySpec(shadow=("sjf", "tetris")), budget=0.05)
    runner._shadows[0].policy = hanging
    await runner.run_shadows(SNAPSHOT, PLACED)
    count = runner.shadow_counts["sjf"]
    assert (count.cycles, count.failures) == (1, 1)
    assert count.message == "policy sjf took longer than its budget of 0.05 s"
    assert runner.failure == ""
