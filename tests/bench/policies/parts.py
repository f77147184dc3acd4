"""The parts of the benchmark: each returns what it measured."""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Any

from rich.progress import track

from bench.policies.bounds import bounds as simple_bounds
from bench.policies.optimum import TooLargeError, mixture_bound, small_optimum
from bench.policies.published import PUBLISHED
from bench.policies.runs import Case, Variant, run_all
from bench.policies.saturation import arrivals, saturate
from bench.policies.scenes import TRACES, Scene, traces, world
from bench.policies_times import measure
from partita_policies import create
from partita_policies.dqn import DQN, DQNParameters
from partita_policies.dqn.policy import GOALS
from partita_policies.types import Objective, Sharing
from partita_research.simulator import simulate
from partita_research.simulator.openb import read_nodes, read_tasks
from partita_research.simulator.synthetic import random_tasks
from partita_research.simulator.workloads import STUDY_WORKLOADS, study_workload
from partita_research.training.held_out import held_out
from partita_research.training.scenarios import random_scenario, training_workload

__all__ = ["HEURISTICS", "LOADS", "PARTS", "STRICT", "TRACES_SHOWN", "Part", "Plan"]

HEURISTICS = ("fifo", "sjf", "tetris", "fgd")
BASELINES = (*HEURISTICS, "deeprm-max", "deeprm-mean")
"""Policies that follow no objective in these workloads."""
SWIFT = (*BASELINES, "dqn")
"""All but lookahead, which searches for up to a second."""
LOADS = (0.6, 0.8, 0.95, 1.1)
SJF_ALONE = Variant("sjf", parameters={"exclusive": True}, label="sjf exclusive")
"""SJF as the study has it: a GPU for each job."""
STRICT = Variant("dqn", parameters={"slowdown_budget": 1.05}, label="dqn, budget 1.05")
TRACES_SHOWN = (
    "default",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "multigpu20",
    "multigpu50",
    "gpuspec33",
    "cpu250",
)
"""Of openb, as far as they are there."""
_RANDOM, _SEARCHED = 400, 100
"""Random workloads on one GPU, and those on which lookahead runs, too."""
SEEDS = 20
"""Samples of each workload, but of those with 1,000 GPUs."""
_HUGE_SEEDS = 3
"""Seeds of 1,000 GPUs, at most: a simulation has thousands of jobs."""
_TRAINED = (1, 2)
"""Seeds of trainings that are repeated here; the network of the package has seed 0."""
_SMALL, _SOLVED_WITHIN = 5, 15.0
"""Jobs of the instances for CP-SAT, and its seconds for each: its bound holds whenever it ends."""
_TIMED = {8: 4000, 1000: 8000}
"""Jobs for the simulator's speed, by GPUs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to run."""

    seeds: int
    """Samples of each workload."""
    policies: Collection[str] = ()
    """Run these alone; empty for all."""

    def of(self, variants: Iterable[Variant]) -> list[Variant]:
        """Return the variants to run."""
        return [one for one in variants if not self.policies or one.policy in self.policies]


Part = Callable[[Plan], Any]
"""Returns figures for JSON."""


_TIMES = (Objective.MAKESPAN, Objective.COMPLETION, Objective.BALANCED)
_EITHER = (Objective.MAKESPAN, Objective.COMPLETION)
_SPACE = (Objective.PACKING, Objective.BALANCED)


def _swift(objectives: Sequence[Objective] = _TIMES) -> list[Variant]:
    """Return all policies but lookahead, and dqn under each of several objectives."""
    return [*map(Variant, BASELINES), *(Variant("dqn", objective) for objective in objectives)]


_SEARCHING = [Variant("lookahead", one) for one in (Objective.MAKESPAN, Objective.COMPLETION)]


def _cases(
    scenes: Iterable[Scene], variants: Iterable[Variant], plan: Plan, seeds: int = 0
) -> list[Case]:
    chosen = plan.of(variants)
    return [
        Case(scene, variant, seed)
        for scene in scenes
        for seed in range(seeds or plan.seeds)
        for variant in chosen
    ]


def _study(plan: Plan) -> Any:
    """Run every policy on the study's workloads."""
    scenes = [Scene(name) for name in STUDY_WORKLOADS]
    return run_all(
        _cases(scenes, [*_swift(), SJF_ALONE, *_SEARCHING, STRICT], plan), "the study's workloads"
    )


