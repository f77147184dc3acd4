"""Small applications, GPUs and policies that the simulator's tests share."""

from collections.abc import Sequence
from random import Random
from typing import ClassVar

from partita_policies import GPU, Parameters, Placement, Snapshot, Step
from partita_research.simulator import Application, Task, task_of

__all__ = ["GIB", "Scripted", "Whim", "application", "gpus", "queue"]

GIB = 1 << 30


def application(
    name: str = "app", duration: float = 100.0, memory: Sequence[float] = (2.0,), gpu: float = 30.0
) -> Application:
    """An application with a step for each figure of memory, GiB; its kernels fill the SMs."""
    steps = tuple(Step(gpu=gpu, memory=int(gib * GIB), core=0.6 * gpu) for gib in memory)
    return Application(name, duration, steps, cache=0.0)


def gpus(count: int = 1, memory: float = 12.0) -> list[GPU]:
    """GPUs of one node."""
    return [GPU(f"gpu-{index}", "node", int(memory * GIB), 16) for index in range(count)]


def queue(*applications: Application, every: float = 0.0, **settings) -> list[Task]:
    """One job of each application, named job-0 and so on."""
    return [
        task_of(truth, f"job-{index}", **{"submitted": index * every, **settings})
        for index, truth in enumerate(applications)
    ]


class Scripted:
    """Answers each decision with the next of its lines, then with nothing."""

    parameters: ClassVar[type[Parameters]] = Parameters

    def __init__(self, *lines: Sequence[Placement]) -> None:
        self._lines = list(lines)
        self.seen: list[Snapshot] = []

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        self.seen.append(snapshot)
        return self._lines.pop(0) if self._lines else ()


class Whim:
    """Places jobs anywhere, some where they must not be, and waits now and then."""

    parameters: ClassVar[type[Parameters]] = Parameters

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        if self.random.random() < 0.2 and any(gpu.running for gpu in snapshot.gpus):
            return []
        jobs = list(snapshot.jobs)
        self.random.shuffle(jobs)
        gpus = [gpu.id for gpu in snapshot.gpus]
        return [
            Placement(job.id, tuple(self.random.sample(gpus, min(job.gpus, len(gpus)))))
            for job in jobs
        ]
