"""The sections of the benchmark: each returns what it measured."""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from time import process_time
from typing import Any

from rich.progress import track

from bench.policies.bounds import bounds as simple_bounds
from bench.policies.figures import summary
from bench.policies.optimum import mixture_bound, small_optimum
from bench.policies.runs import POLICIES, SEARCH, SEEDS, Case, run_all
from bench.policies.saturation import PUBLISHED, arrivals, saturate
from bench.policies.scenes import OPENB, TRACES, UNSEEN, scene
from bench.policies_times import measure
from partita_policies import create
from partita_research.simulator import simulate
from partita_research.simulator.openb import read_nodes, read_tasks
from partita_research.simulator.synthetic import random_tasks
from partita_research.simulator.workloads import STUDY_WORKLOADS, study_workload

__all__ = [
    "STRICT",
    "bounds",
    "optimal",
    "saturation",
    "speed",
    "strict",
    "study",
    "times",
    "unseen",
]

STRICT = {"slowdown_budget": 1.05}
"""The strict setting of dqn: nobody is predicted to take more than 5 % longer than alone."""
_SMALL = 5
_SOLVED_WITHIN = 15.0
"""Jobs of the instances for CP-SAT, and its seconds for each: its bound holds whenever it ends."""
_TIMED = 2000
_INTERVALS = (40.0, 25.0, 18.0, 12.0)
"""Jobs for the simulator's speed, and mean seconds between them: from half to all of the GPUs."""
_FEW = 5
"""Seeds of what takes long and hardly differs from one to the next."""


def study() -> Any:
    """Run every policy on the study's workloads."""
    cases = [Case(w, p, seed) for w in STUDY_WORKLOADS for p in POLICIES for seed in SEEDS]
    return run_all(cases, "the study's workloads")


def strict() -> Any:
    """Run dqn with a strict budget of slowdown."""
    cases = [Case(w, "dqn", seed, STRICT) for w in STUDY_WORKLOADS for seed in SEEDS]
    return run_all(cases, "a strict slowdown budget")


def unseen() -> Any:
    """Run the policies that do not search on what dqn was not trained on."""
    swift = [policy for policy in POLICIES if policy not in SEARCH]
    cases = [Case(w, p, seed) for w in UNSEEN for p in swift for seed in SEEDS[:_FEW]]
    return run_all(cases, "workloads of other sizes")


def bounds() -> Any:
    """Bound the makespans of the study's workloads from below: by area, longest job and mixture."""
    found: dict[str, Any] = {}
    for workload in STUDY_WORKLOADS:
        rows: dict[str, list[float]] = {}
        for seed in SEEDS:
            tasks, gpus, _ = scene(workload, seed)
            simple = simple_bounds(tasks, gpus)
            rows.setdefault("area", []).append(max(simple.area.values()))
            rows.setdefault("longest chain", []).append(simple.chain)
            rows.setdefault("mixture", []).append(mixture_bound(tasks, gpus))
        found[workload] = {name: summary(values) for name, values in rows.items()}
    return found


def optimal() -> Any:
    """Set the policies beside what CP-SAT proves of small instances."""
    rows: dict[str, list[float]] = {}
    for seed in track(SEEDS, "small instances, by CP-SAT"):
        tasks, gpus, _ = scene("random", seed)
        few = tasks[:_SMALL]
        proven = small_optimum(few, gpus[0], seconds=_SOLVED_WITHIN).bound
        for policy in POLICIES:
            makespan = simulate(few, gpus, create(policy)).makespan
            rows.setdefault(policy, []).append(makespan / proven)
    return {policy: summary(ratios) for policy, ratios in rows.items()}


def saturation() -> Any:
    """Fill the openb cluster under the heuristics that share GPUs."""
    names = ("fifo", "tetris", "fgd")
    cases = [(trace, name, seed) for trace in OPENB for name in names for seed in SEEDS[:_FEW]]
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(_saturate, cases)
        for (trace, name, _), share in zip(
            cases, track(answers, "openb at saturation", len(cases)), strict=True
        ):
            rows = found.setdefault(trace, {"published": dict(PUBLISHED[trace]), "policies": {}})
            rows["policies"].setdefault(name, []).append(share)
    for rows in found.values():
        rows["policies"] = {name: summary(shares) for name, shares in rows["policies"].items()}
    return found


def speed() -> Any:
    """Time the simulator under fifo: jobs that arrive over time on eight GPUs, at several loads."""
    card = study_workload("random").gpus[0]
    gpus = [replace(card, id=f"gpu-{n}") for n in range(8)]
    rows = []
    for interval in _INTERVALS:
        tasks = random_tasks(0, _TIMED, card, applications=20, interval=interval)
        start = process_time()
        result = simulate(tasks, gpus, create("fifo"))
        seconds = process_time() - start
        rows.append(
            {
                "interval": interval,
                "gpu": result.gpu_utilisation,
                "longest_queue": max((waiting for _, waiting in result.waiting()), default=0),
                "jobs_per_second": _TIMED / seconds,
            }
        )
    return rows


def times() -> Any:
    """Time single decisions of all policies that do not search."""
    return measure([policy for policy in POLICIES if policy not in SEARCH])


def _saturate(case: tuple[str, str, int]) -> float:
    trace, name, seed = case
    nodes = read_nodes(TRACES / "openb_node_list_gpu_node.csv")
    tasks = read_tasks(TRACES / f"openb_pod_list_{trace}.csv")
    return saturate(create(name), nodes, arrivals(tasks, nodes, seed)).allocated