def _slicing(plan: Plan) -> Any:
    """Run the study's policies as it did: GPUs shared by time slicing."""
    scenes = [Scene(name) for name in STUDY_WORKLOADS]
    names = ("sjf", "tetris", "deeprm-max", "deeprm-mean")
    variants = [SJF_ALONE, *map(Variant, names), Variant("dqn", label="dqn")]
    cases = _cases(scenes, variants, plan)
    return run_all([replace(case, sharing=Sharing.TIME_SLICING) for case in cases], "time slicing")


def _random(plan: Plan) -> Any:
    """Run all policies on random workloads, 30 jobs on one GPU; lookahead on some of them."""
    scene, count = [Scene("random")], max(1, plan.seeds * _RANDOM // 20)
    searched = max(1, count * _SEARCHED // _RANDOM)
    cases = _cases(scene, _swift(), plan, count) + _cases(scene, _SEARCHING, plan, searched)
    return run_all(cases, "random workloads")


def _at_once(plan: Plan) -> Any:
    """Run all policies on many jobs that arrive at once."""
    scenes = [Scene(family, 300, 8) for family in ("mix", "random", "heavy-tailed")]
    return run_all(_cases(scenes, _swift(_EITHER), plan), "many jobs at once")


def _arrivals_8(plan: Plan) -> Any:
    """Run all policies with jobs that arrive over time, on eight GPUs."""
    families = ("random", "mix", "heavy-tailed")
    scenes = [Scene(family, 300, 8, "poisson", load) for family in families for load in LOADS]
    return run_all(_cases(scenes, _swift(), plan), "arrivals on 8 GPUs")


def _arrivals_64(plan: Plan) -> Any:
    """Run the heuristics and dqn on 64 GPUs."""
    scenes = [Scene("random", 600, 64, "poisson", load) for load in LOADS]
    return run_all(_cases(scenes, _large(), plan), "arrivals on 64 GPUs")


def _arrivals_1000(plan: Plan) -> Any:
    """Run the heuristics on a thousand GPUs, and dqn once at one load: it takes ten minutes."""
    scenes = [Scene("random", 5000, 1000, "poisson", load) for load in (0.8, 0.95)]
    cases = _cases(scenes, map(Variant, HEURISTICS), plan, min(plan.seeds, _HUGE_SEEDS))
    cases += _cases(scenes[:1], [Variant("dqn", Objective.COMPLETION)], plan, 1)
    return run_all(cases, "arrivals on 1,000 GPUs")


def _large() -> list[Variant]:
    return [*map(Variant, HEURISTICS), Variant("dqn", Objective.COMPLETION)]


def _patterns(plan: Plan) -> Any:
    """Run all policies with arrivals by day, in bursts, beside services, and as in openb."""
    scenes = [
        *(Scene("random", 300, 8, pattern, 0.8) for pattern in ("diurnal", "bursts")),
        Scene("random", 300, 8, "poisson", 0.6, services=6),
        *(Scene("openb", 300, 16, "own", load) for load in LOADS),
    ]
    return run_all(_cases(scenes, _swift(), plan), "other arrivals")


def _faults(plan: Plan) -> Any:
    """Run all policies with profiles that are wrong or lacking, and with memory kills."""
    common = [Scene("random", 100, 8), Scene("random", 300, 8, "poisson", 0.8)]
    scenes = [
        changed
        for scene in common
        for changed in (
            scene,
            replace(scene, wrong=True),
            replace(scene, unknown=True),
            replace(scene, kills=True),
        )
    ]
    return run_all(_cases(scenes, _swift(_EITHER), plan), "wrong profiles, memory kills")


def _saturation(plan: Plan) -> Any:
    """Fill the openb cluster under every policy that does not search."""
    there = [name for name in TRACES_SHOWN if name in traces()]
    count = max(1, plan.seeds // 5)
    variants = plan.of([Variant("fifo", Objective.PACKING), *_swift(_SPACE)])
    cases = [
        (trace, variant, seed) for trace in there for variant in variants for seed in range(count)
    ]
    found: dict[str, dict[str, list[float]]] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(_saturate, cases)
        for (trace, variant, _), share in zip(
            cases, track(answers, "openb at saturation", len(cases)), strict=True
        ):
            found.setdefault(trace, {}).setdefault(variant.name, []).append(round(share, 3))
    published = {name: PUBLISHED[name]._asdict() for name in there if name in PUBLISHED}
    return {"allocated": found, "published": published}


def _saturate(case: tuple[str, Variant, int]) -> float:
    trace, variant, seed = case
    nodes = read_nodes(TRACES / "openb_node_list_gpu_node.csv")
    tasks = read_tasks(traces()[trace])
    order = arrivals(tasks, nodes, seed)
    return saturate(variant.build(), nodes, order, objective=variant.objective).allocated


def _bounds(plan: Plan) -> Any:
    """Bound the makespans of the study's workloads from below, and of small instances by CP-SAT."""
    found: dict[str, dict[str, list[float]]] = {}
    for workload in STUDY_WORKLOADS:
        rows: dict[str, list[float]] = {}
        try:
            for seed in range(plan.seeds):
                drawn = world(Scene(workload), seed)
                simple = simple_bounds(drawn.tasks, drawn.gpus)
                rows.setdefault("area", []).append(max(simple.area.values()))
                rows.setdefault("longest chain", []).append(simple.chain)
                rows.setdefault("mixture", []).append(mixture_bound(drawn.tasks, drawn.gpus))
        except TooLargeError as error:
            print(f"{workload}: no lower bound: {error}", file=sys.stderr)
            continue
        found[workload] = rows
    rows = {}
    for seed in track(range(max(1, plan.seeds // 2)), "small instances, by CP-SAT"):
        drawn = world(Scene("random"), seed)
        few = drawn.tasks[:_SMALL]
        proven = small_optimum(few, drawn.gpus[0], seconds=_SOLVED_WITHIN).bound
        for variant in map(Variant, (*SWIFT, "lookahead")):
            makespan = simulate(few, drawn.gpus, variant.build()).makespan
            rows.setdefault(variant.name, []).append(makespan / proven)
    return {"bounds": found, "small": rows}


def _speed(_: Plan) -> Any:
    """Time the simulator: fifo, jobs that arrive over time, most of the GPUs busy."""
    card = study_workload("random").gpus[0]
    rows = []
    for count, jobs in _TIMED.items():
        gpus = [replace(card, id=f"gpu-{n}", node=f"node-{n // 8}") for n in range(count)]
        for interval in (300, 150, 100):
            tasks = random_tasks(0, jobs, card, applications=20, interval=interval / count)
            start = process_time()
            result = simulate(tasks, gpus, create("fifo"))
            seconds = process_time() - start
            queue = max((waiting for _, waiting in result.waiting()), default=0)
            used = result.gpu_utilisation
            rows.append(
                {"gpus": count, "used": used, "queue": queue, "jobs a second": jobs / seconds}
            )
    return rows


def _learning(plan: Plan) -> Any:
    """Compare dqn's network, with and without plans, with its prior on workloads of its own.

    The network of other seeds is trained here, for the objective Makespan.
    """
    count = max(2, plan.seeds * _RANDOM // 20)
    cases: dict[tuple[Objective, str], tuple[Objective, int, int | None, int]] = {
        (objective, name): (objective, work, None, count)
        for objective in _EITHER
        for name, work in {"network alone": 0, "network and plans": DQNParameters().work}.items()
    }
    for seed in _TRAINED:
        name = f"network alone, trained with seed {seed}"
        cases[Objective.MAKESPAN, name] = (Objective.MAKESPAN, 0, seed, count)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(track(pool.map(_learnt, cases.values()), "dqn and its prior", len(cases)))
    rows: dict[str, Any] = {}
    for (objective, name), apart in zip(cases, found, strict=True):
        rows.setdefault(objective, {})[name] = apart
    return rows


def _learnt(case: tuple[Objective, int, int | None, int]) -> tuple[float, float, int]:
    objective, work, seed, count = case
    policy = DQN(DQNParameters(work=work))
    if seed is not None:
        from partita_research.training.policy_gradient import Training, train  # imports torch

        draw = partial(training_workload, random_scenario)
        for now in train(Training(seed=seed), objective, draw):
            policy.weights[GOALS[objective].network] = now.weights
    apart = held_out(policy, random_scenario, objective=objective, workloads=count)
    return 100 * apart.mean, 100 * apart.interval, apart.workloads


def _times(plan: Plan) -> Any:
    """Time single decisions of all policies that do not search."""
    names = [one.policy for one in plan.of(map(Variant, SWIFT))]
    rows = measure(names)
    return {name: [row for row in rows if row["policy"] == name] for name in names}


PARTS: dict[str, Part] = {
    "study": _study,
    "slicing": _slicing,
    "random": _random,
    "at-once": _at_once,
    "arrivals-8": _arrivals_8,
    "arrivals-64": _arrivals_64,
    "arrivals-1000": _arrivals_1000,
    "patterns": _patterns,
    "faults": _faults,
    "saturation": _saturation,
    "learning": _learning,
    "bounds": _bounds,
    "speed": _speed,
    "times": _times,
}
