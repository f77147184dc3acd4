"""The simulations: policies on scenes with seeds, side by side on all cores."""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from time import thread_time
from typing import Any

from rich.progress import track

from bench.harness import quantile
from bench.policies.scenes import Scene, World, rate, world
from partita_policies import Policy, create
from partita_policies.types import Objective, Placement, Snapshot
from partita_research.cli.simulate_statistics import gpu_hours
from partita_research.simulator import Result, SimulatedOutcome, simulate

__all__ = ["DEFAULT_OBJECTIVE", "FOLLOWING", "Case", "Figures", "Variant", "figures_of", "run_all"]

DEFAULT_OBJECTIVE = Objective.MAKESPAN
"""Under which a policy runs if nothing is said: those that do not follow one differ under none."""
FOLLOWING = ("planner", "dqn")
"""Policies of which the objective is always named."""
_WARM_UP = 6
"""Of jobs that arrive over time, the first of so many parts finds empty GPUs and does not count."""
_DIGITS = 5
"""Significant digits of stored figures."""

Figures = dict[str, float]
Table = dict[str, dict[str, dict[str, list[float]]]]
"""Values, one for each seed, by scene, variant and figure."""


@dataclass(frozen=True)
class Variant:
    """A policy with what it is told."""

    policy: str
    objective: Objective = DEFAULT_OBJECTIVE
    parameters: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """What it is called in results."""
        told = self.objective is not DEFAULT_OBJECTIVE or self.policy in FOLLOWING
        return self.label or (f"{self.policy} {self.objective}" if told else self.policy)

    def build(self) -> Policy:
        """Return the policy."""
        return create(self.policy, dict(self.parameters))


@dataclass(frozen=True)
class Case:
    """One simulation."""

    scene: Scene
    variant: Variant
    seed: int
    work_rate: float = 0.0


def run_all(cases: Iterable[Case], what: str) -> Table:
    """Run cases on all cores; return their figures.

    The seeds of a variant in a scene are in the order of the cases, so that variants with the same
    seeds can be paired.
    """
    cases = list(cases)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        needed = sorted({key for case in cases if (key := _rated(case))})
        found = pool.map(rate, *zip(*needed, strict=True)) if needed else ()
        rates = dict(zip(needed, found, strict=True))
        rated = [
            replace(case, work_rate=rates[key]) if (key := _rated(case)) else case for case in cases
        ]
        table: Table = {}
        answers = pool.map(_run, rated)
        for case, figures in zip(rated, track(answers, what, len(rated)), strict=True):
            rows = table.setdefault(case.scene.name, {}).setdefault(case.variant.name, {})
            for name, value in figures.items():
                rows.setdefault(name, []).append(float(f"{value:.{_DIGITS}g}"))
    return table


def _rated(case: Case) -> tuple[str, int] | None:
    """Return what the rate of a case depends on; None if it needs none."""
    scene = case.scene
    return (scene.family, case.seed) if scene.load and scene.family != "openb" else None


def _run(case: Case) -> Figures:
    drawn = world(case.scene, case.seed, case.work_rate)
    policy = _Timed(case.variant.build())
    result = simulate(
        drawn.tasks, drawn.gpus, policy, nodes=drawn.nodes, objective=case.variant.objective
    )
    return {
        **figures_of(result, drawn, open_ended=bool(case.scene.load)),
        "decision": 1e3 * _mean(policy.seconds),
    }


class _Timed:
    """A policy, and the CPU time of each decision: wall time would count other programs' too."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seconds: list[float] = []

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        began = thread_time()
        placements = self._policy.decide(snapshot)
        self.seconds.append(thread_time() - began)
        return placements


def figures_of(result: Result, drawn: World, *, open_ended: bool) -> Figures:
    """Return what is reported of a simulation.

    Parameters
    ----------
    open_ended
        Whether jobs arrived over time, so that the first ones found empty GPUs.
    """
    alone = {task.job.id: task.truth.duration for task in drawn.tasks}
    ending = sorted(
        (job for job in result.jobs if job.outcome is not SimulatedOutcome.RUNNING),
        key=lambda job: job.submitted,
    )
    counted = ending[len(ending) // _WARM_UP if open_ended else 0 :]
    ended = [(job, job.finish - job.submitted) for job in counted if job.finish is not None]
    completion = [time for _, time in ended]
    waits = [job.wait or 0.0 for job, _ in ended]
    stretch = [time / alone[job.job] for job, time in ended]
    slowdowns = [job.slowdown for job in result.finished if job.slowdown is not None]
    hours = gpu_hours(result)
    whole = (result.end - result.start) * len(result.gpus) or 1.0
    memory = sum(
        attempt.memory * len(attempt.gpus) * (attempt.end - attempt.start)
        for attempt in result.attempts
    )
    figures = {
        "makespan": result.makespan,
        "completion": _mean(completion),
        "wait": _mean(waits),
        "stretch": _mean(stretch),
        "slowdown": _mean(slowdowns),
        "gpu used": result.gpu_utilisation,
        "gpu held": 100 * 3600 * hours / whole,
        "memory used": result.memory_utilisation,
        "memory held": 100 * memory / (whole * max(gpu.memory for gpu in result.gpus)),
        "hours": hours,
        "kills": float(result.kills),
        "unfinished": float(len(ending) - len(result.finished)),
    }
    for part in (50, 95, 99):
        figures[f"completion p{part}"] = quantile(completion, part / 100)
        figures[f"wait p{part}"] = quantile(waits, part / 100)
    return figures


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
