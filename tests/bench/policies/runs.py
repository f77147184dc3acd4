"""The simulations: one policy on one workload with one seed, many of them side by side."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rich.progress import track

from bench.policies.figures import summary
from bench.policies.scenes import scene
from partita_policies import create
from partita_research.simulator import Result, simulate

__all__ = ["POLICIES", "SEARCH", "SEEDS", "Case", "run_all"]

POLICIES = ("fifo", "sjf", "tetris", "fgd", "deeprm-max", "deeprm-mean", "lookahead", "dqn")
SEARCH = frozenset({"lookahead"})
SEEDS = tuple(range(10))
_UNSLOWED = 0.05
"""Slowdown up to which a job counts as not slowed; the study takes 0.02 (section V.3.2)."""


@dataclass(frozen=True)
class Case:
    """One simulation."""

    workload: str
    policy: str
    seed: int
    parameters: Mapping[str, Any] = field(default_factory=dict)


def run_all(cases: Sequence[Case], what: str) -> dict[str, dict[str, Any]]:
    """Run cases on all cores; return the figures by workload and policy."""
    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(_run, cases)
        for case, figures in zip(cases, track(answers, what, len(cases)), strict=True):
            rows.setdefault((case.workload, case.policy), []).append(figures)
    table: dict[str, dict[str, Any]] = {}
    for (workload, policy), figures in rows.items():
        table.setdefault(workload, {})[policy] = {
            name: summary([one[name] for one in figures]) for name in figures[0]
        }
    return table


def _run(case: Case) -> dict[str, float]:
    tasks, gpus, nodes = scene(case.workload, case.seed)
    policy = create(case.policy, dict(case.parameters))
    return _figures(simulate(tasks, gpus, policy, nodes=nodes))


def _figures(result: Result) -> dict[str, float]:
    done = [job for job in result.jobs if job.slowdown is not None]
    slowdowns = [job.slowdown or 1.0 for job in done]
    waits = [job.wait or 0.0 for job in done]
    times = sorted(result.seconds) or [0.0]
    return {
        "makespan": result.makespan,
        "completion": result.mean_completion,
        "wait": sum(waits) / max(len(waits), 1),
        "gpu": result.gpu_utilisation,
        "memory": result.memory_utilisation,
        "unslowed": float(result.unslowed(_UNSLOWED)),
        "slowdown": sum(slowdowns) / max(len(slowdowns), 1),
        "worst": max(slowdowns, default=1.0),
        "kills": float(result.kills),
        "unfinished": float(len(result.jobs) - len(done)),
        "rejected": float(result.rejected),
        "decision_ms": 1e3 * sum(times) / len(times),
    }
