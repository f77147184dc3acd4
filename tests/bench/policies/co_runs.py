"""Measures what a cluster's own co-runs are worth to a policy.

    PYTHONPATH=tests python -m bench.policies.co_runs --workloads 16 --seed 3000

Each workload runs twice, in different orders. Profiles do not show the SM occupancy, as on GPUs
before Hopper. The second run is repeated with profiles that know what ran together in the first.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from math import log
from random import Random
from statistics import fmean, stdev

from bench.policies.experience import experienced
from partita_policies import GPU, create
from partita_research.simulator import Result, Task, simulate
from partita_research.simulator.synthetic import random_tasks

CARD = GPU("gpu", "node", 24 << 30, 8, pcie_bandwidth=32 * 10**9)
_JOBS, _APPLICATIONS = 60, 8


def main() -> None:
    """Print the change of the makespan and of the mean completion time, with 95 % intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=16)
    parser.add_argument("--seed", type=int, default=3000, help="of the first workload")
    parser.add_argument("--policy", default="lookahead")
    given = parser.parse_args()
    parameters = {"work": 3000} if given.policy == "lookahead" else {}

    def run(tasks: Sequence[Task]) -> Result:
        return simulate(tasks, [CARD], create(given.policy, parameters))

    changes: dict[str, list[float]] = {"makespan": [], "mean completion time": []}
    for seed in range(given.seed, given.seed + given.workloads):
        tasks = [
            _blind(task) for task in random_tasks(seed, _JOBS, CARD, applications=_APPLICATIONS)
        ]
        taught = {task.job.id: task for task in experienced(tasks, run(tasks))}
        order = Random(seed).sample(tasks, len(tasks))
        before, after = run(order), run([taught[task.job.id] for task in order])
        changes["makespan"].append(log(after.makespan / before.makespan))
        changes["mean completion time"].append(log(_completion(after) / _completion(before)))
    for name, found in changes.items():
        half = 1.96 * stdev(found) / len(found) ** 0.5
        print(f"{given.policy}, {name}: {fmean(found):+.2%} ± {half:.2%} (n = {len(found)})")


def _blind(task: Task) -> Task:
    profile = task.job.profile
    if profile is None:
        return task
    steps = tuple(replace(step, core=0.0) for step in profile.steps)
    return Task(replace(task.job, profile=replace(profile, steps=steps)), task.truth)


def _completion(result: Result) -> float:
    return fmean(job.finish - job.submitted for job in result.jobs if job.finish is not None)


if __name__ == "__main__":
    main()
