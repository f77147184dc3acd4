"""The planner, and dqn, which adds a network: what they do, what bounds them, what they refuse."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given

from partita_policies import PolicyStartError, check_policy, complaints_about, create
from partita_policies.dqn import DQN, DQNParameters
from partita_policies.dqn.policy import WEIGHTS
from partita_policies.network import ModelError, ModelOutputError
from partita_policies.planner import Planner, PlannerParameters
from partita_policies.planner.structures import HIDDEN, INPUTS, JOBS
from partita_policies.simulator.tasks import Application
from partita_policies.types import (
    GPU,
    CoRun,
    Job,
    Objective,
    Profile,
    RunningJob,
    Sharing,
    Snapshot,
    Step,
)
from partita_research.environment.choices import Choices
from partita_research.simulator import simulate, task_of
from support.polling import TIMEOUT
from support.strategies import snapshots

GIB = 1 << 30


def profile(random: Random, name: str = "app") -> Profile:
    memory = random.randint(1, 6)
    steps = [
        Step(random.uniform(0, 100), memory * GIB, random.uniform(0, 60), random.uniform(0, 1e10))
        for _ in range(12)
    ]
    return Profile(name, random.uniform(20, 400), tuple(steps))


def steady(name: str, busy: float, seconds: float, memory: int = 1) -> Profile:
    return Profile(name, seconds, (Step(busy, memory * GIB, 0.6 * busy),) * 4)


def job(name: str, of: Profile | None, memory: int = 4, **fields) -> Job:
    duration = of.duration if of else None
    return Job(name, name, "team", memory * GIB, duration=duration, profile=of, **fields)


def gpu(name: str = "gpu-0", running: Sequence[RunningJob] = (), memory: int = 12) -> GPU:
    return GPU(
        name, f"node-{name}", memory * GIB, 8, pcie_bandwidth=32 * 10**9, running=tuple(running)
    )


def snapshot(
    jobs: Sequence[Job],
    gpus: Sequence[GPU],
    sharing: Sharing = Sharing.MPS,
    objective: Objective = Objective.MAKESPAN,
) -> Snapshot:
    return Snapshot("test", 1000.0, tuple(jobs), tuple(gpus), sharing, objective=objective)


def placed(seen: Snapshot, **parameters) -> dict[str, str]:
    decision = Planner(PlannerParameters(**parameters)).decide(seen)
    return {placement.job: placement.gpus[0] for placement in decision}


@given(snapshots())
def test_it_starts_only_what_fits(seen: Snapshot) -> None:
    for policy in (Planner(PlannerParameters(work=2000)), DQN(DQNParameters(work=2000))):
        assert not list(complaints_about(seen, policy.decide(seen)))


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("policy", [Planner, DQN])
def test_it_passes_the_public_checks(policy: type[Planner], objective: Objective) -> None:
    class Under(policy):
        def decide(self, seen: Snapshot):
            return super().decide(replace(seen, objective=objective))

    report = check_policy(Under, jobs=600, gpus=60, seconds=TIMEOUT)
    assert report.placements["idle GPUs"] > 0
    check_policy(Under, {"slowdown_budget": 1.05, "work": 0}, jobs=200, gpus=20, seconds=TIMEOUT)


def test_jobs_spread_over_idle_gpus() -> None:
    light = steady("light", 30, 100)
    seen = snapshot([job(f"j{i}", light) for i in range(4)], [gpu(f"gpu-{i}") for i in range(4)])
    for objective in (Objective.MAKESPAN, Objective.COMPLETION):
        assert len(set(placed(replace(seen, objective=objective)).values())) == 4


def test_idle_gpus_that_take_other_jobs_are_not_alike() -> None:
    gpus = [replace(gpu(f"gpu-{i}"), max_jobs=most) for i, most in enumerate((1, 8))]
    assert placed(snapshot([job("j", None, slots=3)], gpus)) == {"j": "gpu-1"}


def test_what_takes_longer_together_than_in_turns_waits() -> None:
    """Under time-slicing two busy jobs only switch contexts."""
    busy = steady("busy", 100, 100)
    seen = snapshot([job("a", busy), job("b", busy)], [gpu()], Sharing.TIME_SLICING)
    assert len(placed(seen)) == 1


def test_a_slowdown_budget_is_kept() -> None:
    half = steady("half", 60, 100)
    jobs = [job("a", half, 1), job("b", half, 2)]
    assert len(placed(snapshot(jobs, [gpu()]))) == 2
    assert len(placed(snapshot(jobs, [gpu()]), slowdown_budget=1.05)) == 1


def test_a_slowdown_budget_has_a_margin_for_pairs_of_which_nothing_is_known() -> None:
    known, stranger = steady("known", 49, 100), steady("stranger", 49, 100)
    seen = replace(known, co_runs=(CoRun("known", 1.0, 1e6),))

    def together(of: Profile) -> bool:
        jobs = [job("a", of, 1), job("b", of, 2)]
        return len(placed(snapshot(jobs, [gpu()]), slowdown_budget=1.06)) == 2

    assert together(seen)
    assert not together(stranger)


def test_a_job_starts_where_it_was_not_slow_before() -> None:
    held = [steady(name, 20, 100) for name in ("calm", "hog")]
    gpus = [
        gpu(one.application, [RunningJob("of-" + one.application, GIB, profile=one)])
        for one in held
    ]
    for slow, chosen in (("hog", "calm"), ("calm", "hog")):
        slowed = replace(steady("slowed", 20, 100), co_runs=(CoRun(slow, 1.9, 99.0),))
        assert placed(snapshot([job("j", slowed)], gpus)) == {"j": chosen}


def test_the_objective_completion_starts_the_short_jobs() -> None:
    """Of jobs that fit only one at a time, the short ones end many soon."""
    jobs = [job(f"long{i}", steady("long", 95, 900, 8), 8) for i in range(3)]
    jobs += [job(f"short{i}", steady("short", 95, 30, 8), 8) for i in range(3)]
    started = placed(snapshot(jobs, [gpu()], objective=Objective.COMPLETION))
    assert all(name.startswith("short") for name in started)


def test_it_says_for_which_job_it_keeps_the_room_only_if_the_other_would_start() -> None:
    held = RunningJob("r", 4 * GIB, started=902.0, duration=100.0, profile=steady("r", 40, 100))
    long, short = job("long", steady("long", 30, 400)), job("short", steady("short", 50, 20), 12)
    jobs = [job("longer", steady("longer", 90, 900), 11), short, long, replace(long, id="twin")]
    seen = snapshot(jobs, [gpu(running=[held])], objective=Objective.COMPLETION)
    planner = Planner(PlannerParameters())
    assert planner.decide(seen) == []
    assert planner.kept_for == {"long": "short", "twin": "short"}
    assert len(planner.decide(replace(seen, jobs=seen.jobs[2:]))) == 2
    assert planner.kept_for == {}


def test_the_objective_packing_places_as_fgd_does() -> None:
    random = Random(3)
    jobs = [job(f"j{i}", profile(random), random.randint(1, 9)) for i in range(20)]
    seen = snapshot(jobs, [gpu(f"gpu-{i}") for i in range(6)], objective=Objective.PACKING)
    by_fgd = create("fgd").decide(seen)
    planner = Planner(PlannerParameters())
    assert planner.decide(seen) == by_fgd
    assert planner.decide(replace(seen, objective=Objective.BALANCED)) == by_fgd


def test_plans_find_what_prices_alone_do_not() -> None:
    """On average over workloads: plans look further than the next decision."""
    random, plain, planned = Random(8), 0.0, 0.0
    for number in range(8):
        known = [profile(random, f"{number}-{i}") for i in range(6)]
        tasks = [
            task_of(Application(one.application, one.duration, one.steps, 0.33), f"j{i}")
            for i, one in enumerate(random.choices(known, k=16))
        ]
        plain += simulate(tasks, [gpu()], Planner(PlannerParameters(work=0))).makespan
        planned += simulate(tasks, [gpu()], Planner(PlannerParameters(work=2**64))).makespan
    assert planned < plain


def test_a_job_that_is_overdue_for_years_takes_no_longer_to_predict() -> None:
    short_end = (*[Step(90.0, GIB, 90.0)] * 30, Step(5.0, 8 * GIB, 5.0))
    late = RunningJob("late", 8 * GIB, started=0.0, profile=Profile("app", 1.0, short_end))
    seen = replace(snapshot([job("j", None)], [gpu(running=[late], memory=70)]), time=1e9)
    assert list(complaints_about(seen, create("planner").decide(seen))) == []


def test_a_job_of_no_time_ends_after_one_of_a_thousand_years() -> None:
    jobs = [replace(job(name, None, 8), duration=of) for name, of in (("a", 3.6e10), ("b", 0.0))]
    assert len(placed(snapshot(jobs, [gpu()]))) == 1


def test_a_gpu_with_more_jobs_than_it_can_predict_is_left_alone() -> None:
    tiny = [RunningJob(f"b{i}", GIB // 64, profile=steady("tiny", 1, 50)) for i in range(JOBS + 2)]
    crowded = replace(gpu(running=tiny), max_jobs=200, max_clients=200)
    assert placed(snapshot([job("j", profile(Random(1)), 1)], [crowded])) == {}


@pytest.mark.parametrize(
    ("step", "duration"),
    [(Step(float("nan"), GIB), 10.0), (Step(-1.0, GIB), 10.0), (Step(1.0, GIB), float("inf"))],
)
def test_a_profile_of_no_amounts_is_refused(step: Step, duration: float) -> None:
    wrong = Profile("wrong", duration, (step,))
    with pytest.raises(ValueError, match=r"no amounts|no number"):
        placed(snapshot([job("j", wrong)], [gpu()]))


def test_a_learner_may_wait_where_a_network_that_always_waits_does() -> None:
    """Neither leaves a GPU empty until a job on another one ends, nor one with services alone."""
    weights = np.zeros(WEIGHTS, np.float32)
    weights[[0, (INPUTS + 1) * HIDDEN, -HIDDEN - 1]] = 1.0, 1.0, 1e6  # the input of "no jobs"
    waits = Planner(PlannerParameters(work=0), {"makespan": weights})
    held = [RunningJob("r", memory * GIB, profile=steady("r", 40, 100)) for memory in (1, 12)]
    loads = [[], *([replace(one, lasting=lasting)] for one in held for lasting in (False, True))]
    for pair in product(loads, repeat=2):
        gpus = [gpu(f"gpu-{i}", [replace(r, job=f"r{i}") for r in on]) for i, on in enumerate(pair)]
        seen = snapshot([job("j", steady("j", 40, 100))], gpus)
        assert bool(waits.decide(seen)) is not Choices(seen, 2, 2).mask()[-1].item(), pair


def test_an_answer_that_is_no_number_is_an_error() -> None:
    policy = DQN(DQNParameters())
    for weights in policy.weights.values():
        weights.fill(np.nan)
    with pytest.raises(ModelOutputError, match="no finite number"):
        policy.decide(snapshot([job("j", profile(Random(1)))], [gpu()]))


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "folder"])
def test_a_model_file_that_is_none_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.npz"
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(b"" if damage == "empty" else b"garbage" * 99)
    with pytest.raises(PolicyStartError, match=r"model\.npz: .*expected a file that") as caught:
        create("dqn", {"model": str(path)})
    assert isinstance(caught.value.__cause__, ModelError)


def test_the_shipped_model_says_how_it_was_made() -> None:
    assert DQN(DQNParameters()).model.about["training"]["seed"] == 0
