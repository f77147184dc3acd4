"""The parts of the benchmark: each returns what it measured."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.progress import track
from typing_extensions import override

from bench.policies.figures import HEURISTICS
from bench.policies.published import ALLOCATED
from bench.policies.runs import FOLLOWING, Case, Variant, run_all
from bench.policies.saturation import arrivals, saturate
from bench.policies.scenes import TRACES, Scene, traces
from bench.policies.times import measure
from partita_policies.dqn import DQN, DQNParameters
from partita_policies.planner import Planner, PlannerParameters
from partita_policies.planner.policy import GOALS
from partita_policies.sjf import SJF, SJFParameters
from partita_policies.types import Objective, Placement, Snapshot
from partita_research.simulator.openb import read_nodes, read_tasks
from partita_research.simulator.workloads import STUDY_WORKLOADS
from partita_research.training.held_out import held_out
from partita_research.training.scenarios import random_scenario, training_workload

__all__ = ["PARTS", "SEEDS", "Plan"]

BASELINES = (*HEURISTICS, "deeprm-max", "deeprm-mean")
"""Policies that follow no objective in these workloads."""
LOADS = (0.6, 0.8, 0.95, 1.1)
SJF_ALONE = Variant("sjf", parameters={"exclusive": True}, label="sjf exclusive")
"""SJF as the study has it: a GPU for each job."""


class _WholeGPUs(Variant):
    """The first job in the queue gets a GPU of its own: Kubernetes without Partita."""

    @override
    def build(self) -> "_WholeGPUs":
        return self

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        in_order = [replace(job, duration=None) for job in snapshot.jobs]
        return SJF(SJFParameters(exclusive=True)).decide(replace(snapshot, jobs=in_order))


COMPARATORS = (
    _WholeGPUs("fifo", label="whole GPUs"),
    Variant("fifo", parameters={"backfill": False}, label="fifo without backfill"),
    Variant("fifo", Objective.PACKING, label="binpack"),
)
"""What users know from elsewhere; none of them counts as a heuristic to beat."""
STRICT = Variant("dqn", parameters={"slowdown_budget": 1.05}, label="dqn, budget 1.05")
TRACES_SHOWN = (
    *("default", "gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("multigpu20", "multigpu50", "gpuspec33", "cpu250"),
)
"""Of openb, as far as they are there."""
_RANDOM = 400
"""Random workloads on one GPU."""
SEEDS = 20
"""Samples of each workload, but of those with 1,000 GPUs."""
_HUGE_SEEDS = 3
"""Seeds of 1,000 GPUs, at most: a simulation has thousands of jobs."""
_TRAINED = (1, 2)
"""Seeds of trainings that are repeated here; the network of the package has seed 0."""
_EITHER = (Objective.MAKESPAN, Objective.COMPLETION)
_TIMES = (*_EITHER, Objective.BALANCED)
_SPACE = (Objective.PACKING, Objective.BALANCED)
_FEW = [*map(Variant, HEURISTICS), *COMPARATORS]
_LARGE = [*_FEW, *(Variant(one, Objective.COMPLETION) for one in FOLLOWING)]
_STUDY = [Scene(name) for name in STUDY_WORKLOADS]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to run."""

    seeds: int
    """Samples of each workload."""

    def cases(
        self, scenes: Iterable[Scene], variants: Iterable[Variant], seeds: int = 0
    ) -> list[Case]:
        """Return the simulations of variants on scenes."""
        chosen = list(variants)
        return [
            Case(scene, variant, seed)
            for scene in scenes
            for seed in range(seeds or self.seeds)
            for variant in chosen
        ]

    def run(self, what: str, scenes: Iterable[Scene], variants: Iterable[Variant]) -> Any:
        """Run variants on scenes."""
        return run_all(self.cases(scenes, variants), what)


def _all(objectives: Sequence[Objective] = _TIMES) -> list[Variant]:
    """Return all policies, those that follow the objective under each of several."""
    following = [Variant(name, objective) for name in FOLLOWING for objective in objectives]
    return [*COMPARATORS, *map(Variant, BASELINES), *following]


def _study(plan: Plan) -> Any:
    """Run every policy on the study's workloads."""
    variants = [*_all(), SJF_ALONE, STRICT]
    return plan.run("the study's workloads", _STUDY, variants)


