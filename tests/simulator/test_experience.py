"""What a simulated cluster learns from what ran together."""

from dataclasses import replace

import pytest

from bench.policies.experience import experienced
from partita_policies import GPU, Sharing, Step, create
from partita_research.simulator import Application, Task, simulate, task_of

GIB = 1 << 30
CARD = GPU("g", "n", 24 * GIB, 2)
STEP = Step(gpu=90.0, memory=GIB, core=54.0)


def tasks(*names: str, core: float = 54.0, **fields: object) -> list[Task]:
    """Applications that need most SMs; their profiles show an occupancy that may be wrong."""
    found = []
    for number, name in enumerate(names):
        truth = Application(name, 100.0, (STEP,), 0.0)
        measured = replace(truth.profile(), steps=(replace(STEP, core=core),))
        found.append(task_of(truth, f"job-{number}", measured=measured, **fields))
    return found


def evidence(found: list[Task]) -> dict[str, dict[str, float]]:
    return {
        task.truth.name: {one.application: one.ratio for one in task.job.profile.co_runs}
        for task in found
        if task.job.profile is not None
    }


def after(found: list[Task], sharing: Sharing = Sharing.MPS) -> list[Task]:
    return experienced(found, simulate(found, [CARD], create("fifo"), sharing=sharing))


def test_runs_as_predicted_confirm_the_prediction():
    found = evidence(after(tasks("a", "b")))
    assert found["a"]["b"] == pytest.approx(1.0, abs=0.06)  # a prediction assumes some cache use
    assert found["b"].keys() == {"a"}


def test_runs_that_are_slower_than_their_profiles_show_are_evidence():
    blind = tasks("a", "b", core=5.4)
    assert evidence(after(blind))["a"]["b"] > 1.4
    assert evidence(after(after(blind))) == evidence(after(blind)), "it is relative to the model"


def test_a_job_that_was_alone_and_an_unknown_one_say_nothing():
    assert evidence(after(tasks("a"))) == {"a": {}}
    unknown = [replace(t, job=replace(t.job, profile=None)) for t in tasks("b")]
    unknown = [replace(t, job=replace(t.job, id="unknown")) for t in unknown]
    assert evidence(after([*tasks("a"), *unknown])) == {"a": {}}


def test_turns_say_nothing_about_mps():
    assert evidence(after(tasks("a", "b"), Sharing.TIME_SLICING)) == {"a": {}, "b": {}}
