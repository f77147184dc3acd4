"""What happens once is counted once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.models.job import Phase
from partita.process.metrics.tally import Tally
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.policy_runner import Answer
from partita_policies.types import Snapshot
from support.builders import GIB, a_job, at

ALLOCATED = Attempt(number=1, memory=8 * GIB, queued_time=at(0), booked_time=at(3))
STARTED = ALLOCATED.model_copy(update={"start_time": at(5)})
ENDED = STARTED.model_copy(
    update={"first_use_time": at(9), "end_time": at(65), "outcome": Outcome.SUCCEEDED}
)


def status(*attempts: Attempt, phase: Phase | None = Phase.RUNNING) -> SharedGPUJobStatus:
    return SharedGPUJobStatus(phase=phase, attempts=attempts)


def write(tally: Tally, *statuses: SharedGPUJobStatus) -> None:
    """Write one status after the other into a job."""
    job = a_job()
    for new in statuses:
        tally.written(job, new)
        job = job.model_copy(update={"status": new})


def value(tally: Tally, name: str, **labels: str) -> float:
    """A sample of the partition; 0 if there is none."""
    found = tally.registry.get_sample_value(f"partita_{name}", {"partition": "shared", **labels})
    return found or 0


def taken(tally: Tally, name: str) -> tuple[float, float]:
    """How many values of the partition there are, and their sum."""
    return value(tally, f"{name}_seconds_count"), value(tally, f"{name}_seconds_sum")


def test_what_a_status_held_before_is_not_counted():
    tally = Tally()
    tally.written(a_job(status=status(ENDED, phase=Phase.SUCCEEDED).dump()), status(ENDED))
    assert not any(family.samples for family in tally.registry.collect())


def test_a_time_that_seems_to_run_backwards_counts_as_none():
    tally = Tally()
    early = STARTED.model_copy(update={"first_use_time": at(4.5)})
    write(tally, status(early))
    assert taken(tally, "attempt_first_use") == (1, 0.0)


def test_a_step_that_nobody_saw_is_not_counted():
    tally = Tally()
    lost = ALLOCATED.model_copy(update={"outcome": Outcome.NODE_LOST, "end_time": at(9)})
    write(tally, status(lost))
    assert taken(tally, "attempt_pod_start") == taken(tally, "attempt_run") == (0, 0.0)
    assert value(tally, "attempts_total", outcome="NodeLost") == 1


@pytest.mark.parametrize(
    ("outcome", "memory", "limit", "resizes"),
    [
        (Outcome.OUT_OF_MEMORY, 12 * GIB, None, 1),
        (Outcome.OUT_OF_MEMORY, 8 * GIB, 12 * GIB, 1),
        (Outcome.OUT_OF_MEMORY, 8 * GIB, None, 0),
        (Outcome.FAILED, 12 * GIB, None, 0),
    ],
)
def test_a_resize_is_a_larger_allocation_after_memory_ran_out(
    outcome: Outcome, memory: int, limit: int | None, resizes: int
):
    tally = Tally()
    first = ENDED.model_copy(update={"outcome": outcome})
    second = ALLOCATED.model_copy(update={"number": 2, "memory": memory, "memory_limit": limit})
    write(tally, status(STARTED), status(first), status(first, second), status(first, second))
    assert value(tally, "out_of_memory_resizes_total") == resizes


def test_a_decision_is_counted_for_the_policy_that_made_it():
    tally = Tally()
    tally.decided(CycleResult())  # nobody was asked
    snapshot = Snapshot(partition="shared", time=0.0, jobs=(), gpus=())
    tally.decided(CycleResult(snapshot=snapshot, answer=Answer((), "sjf", seconds=0.25)))
    assert value(tally, "policy_decision_seconds_sum", policy="sjf") == 0.25


@given(st.lists(st.sampled_from(Outcome), min_size=1, max_size=4), st.sets(st.integers(0, 15)))
def test_which_statuses_between_were_written_makes_no_difference(
    outcomes: list[Outcome], written: set[int]
):
    """A status may be overtaken by the next before it is written; the last one never is."""
    history: list[SharedGPUJobStatus] = []
    done: tuple[Attempt, ...] = ()
    for number, outcome in enumerate(outcomes, start=1):
        steps = [
            attempt.model_copy(update={"number": number, "memory": number * GIB})
            for attempt in (ALLOCATED, STARTED, ENDED.model_copy(update={"outcome": outcome}))
        ]
        history += [status(*done, step) for step in steps]
        done = (*done, steps[-1])
    some = [new for i, new in enumerate(history) if i in written]
    tally = Tally()
    ended = history[-1].model_copy(update={"phase": Phase.SUCCEEDED})
    write(tally, *some, history[-1], ended, ended)
    count = len(outcomes)
    assert taken(tally, "attempt_queue") == (count, 3.0 * count)
    assert taken(tally, "attempt_pod_start") == (count, 2.0 * count)
    assert taken(tally, "attempt_first_use") == (count, 4.0 * count)
    assert taken(tally, "attempt_run") == (count, 60.0 * count)
    for outcome, number in Counter(outcomes).items():
        assert value(tally, "attempts_total", outcome=outcome) == number
    assert value(tally, "jobs_finished_total", result="Succeeded") == 1
    resized = sum(outcome is Outcome.OUT_OF_MEMORY for outcome in outcomes[:-1])
    assert value(tally, "out_of_memory_resizes_total") == resized
