"""The search looks ahead, keeps every limit, and ends after a bounded number of predictions."""

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_policies import (
    GPU,
    CoRun,
    FreeCapacity,
    Job,
    Profile,
    RunningJob,
    Sharing,
    Snapshot,
    Step,
    check_policy,
    complaints_about,
    create,
)
from partita_policies.check_cases import crowd
from partita_policies.forecast import (
    MAX_PHASES,
    OVERDUE,
    UNKNOWN_DURATION,
    Forecast,
    JobForecast,
    LoadPhase,
    mean_load,
    outlook_of,
    phases_of,
    typical_duration,
)
from partita_policies.interference import TYPICAL_CACHE, Load, slowdowns
from partita_policies.lookahead import Lookahead, LookaheadParameters
from partita_research.simulator.engine import simulate
from partita_research.simulator.synthetic import random_tasks
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
LONG_LIGHT = profile("long-light", 20.0, seconds=400.0)


def decide(jobs, *gpus, sharing=Sharing.MPS, margin=0.003, **parameters):
    snapshot = Snapshot("p", 0.0, tuple(jobs), gpus or (GPU_0,), sharing)
    policy = Lookahead(LookaheadParameters(**parameters), margin=margin)
    return {one.job: one.gpus for one in policy.decide(snapshot)}


def holding(application, *, started=0.0, gib=2.0, name="running"):
    return RunningJob(name, int(gib * GIB), started=started, profile=application)


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


def test_jobs_that_go_well_together_start_together() -> None:
    assert decide([job("a", HEAVY), job("b", LIGHT), job("c", LIGHT)]).keys() >= {"a", "b"}


def test_a_job_that_would_be_slower_beside_another_than_after_it_waits() -> None:
    busy = replace(GPU_0, running=(holding(HEAVY),))
    assert decide([job("b", profile("heavy-2", 95.0, gib=4.0))], busy) == {}


def test_it_shares_under_mps_what_it_keeps_apart_under_time_slicing() -> None:
    half = Profile("half", 100.0, (Step(99.0, GIB, 20.0),))  # busy, with few threads
    both = [job("a", half), job("b", half)]
    assert len(decide(both)) == 2
    assert len(decide(both, sharing=Sharing.TIME_SLICING)) == 1


def test_exclusive_gpus_get_one_job_each() -> None:
    gpus = [replace(GPU_0, id=name) for name in ("g0", "g1")]
    found = decide([job(str(i), LIGHT) for i in range(5)], *gpus, sharing=Sharing.EXCLUSIVE)
    assert sorted(found.values()) == [("g0",), ("g1",)]


def test_the_longest_job_does_not_stay_for_the_end() -> None:
    short = [job(f"short-{i}", HEAVY, gib=3.0) for i in range(4)]
    found = decide([*short, job("long", LONG_LIGHT)])
    assert "long" in found


def test_it_waits_where_the_next_end_makes_a_better_pair() -> None:
    """A heavy job that is nearly done leaves its place to one that the light one needs not."""
    busy = replace(GPU_0, max_jobs=2, running=(holding(HEAVY, started=-94.0),))
    other_heavy = profile("heavy-2", 95.0, seconds=300.0)
    assert decide([job("b", other_heavy)], busy) == {}


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


def test_without_predictions_to_make_it_still_places_by_a_rule() -> None:
    assert decide([job("a", HEAVY), job("b", LIGHT)], work=0) == {"a": ("g0",), "b": ("g0",)}


def test_the_rule_has_its_way_where_no_plan_is_clearly_better() -> None:
    jobs = [task.job for task in random_tasks(3, 14, GPU_0, applications=5)]
    searched, by_rule = decide(jobs), decide(jobs, work=0)
    assert searched != by_rule
    assert decide(jobs, margin=9.0) == by_rule


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


def test_on_mixed_workloads_it_beats_the_others_clearly() -> None:
    gpus = [GPU_0, replace(GPU_0, id="g1")]
    policy = Lookahead(LookaheadParameters(work=6000))
    ratios: dict[str, list[float]] = {"fifo": [], "sjf": [], "tetris": []}
    for seed in range(1, 5):
        tasks = random_tasks(seed, 24, GPU_0, applications=6)
        mine = simulate(tasks, gpus, policy)
        assert len(mine.finished) == 24
        assert mine.rejected == 0
        for name, found in ratios.items():
            found.append(mine.makespan / simulate(tasks, gpus, create(name)).makespan)
    assert {name: fmean(found) for name, found in ratios.items() if fmean(found) >= 0.97} == {}


