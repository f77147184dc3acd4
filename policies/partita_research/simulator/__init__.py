"""Simulates jobs on shared GPUs under a policy, without Kubernetes, GPUs or a clock.

from partita_policies import GPU, create
from partita_research.simulator import simulate, task_of

tasks = [task_of(application, f"job-{n}") for n in range(30)]
result = simulate(tasks, [GPU("gpu-0", "node", 12 << 30, 8)], create("sjf"))
print(result.makespan, result.gpu_utilisation)
"""

from partita_policies.simulator.engine import Simulation, simulate
from partita_policies.simulator.results import (
    JobResult,
    Reading,
    Result,
    SimulatedAttempt,
    SimulatedOutcome,
)
from partita_policies.simulator.tasks import Application, Task, task_of
from partita_research.simulator.jitter import jitter

__all__ = [
    "Application",
    "JobResult",
    "Reading",
    "Result",
    "SimulatedAttempt",
    "SimulatedOutcome",
    "Simulation",
    "Task",
    "jitter",
    "simulate",
    "task_of",
]
