"""The search keeps every limit, and ends after a bounded number of predictions."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_policies import (
    GPU,
    FreeCapacity,
    Job,
    Profile,
    Sharing,
    Snapshot,
    Step,
    check_policy,
    complaints_about,
)
from partita_policies.check_cases import crowd
from partita_policies.forecast import (
    MAX_PHASES,
    UNKNOWN_DURATION,
    Forecast,
    mean_load,
    outlook_of,
    phases_of,
    typical_duration,
)
from partita_policies.lookahead import Lookahead, LookaheadParameters
from support.polling import TIMEOUT
from support.strategies import GIB, snapshots

GPU_0 = GPU("g0", "n0", 12 * GIB, 7, product="TITAN Xp", pcie_bandwidth=32 * 10**9)


def profile(name, *gpu, seconds=100.0, gib=1.0):
    return Profile(name, seconds, tuple(Step(one, int(gib * GIB), 0.6 * one) for one in gpu))


def job(name, application, gib=2.0, **fields):
    fields = {"memory": int(gib * GIB), "application": application.application, **fields}
    return Job(name, name, "n", profile=application, **fields)


HEAVY = profile("heavy", 95.0)
LIGHT = profile("light", 20.0)


def decide(jobs, *gpus, sharing=Sharing.MPS, **parameters):
    snapshot = Snapshot("p", 0.0, tuple(jobs), gpus or (GPU_0,), sharing)
    policy = Lookahead(LookaheadParameters(**parameters))
    return {one.job: one.gpus for one in policy.decide(snapshot)}


def test_it_passes_the_public_check() -> None:
    report = check_policy(Lookahead, {"work": 2000}, jobs=100, gpus=10, seconds=TIMEOUT)
    assert report.placements["one job and an idle GPU"] == 1


@settings(max_examples=60)
@given(snapshots())
def test_every_answer_keeps_every_limit_and_is_the_same_again(snapshot) -> None:
    policy = Lookahead(LookaheadParameters(beam=2, branching=2, depth=2, work=500))
    answer = policy.decide(snapshot)
    assert list(complaints_about(snapshot, answer)) == []
    assert policy.decide(snapshot) == answer


@settings(max_examples=60)
@given(snapshots())
def test_no_gpu_stays_idle_that_a_waiting_job_could_have(snapshot) -> None:
    policy = Lookahead(LookaheadParameters(beam=1, branching=1, depth=1, work=200))
    capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
    waiting = {one.id: one for one in snapshot.jobs}
    for placement in policy.decide(snapshot):
        capacity.take(waiting.pop(placement.job), placement.gpus)
    left = [one for one in waiting.values() if not capacity.holds(one.id)]
    assert [one.id for one in left if capacity.first_fit(replace(one, alone=True))] == []


def test_exclusive_gpus_get_one_job_each() -> None:
    gpus = [replace(GPU_0, id=name) for name in ("g0", "g1")]
    found = decide([job(str(i), LIGHT) for i in range(5)], *gpus, sharing=Sharing.EXCLUSIVE)
    assert sorted(found.values()) == [("g0",), ("g1",)]


def test_a_higher_priority_has_its_room_first() -> None:
    urgent = job("urgent", HEAVY, 8, priority=1)
    assert decide([job("first", LIGHT, 8), urgent]) == {"urgent": ("g0",)}


def test_a_job_without_profile_is_taken_from_its_request() -> None:
    quarters = [Job(f"q{i}", f"q{i}", "n", 3 * GIB, duration=60.0) for i in range(4)]
    limited = [Job(f"l{i}", f"l{i}", "n", GIB, thread_percent=50) for i in range(3)]
    assert len(decide(quarters)) == 4
    assert len(decide(limited)) == 2


def test_a_queue_longer_than_its_view_is_still_served() -> None:
    found = decide([job(f"j{i:03}", LIGHT) for i in range(50)], view=3)
    assert sorted(found) == ["j000", "j001", "j002"]


def test_the_predictions_of_a_decision_are_bounded_whatever_the_queue(monkeypatch) -> None:
    made = []
    original = Forecast.__init__

    def counted(self, *args) -> None:
        original(self, *args)
        made.append(self)

    monkeypatch.setattr(Forecast, "__init__", counted)
    for jobs, gpus in ((500, 1), (500, 8), (3000, 60)):
        made.clear()
        Lookahead(LookaheadParameters(work=3000)).decide(crowd(jobs, gpus))
        # What is never refused: taking stock of each group, and filling it by a rule.
        assert sum(one.work for one in made) < 3000 + 250 * gpus + 1000


# The predictions behind it.


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10), st.floats(0, 100)), min_size=1),
    st.floats(1, 10_000),
)
def test_phases_keep_the_duration_and_the_mean_of_a_profile(steps, seconds) -> None:
    given = Profile("a", seconds, tuple(Step(g, m * GIB, c) for g, m, c in steps))
    phases = phases_of(given, GPU_0)
    assert 1 <= len(phases) <= MAX_PHASES
    assert sum(phase.seconds for phase in phases) == pytest.approx(seconds)
    loads = [phases_of(replace(given, steps=(step,)), GPU_0)[0].load for step in given.steps]
    for i, value in enumerate(mean_load(phases)):
        assert value == pytest.approx(sum(load[i] for load in loads) / len(loads), abs=1e-9)


def test_a_profile_with_amounts_below_zero_breaks_no_decision() -> None:
    wrong = Profile("wrong", 100.0, (Step(-50.0, -9 * GIB, -5.0, -1e9), Step(90.0, -GIB)))
    for phase in phases_of(wrong, GPU_0):
        assert all(amount >= 0 for amount in phase.load)
    assert decide([job("a", wrong), job("b", HEAVY), job("c", wrong)])


def test_unknown_durations_are_those_of_the_known_jobs() -> None:
    known = [Job(str(i), str(i), "n", GIB, duration=float(i)) for i in (10, 20, 90)]
    unknown = Job("x", "x", "n", GIB)
    snapshot = Snapshot("p", 0.0, (*known, unknown), (GPU_0,))
    assert typical_duration(snapshot) == 20.0
    assert typical_duration(replace(snapshot, jobs=(unknown,))) == UNKNOWN_DURATION
    assert outlook_of(unknown, GPU_0, 20.0).duration == 20.0
    empty = replace(unknown, profile=Profile("a", 5.0, ()))
    assert not outlook_of(empty, GPU_0, 20.0).measured
