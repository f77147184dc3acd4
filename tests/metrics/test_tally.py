"""What happens once is counted once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.decide.cycle_result import CycleResult
from partita.decide.policy_runner import Answer
from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.models.job import Phase
from partita.operator.metrics import definitions as d
from partita.operator.metrics.definitions import Metric
from partita.operator.metrics.tally import Distribution, Tally
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


def taken(tally: Tally, metric: Metric) -> tuple[int, float]:
    """How many values of the partition there are, and their sum."""
    found = tally.distributions[metric].get(("shared",))
    return (sum(found.counts), found.sum) if found else (0, 0.0)


def test_what_a_status_held_before_is_not_counted():
    tally = Tally()
    tally.written(a_job(status=status(ENDED, phase=Phase.SUCCEEDED).dump()), status(ENDED))
    assert not any(tally.counts.values())
    assert not any(tally.distributions.values())


def test_a_time_that_seems_to_run_backwards_counts_as_none():
    tally = Tally()
    early = STARTED.model_copy(update={"first_use_time": at(4.5)})
    write(tally, status(early))
    assert taken(tally, d.FIRST_USE_TIME) == (1, 0.0)


def test_a_step_that_nobody_saw_is_not_counted():
    tally = Tally()
    lost = ALLOCATED.model_copy(update={"outcome": Outcome.NODE_LOST, "end_time": at(9)})
    write(tally, status(lost))
    assert taken(tally, d.START_TIME) == taken(tally, d.RUN_TIME) == (0, 0.0)
    assert tally.counts[d.ATTEMPTS] == {("shared", "NodeLost"): 1}


@pytest.mark.parametrize(
    ("outcome", "memory", "resizes"),
    [
        (Outcome.OUT_OF_MEMORY, 12 * GIB, 1),
        (Outcome.OUT_OF_MEMORY, 8 * GIB, 0),
        (Outcome.FAILED, 12 * GIB, 0),
    ],
)
def test_a_resize_is_a_larger_allocation_after_memory_ran_out(
    outcome: Outcome, memory: int, resizes: int
):
    tally = Tally()
    first = ENDED.model_copy(update={"outcome": outcome})
    second = Attempt(number=2, memory=memory, queued_time=at(65), booked_time=at(66))
    write(tally, status(STARTED), status(first), status(first, second), status(first, second))
    assert tally.counts[d.RESIZES]["shared",] == resizes


def test_a_decision_is_counted_for_the_policy_that_made_it():
    tally = Tally()
    tally.decided(CycleResult())  # nobody was asked
    snapshot = Snapshot(partition="shared", time=0.0, jobs=(), gpus=())
    tally.decided(CycleResult(snapshot=snapshot, answer=Answer((), "sjf", seconds=0.25)))
    ((labels, values),) = tally.distributions[d.DECISION_TIME].items()
    assert (labels, values.sum) == (("shared", "sjf"), 0.25)


def test_partitions_that_are_gone_are_forgotten():
    tally = Tally()
    write(tally, status(ENDED, phase=Phase.SUCCEEDED))
    tally.keep_only({"shared"})
    assert taken(tally, d.RUN_TIME) == (1, 60.0)
    tally.keep_only(set())
    assert not any(tally.counts.values())
    assert not any(tally.distributions.values())


def test_a_value_on_a_bound_is_within_it():
    values = Distribution((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        values.observe(value)
    assert values.counts == [2, 2, 1]


def test_a_job_whose_ceiling_grows_is_resized():
    one = ENDED.model_copy(
        update={"outcome": Outcome.OUT_OF_MEMORY, "memory": GIB, "memory_limit": 2 * GIB}
    )
    two = ALLOCATED.model_copy(update={"number": 2, "memory": GIB, "memory_limit": 3 * GIB})
    tally = Tally()
    write(tally, status(one), status(one, two))
    assert tally.counts[d.RESIZES]["shared",] == 1


@given(
    st.lists(st.sampled_from(Outcome), min_size=1, max_size=4),
    st.sets(st.integers(0, 15)),
)
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
    assert taken(tally, d.QUEUED_TIME) == (count, 3.0 * count)
    assert taken(tally, d.START_TIME) == (count, 2.0 * count)
    assert taken(tally, d.FIRST_USE_TIME) == (count, 4.0 * count)
    assert taken(tally, d.RUN_TIME) == (count, 60.0 * count)
    counted = {("shared", outcome.value): n for outcome, n in Counter(outcomes).items()}
    assert tally.counts[d.ATTEMPTS] == counted
    assert tally.counts[d.FINISHED] == {("shared", "Succeeded"): 1}
    resized = sum(outcome is Outcome.OUT_OF_MEMORY for outcome in outcomes[:-1])
    assert tally.counts[d.RESIZES]["shared",] == resized