def _random(plan: Plan) -> Any:
    """Run all policies on random workloads, 30 jobs on one GPU."""
    count = max(1, plan.seeds * _RANDOM // 20)
    return run_all(plan.cases([Scene("random")], _all(), count), "random workloads")


def _at_once(plan: Plan) -> Any:
    """Run all policies on many jobs that arrive at once."""
    scenes = [Scene(family, 300, 8) for family in ("mix", "random", "heavy-tailed")]
    return plan.run("many jobs at once", scenes, _all(_EITHER))


def _arrivals_8(plan: Plan) -> Any:
    """Run all policies with jobs that arrive over time, on eight GPUs."""
    families = ("random", "mix", "heavy-tailed")
    scenes = [Scene(family, 300, 8, "poisson", load) for family in families for load in LOADS]
    return plan.run("arrivals on 8 GPUs", scenes, _all())


def _arrivals_64(plan: Plan) -> Any:
    """Run the heuristics and the policies that follow the objective on 64 GPUs."""
    scenes = [Scene("random", 600, 64, "poisson", load) for load in LOADS]
    return plan.run("arrivals on 64 GPUs", scenes, _LARGE)


def _arrivals_1000(plan: Plan) -> Any:
    """Run the heuristics on a thousand GPUs, and the others once at one load: they take ten minutes."""
    scenes = [Scene("random", 5000, 1000, "poisson", load) for load in (0.8, 0.95)]
    cases = plan.cases(scenes, _FEW, min(plan.seeds, _HUGE_SEEDS))
    slow = plan.cases(scenes[:1], _LARGE[len(_FEW) :], 1)
    return run_all(cases + slow, "arrivals on 1,000 GPUs")


def _patterns(plan: Plan) -> Any:
    """Run all policies with arrivals by day, in bursts, beside services, and as in openb."""
    scenes = [
        *(Scene("random", 300, 8, pattern, 0.8) for pattern in ("diurnal", "bursts")),
        Scene("random", 300, 8, "poisson", 0.6, services=6),
        *(Scene("openb", 300, 16, "own", load) for load in LOADS),
    ]
    return plan.run("other arrivals", scenes, _all())


def _faults(plan: Plan) -> Any:
    """Run all policies with profiles that are wrong or lacking, and with memory kills."""
    scenes = [
        replace(scene, **change)
        for scene in (Scene("random", 100, 8), Scene("random", 300, 8, "poisson", 0.8))
        for change in ({}, {"wrong": True}, {"unknown": True}, {"kills": True})
    ]
    return plan.run("wrong profiles, memory kills", scenes, _all(_EITHER))


def _saturation(plan: Plan) -> Any:
    """Fill the openb cluster under every policy."""
    there = [name for name in TRACES_SHOWN if name in traces()]
    variants = _all(_SPACE)
    seeds = range(max(1, plan.seeds // 5))
    cases = [(trace, variant, seed) for trace in there for variant in variants for seed in seeds]
    found: dict[str, dict[str, list[float]]] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        shares = track(pool.map(_saturate, cases), "openb at saturation", len(cases))
        for (trace, variant, _), share in zip(cases, shares, strict=True):
            found.setdefault(trace, {}).setdefault(variant.name, []).append(round(share, 3))
    published = {name: ALLOCATED[name] for name in there if name in ALLOCATED}
    return {"allocated": found, "published": published}


def _saturate(case: tuple[str, Variant, int]) -> float:
    trace, variant, seed = case
    nodes = read_nodes(TRACES / "openb_node_list_gpu_node.csv")
    order = arrivals(read_tasks(traces()[trace]), nodes, seed)
    return saturate(variant.build(), nodes, order, variant.objective)


_Learnt = tuple[Objective, str, type[Planner] | type[DQN], int, int | None, int]


def _learning(plan: Plan) -> Any:
    """Compare dqn's network, with and without plans, with its prior on workloads of its own.

    The network of other seeds is trained here, for the objective Makespan.
    """
    count = max(2, plan.seeds * _RANDOM // 20)
    plans = DQNParameters().work
    cases: list[_Learnt] = [
        (objective, name, policy, work, None, count)
        for objective in _EITHER
        for name, policy, work in (
            ("network alone", DQN, 0),
            ("prior and plans", Planner, plans),
            ("network and plans", DQN, plans),
        )
    ]
    cases += [
        (Objective.MAKESPAN, f"network alone, trained with seed {seed}", DQN, 0, seed, count)
        for seed in _TRAINED
    ]
    rows: dict[str, Any] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        apart = track(pool.map(_learnt, cases), "dqn and its prior", len(cases))
        for (objective, name, *_), found in zip(cases, apart, strict=True):
            rows.setdefault(objective, {})[name] = found
    return rows


def _learnt(case: _Learnt) -> tuple[float, float, int]:
    objective, _, kind, work, seed, count = case
    policy = kind(DQNParameters(work=work))
    if seed is not None:
        from partita_research.training.deep_q import Training, train  # imports torch

        draw = partial(training_workload, random_scenario)
        for now in train(Training(seed=seed), objective, draw):
            policy.weights[GOALS[objective].name] = now.weights
    prior = Planner(PlannerParameters(work=0))
    apart = held_out(policy, prior, random_scenario, objective=objective, workloads=count)
    return 100 * apart.mean, 100 * apart.interval, apart.workloads


def _times(_plan: Plan) -> Any:
    """Time single decisions of all policies."""
    return measure((*BASELINES, *FOLLOWING))


PARTS: dict[str, Callable[[Plan], Any]] = {
    "study": _study,
    "random": _random,
    "at-once": _at_once,
    "arrivals-8": _arrivals_8,
    "arrivals-64": _arrivals_64,
    "arrivals-1000": _arrivals_1000,
    "patterns": _patterns,
    "faults": _faults,
    "saturation": _saturation,
    "learning": _learning,
    "times": _times,
}
"""By name; each returns figures for JSON."""
