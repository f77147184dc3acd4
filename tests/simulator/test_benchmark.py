"""The benchmark of the policies: its workloads, its figures, and what its pages must say."""

from collections import Counter
from statistics import fmean

import pytest

from bench.policies.arrivals import PATTERNS, times
from bench.policies.figures import HEURISTICS, against, estimate, judged
from bench.policies.runs import figures_of
from bench.policies.scenes import Scene, World, world
from bench.policies.tables import preliminary, worse_than_a_heuristic
from partita_policies import GPU, create
from partita_policies.types import Step
from partita_research.simulator import Application, simulate, task_of

LEARNED = ("dqn Makespan", "dqn Completion", "lookahead Makespan")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_arrivals_have_the_rate_asked_for(pattern):
    rates = [times(pattern, 300, 10.0, seed)[-1] / 300 for seed in range(200)]
    mean = estimate(rates)
    assert abs(mean.mean - 10) < 4 * mean.half
    assert all(one == sorted(one) for one in (times(pattern, 50, 1.0, seed) for seed in range(5)))


def test_bursts_come_at_the_same_time_and_days_have_hours_with_many_more():
    assert max(Counter(times("bursts", 300, 1.0, 0)).values()) >= 5
    early = [sum(time < 50 for time in times("diurnal", 300, 1.0, seed)) for seed in range(50)]
    late = [sum(50 <= t < 100 for t in times("diurnal", 300, 1.0, seed)) for seed in range(50)]
    assert fmean(early) > 1.5 * fmean(late)


@pytest.mark.parametrize("family", ["mix", "random", "heavy-tailed"])
def test_a_scene_is_the_same_at_each_load_but_for_when_jobs_arrive(family):
    busy, idle = (
        world(Scene(family, 40, 2, "poisson", load), 3, 1.2).tasks for load in (0.9, 0.45)
    )
    assert [task.truth for task in busy] == [task.truth for task in idle]
    ratio = [a.job.submitted / b.job.submitted for a, b in zip(idle, busy, strict=True)]
    assert ratio == pytest.approx([2.0] * 40)


def test_wrong_profiles_leave_the_truth_and_are_off_by_two():
    right = world(Scene("random", 40), 1).tasks
    wrong = world(Scene("random", 40, wrong=True), 1).tasks
    assert [task.truth for task in wrong] == [task.truth for task in right]
    factors = {
        round(a.job.profile.duration / b.job.profile.duration, 6)
        for a, b in zip(wrong, right, strict=True)
    }
    assert factors == {0.5, 2.0}


def test_jobs_that_are_killed_for_memory_still_finish():
    drawn = world(Scene("random", 60, kills=True), 1)
    figures = figures_of(simulate(drawn.tasks, drawn.gpus, create("fifo")), drawn, open_ended=False)
    assert figures["kills"] > 0
    assert figures["unfinished"] == 0


def test_services_are_no_part_of_the_figures_of_jobs_that_end():
    drawn = world(Scene("random", 30, 4, "poisson", 0.5, services=2), 1, 1.0)
    result = simulate(drawn.tasks, drawn.gpus, create("fifo"))
    assert len(result.services) == 2
    assert figures_of(result, drawn, open_ended=True)["unfinished"] == 0


def test_hours_are_those_in_which_a_gpu_has_a_job():
    light = Application("light", 3600.0, (Step(gpu=10, memory=1 << 30, core=1),), 0.0)
    gpus = [GPU(f"gpu-{n}", "node", 12 << 30, 8) for n in range(2)]
    tasks = [task_of(light, f"job-{n}", submitted=7200.0 * n) for n in range(2)]
    result = simulate(tasks, gpus, create("fifo"))
    figures = figures_of(result, World(tasks, gpus), open_ended=False)
    assert figures["hours"] == pytest.approx(2.0, rel=0.01)
    assert figures["gpu held"] == pytest.approx(100 * 2 / (3 * 2), rel=0.01)


def test_paired_differences_have_no_part_of_what_the_pairs_share():
    easy_and_hard = [1.0, 100.0, 10_000.0]
    apart = against([1.02 * time for time in easy_and_hard], easy_and_hard)
    assert apart.mean == pytest.approx(2.0)
    assert apart.half == pytest.approx(0.0, abs=1e-9)


def found(dqn, others):
    rows = {}
    for name, value in zip(
        (*HEURISTICS, *LEARNED), (*others, *(dqn for _ in LEARNED)), strict=True
    ):
        times = {figure: [value, value + 0.1] for figure in ("makespan", "completion")}
        none = {figure: [0.0, 0.0] for figure in ("decision", "decision p99", "unfinished")}
        rows[name] = {**times, **none}
    return {"random": {"figures": {"random 30x1": rows}}}


def test_best_heuristic_is_the_best_of_that_workload():
    rows = list(judged(found(103.0, (120.0, 100.0, 130.0, 140.0))))
    assert {row.best for row in rows} == {"sjf"}
    assert all(2.9 < row.apart.mean < 3.1 for row in rows)


def test_first_table_of_the_page_names_each_workload_on_which_dqn_is_worse():
    worse = worse_than_a_heuristic(found(103.0, (120.0, 100.0, 130.0, 140.0)))
    assert "random 30x1" in worse
    assert "sjf" in worse
    assert worse_than_a_heuristic(found(101.0, (120.0, 100.0, 130.0, 140.0))).startswith("None")


def test_page_says_that_two_seeds_decide_nothing_and_which_parts_did_not_run():
    said = preliminary(found(103.0, (120.0, 100.0, 130.0, 140.0)))
    assert "2 of the 2 comparisons" in said
    assert "saturation" in said
    assert "random" not in said.split("Not run yet")[1]


def test_jobs_of_the_held_out_kind_take_memory_bandwidth_in_truth_and_profile():
    tasks = world(Scene("heavy-tailed", 40), 1).tasks
    assert any(step.bandwidth > 20 for task in tasks for step in task.truth.steps)
    assert any(step.bandwidth > 20 for task in tasks for step in task.job.profile.steps)


def test_jobs_without_profiles_have_no_duration_either():
    tasks = world(Scene("random", 40, unknown=True), 1).tasks
    assert {(task.job.profile, task.job.duration) for task in tasks} == {(None, None)}
