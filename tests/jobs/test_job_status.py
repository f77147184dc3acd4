"""The status of a job, and the patch that brings it there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.jobs.job_status import job_status
from partita.jobs.lifecycle import Plan
from partita.kube.merge_patch import merge_diff
from partita.models import Assignment, Attempt, Outcome, Phase, SharedGPUJobStatus
from partita.scheduling.reasons import Reason, WaitingReason
from support.builders import GIB, a_job, at
from support.patches import merged

PLACE = Assignment(
    servers=("shared-0",),
    gpus=("GPU-1",),
    node="node-1",
    memory=8 * GIB,
    thread_percent=30,
    pod="train-1",
    attempt=1,
)
leaves = st.integers(0, 3) | st.text("ab", max_size=2) | st.booleans()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", max_size=1), inner),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values)


@given(objects, objects)
def test_the_patch_makes_the_new_object_and_says_nothing_that_is_there_already(old, new):
    patch = merge_diff(old, new)
    assert merged(old, patch) == new
    for key, value in patch.items():
        assert key not in old or old[key] != value
    assert merge_diff(old, old) == {}


def shown(plan: Plan, now: int = 0, *, old: dict[str, Any] | None = None, **fields: Any) -> Any:
    return job_status(a_job(status=old or {}), plan, at(now), **fields)


def conditions(status: SharedGPUJobStatus) -> dict[str, tuple[str, str, str]]:
    return {c.type: (c.status, c.reason, c.message) for c in status.conditions}


class TestPhases:
    def test_a_waiting_job(self):
        why = WaitingReason(Reason.INSUFFICIENT_MEMORY, "needs more")
        status = shown(Plan(wants_gpu=True), why=why, position=3, bypasses=2)
        assert (status.phase, status.reason) == (Phase.QUEUED, "InsufficientMemory")
        assert status.message == "needs more"
        assert (status.queue_position, status.bypasses, status.assignment) == (3, 2, None)
        seen = {status.observed_generation, *(c.observed_generation for c in status.conditions)}
        assert seen == {1}
        assert conditions(status) == {"Scheduled": ("False", "InsufficientMemory", "needs more")}

    def test_one_that_only_yaml_can_help_is_stalled(self):
        status = shown(Plan(), why=WaitingReason(Reason.NEVER_FITS, "too large"))
        assert conditions(status)["Stalled"] == ("True", "NeverFits", "too large")
        better = shown(Plan(phase=Phase.ASSIGNED), old=status.dump(), place=PLACE)
        assert conditions(better)["Stalled"] == ("False", "NotStalled", "")

    @pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.RUNNING])
    def test_a_placed_job_says_where_it_is(self, phase: Phase):
        status = shown(Plan(phase=phase), place=PLACE, position=3)
        assert status.assignment is not None
        assert status.assignment.dump() == {
            "servers": ["shared-0"],
            "gpus": ["GPU-1"],
            "node": "node-1",
            "memory": "8Gi",
            "threadPercent": 30,
            "pod": "train-1",
            "attempt": 1,
            "beside": [],
        }
        assert conditions(status) == {"Scheduled": ("True", "Assigned", "")}
        assert (status.queue_position, status.bypasses) == (None, None)

    def test_a_finished_job_holds_no_gpu_and_keeps_where_it_was(self):
        running = shown(Plan(phase=Phase.RUNNING), place=PLACE)
        over = Plan(phase=Phase.SUCCEEDED, reason="Succeeded", completion_time=at(9))
        status = shown(over, old=running.dump())
        assert status.assignment == running.assignment
        assert shown(over, place=PLACE).assignment == PLACE  # it was too short to be seen running
        assert conditions(status) == {
            "Scheduled": ("False", "Succeeded", ""),
            "Complete": ("True", "Succeeded", ""),
        }

    @pytest.mark.parametrize(
        ("phase", "kind", "holds"),
        [(Phase.FAILED, "Failed", "True"), (Phase.SUSPENDED, "Scheduled", "False")],
    )
    def test_a_job_that_does_not_run_says_why(self, phase: Phase, kind: str, holds: str):
        plan = Plan(phase=phase, reason="OutOfMemory", message="3 times")
        assert conditions(shown(plan))[kind] == (holds, "OutOfMemory", "3 times")


def test_a_priority_above_the_cap_is_told_until_it_counts():
    job = a_job(priority=9)
    capped = job_status(job, Plan(), at(0), priority_cap=3)
    assert capped.effective_priority == 3
    status, reason, message = conditions(capped)["PriorityCapped"]
    assert (status, reason) == ("True", "AboveMaxPriority")
    assert "spec.priority 9 counts as 3, the highest priority that partition shared" in message
    assert "write priority: 3, or have an administrator raise" in message
    raised = job_status(a_job(priority=9, status=capped.dump()), Plan(), at(1), priority_cap=9)
    assert raised.effective_priority is None
    assert conditions(raised)["PriorityCapped"] == ("False", "WithinMaxPriority", "")


def test_a_condition_keeps_its_time_until_its_status_changes():
    first = shown(Plan(), 1, why=WaitingReason(Reason.SCHEDULING, "just queued"))
    second = shown(Plan(), 5, old=first.dump(), why=WaitingReason(Reason.TOO_MANY_JOBS, "full"))
    third = shown(Plan(phase=Phase.RUNNING), 9, old=second.dump(), place=PLACE)
    times = [status.conditions[0].last_transition_time for status in (first, second, third)]
    assert times == [at(1), at(1), at(9)]


def test_long_words_are_cut_where_they_say_least():
    attempt = Attempt(number=1, outcome=Outcome.FAILED)
    attempt = attempt.model_copy(update={"message": "x" * 9000 + "end"})
    status = shown(Plan(attempts=(attempt,), message="m" * 9000))
    assert (len(status.message), len(status.attempts[0].message)) == (4096, 4096)
    assert status.attempts[0].message.endswith("end")


def test_the_peak_is_the_highest_of_all_attempts():
    peaks = (3 * GIB, None, 5 * GIB)
    attempts = tuple(Attempt(number=n + 1, peak_memory=peak) for n, peak in enumerate(peaks))
    assert shown(Plan(attempts=attempts)).peak_memory == 5 * GIB