def test_more_search_finds_a_plan_at_least_as_good_in_its_own_model() -> None:
    """The exact profiles, and applications of the sensitivity that it assumes: no surprises."""
    tasks = random_tasks(5, 14, GPU_0, applications=5, noise=0.0)
    tasks = [replace(task, truth=replace(task.truth, cache=TYPICAL_CACHE)) for task in tasks]
    spans = [
        simulate(tasks, [GPU_0], Lookahead(LookaheadParameters(work=work))).makespan
        for work in (0, 40_000)
    ]
    assert spans[1] < 0.999 * spans[0]


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


def test_a_set_of_jobs_goes_on_as_the_interference_says() -> None:
    loads = [Load(0.8, 0.8, 0.0, 1.0, 0.0), Load(0.6, 0.6, 0.0, 1.0, 0.0)]
    phases = [(LoadPhase(100.0, loads[0]),), (LoadPhase(50.0, loads[1]), LoadPhase(1.0, loads[1]))]
    forecast = Forecast(Sharing.MPS, [JobForecast(one, mean_load(one), GIB) for one in phases])
    slow = slowdowns(loads, Sharing.MPS)
    seconds, left, ended = forecast.until_end(forecast.add(((), ()), (1, 0)))
    assert (forecast.classes(left), ended) == ((0,), 1)
    assert seconds == pytest.approx(51 * slow[1])
    assert left[1][0] == pytest.approx(100 - seconds / slow[0])
    total = forecast.until_empty(forecast.add(((), ()), (0, 1)))
    assert total == pytest.approx(seconds + left[1][0])


def test_what_ran_together_corrects_a_prediction_under_mps() -> None:
    seen = replace(LIGHT, co_runs=(CoRun("other", 1.8, 1e9),))
    jobs = [job("a", seen), job("b", profile("other", 20.0))]

    def rates(sharing: Sharing) -> list[float]:
        outlooks = [outlook_of(one, GPU_0, 100.0) for one in jobs]
        return Forecast(sharing, outlooks).rates((0, 1))

    slowed, other = rates(Sharing.MPS)
    assert other / slowed == pytest.approx(1.8)
    assert rates(Sharing.TIME_SLICING)[0] == rates(Sharing.TIME_SLICING)[1]


def test_a_job_starts_where_it_was_not_slow_before() -> None:
    held = [replace(LIGHT, application=name) for name in ("calm", "hog")]
    gpus = [
        replace(GPU_0, id=one.application, running=(holding(one, name=one.application),))
        for one in held
    ]
    for slow, chosen in (("hog", "calm"), ("calm", "hog")):
        seen = replace(LIGHT, co_runs=(CoRun(slow, 1.8, 9.0),))
        assert decide([job("a", seen)], *gpus) == {"a": (chosen,)}


def test_a_running_job_has_come_as_far_as_its_neighbours_let_it() -> None:
    load = Load(1.0, 1.0, 0.0, 0.0, 0.0)
    phases = ((LoadPhase(30.0, load), LoadPhase(70.0, load)), (LoadPhase(100.0, load),))
    forecast = Forecast(Sharing.MPS, [JobForecast(one, mean_load(one), GIB) for one in phases])
    codes, left = forecast.caught_up([(0, 60.0), (1, 20.0)])
    assert codes == (1, 2)
    assert left == pytest.approx((50.0, 90.0))  # 40 s alone, then 20 s at half the speed


def test_a_job_that_is_overdue_has_a_little_left() -> None:
    (only,) = [LoadPhase(100.0, Load(0.1, 0.1, 0.0, 0.0, 0.0))]
    forecast = Forecast(Sharing.MPS, [JobForecast((only,), only.load, GIB)])
    (left,) = forecast.caught_up([(0, 5000.0)])[1]
    assert left == pytest.approx(100 * OVERDUE)


def test_unknown_durations_are_those_of_the_known_jobs() -> None:
    known = [Job(str(i), str(i), "n", GIB, duration=float(i)) for i in (10, 20, 90)]
    unknown = Job("x", "x", "n", GIB)
    snapshot = Snapshot("p", 0.0, (*known, unknown), (GPU_0,))
    assert typical_duration(snapshot) == 20.0
    assert typical_duration(replace(snapshot, jobs=(unknown,))) == UNKNOWN_DURATION
    assert outlook_of(unknown, GPU_0, 20.0).duration == 20.0
    empty = replace(unknown, profile=Profile("a", 5.0, ()))
    assert not outlook_of(empty, GPU_0, 20.0).measured
