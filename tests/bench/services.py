"""Services beside batch in the simulator: their slowdown, and what their limit costs and saves.

    python -m bench.services --runs 5

The workload is drawn: batch jobs and services arrive at random at 8 GPUs of 40 GiB, in the same
order in every row. A row says how services are placed, and the most memory that they may have.
Slowdowns are those of the model of interference that the operator predicts with. Preemption is not
simulated: the simulator has one priority for all.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from unittest.mock import patch

from partita_policies import GPU, Job, create
from partita_policies.capacity import FreeCapacity
from partita_policies.lasting import SERVICES_PERCENT, best_gpu
from partita_policies.types import Sharing
from partita_research.simulator import Result, Simulation, Task
from partita_research.simulator.lasting import with_services
from partita_research.simulator.products import gpus_of
from partita_research.simulator.synthetic import random_tasks

GPUS = 8
JOBS = 240
INTERVAL = 15.0
"""Mean seconds between arrivals."""
PLACEMENT = "partita_research.simulator.lasting.best_gpu"


@dataclass(frozen=True)
class Setting:
    """A row: a share of services, their limit in percent of the memory, and their placement."""

    name: str
    services: float
    percent: int
    first_fit: bool = False


SETTINGS = (
    Setting("no services", 0.0, SERVICES_PERCENT),
    Setting("predicted slowdown and packing, limit 50 %", 0.15, 50),
    Setting("predicted slowdown and packing, limit 70 %", 0.15, 70),
    Setting("predicted slowdown and packing, no limit", 0.15, 100),
    Setting("first GPU with room, limit 70 %", 0.15, 70, first_fit=True),
)


def first_with_room(
    job: Job, capacity: FreeCapacity, gpus: Iterable[GPU], _: Sharing
) -> str | None:
    """Choose the first GPU on which a service fits, in place of `best_gpu`."""
    return next((gpu.id for gpu in gpus if capacity.why_not(job, gpu.id) is None), None)


def run(setting: Setting, tasks: Sequence[Task], gpus: Sequence[GPU]) -> Result:
    """Simulate a workload to its end under the policy fifo."""
    policy = create("fifo")
    with patch(PLACEMENT, first_with_room if setting.first_fit else best_gpu):
        simulation = Simulation(tasks, gpus, services_percent=setting.percent)
        while (snapshot := simulation.next_decision()) is not None:
            simulation.apply(policy.decide(snapshot))
    return simulation.result()


def row(setting: Setting, runs: int) -> str:
    """Simulate a setting several times; return its line of the table, with means."""
    waits, slowdowns, batch_waits, batch_slowdowns = (list[float]() for _ in range(4))
    running = left = wanted = 0
    gpus = gpus_of("a100-40gb", GPUS, max_jobs=16, per_node=8)
    for seed in range(runs):
        drawn = random_tasks(seed, JOBS, gpus[0], interval=INTERVAL)
        tasks = with_services(drawn, setting.services, seed)
        lasting = {task.job.id for task in tasks if task.job.lasting}
        wanted += len(lasting)
        for job in run(setting, tasks, gpus).jobs:
            if job.start is None:
                left += job.job not in lasting
            elif job.job in lasting:
                running += 1
                waits.append(job.wait or 0.0)
                slowdowns.append(job.slowdown or 1.0)
            else:
                batch_waits.append(job.wait or 0.0)
                batch_slowdowns.append(job.slowdown or 1.0)
    services = [""] * 4
    if wanted:
        services = [f"{running / runs:.0f} of {wanted / runs:.0f}", f"{mean(waits):.0f} s"]
        services += [f"{mean(slowdowns):.2f}", f"{_p90(slowdowns):.2f}"]
    batch = [f"{mean(batch_waits):.0f} s", f"{_p90(batch_waits):.0f} s"]
    batch += [f"{mean(batch_slowdowns):.2f}", f"{left / runs:.0f}"]
    return f"| {' | '.join([setting.name, *services, *batch])} |"


def _p90(values: Sequence[float]) -> float:
    return sorted(values)[int(0.9 * (len(values) - 1))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5, help="workloads, with seeds from 0 on")
    runs = parser.parse_args().runs
    print(
        "| | services started | their wait | their slowdown | p90 "
        "| wait of batch | p90 | slowdown | never started |"
    )
    print(f"|{' --- |' * 9}")
    for setting in SETTINGS:
        print(row(setting, runs), flush=True)


if __name__ == "__main__":
    main()
