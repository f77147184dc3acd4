"""Simulates jobs on shared GPUs under a policy: no Kubernetes, no GPU, no clock.

from partita_policies import GPU, create
from partita_policies.simulator import simulate, task_of

tasks = [task_of(application, f"job-{n}") for n in range(30)]
result = simulate(tasks, [GPU("gpu-0", "node", 12 << 30, 8)], create("sjf"))
print(result.makespan, result.gpu_utilisation)
"""

from partita_policies.simulator.engine import Simulation, simulate
from partita_policies.simulator.jitter import jitter
from partita_policies.simulator.results import Attempt, JobResult, Outcome, Reading, Result
from partita_policies.simulator.tasks import Application, Task, task_of

__all__ = [
    "Application",
    "Attempt",
    "JobResult",
    "Outcome",
    "Reading",
    "Result",
    "Simulation",
    "Task",
    "jitter",
    "simulate",
    "task_of",
]
