"""A decision as a series of choices of a fixed number of actions: what a learner needs.

A job of one of the first applications in the queue is started on a GPU, or the decision ends.
The choices of one decision follow one another, each with a mask of those that fit.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from partita_policies.capacity import FreeCapacity
from partita_policies.forecast import mean_load, phases_of
from partita_policies.types import GPU, Job, Parameters, Placement, RunningJob, Snapshot

__all__ = ["GPU_FEATURES", "JOB_FEATURES", "ChoicePolicy", "Choices"]

JOB_FEATURES = 6
"""Of each offered application: memory, busy time, SMs, PCIe, duration, and the jobs of it."""
GPU_FEATURES = 6
"""Of each GPU: free memory, its jobs, their busy time, SMs and PCIe, and the seconds left."""

_MINUTES = 60.0

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


class Choices:
    """The choices of one decision.

    Parameters
    ----------
    snapshot
        The situation.
    window
        Number of applications of which a job is offered: the first in the queue.
    gpus
        Number of GPUs that can be chosen: the first of the snapshot.
    """

    def __init__(self, snapshot: Snapshot, window: int, gpus: int) -> None:
        self.placements: list[Placement] = []
        """What has been chosen so far."""
        self._window = window
        self._gpus = snapshot.gpus[:gpus]
        self._count = gpus
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        self._on: dict[str, list[tuple[Job | RunningJob, float]]] = {
            gpu.id: [(job, job.elapsed(snapshot.time)) for job in gpu.running] for gpu in self._gpus
        }
        self._queues: dict[str, list[Job]] = {}
        for job in snapshot.jobs:
            if job.gpus == 1:
                self._queues.setdefault(job.application, []).append(job)

    @property
    def wait(self) -> int:
        """The action that ends the decision, and the number of the other actions."""
        return self._window * self._count

    def mask(self) -> Bools:
        """Return whether each action is possible.

        Ending the decision is not where a GPU would wait for nothing: a job can be started on it,
        and none runs there that will end. `gather` in `native/decide.c` is the rule of `dqn`.
        Arrivals do not count, for nobody knows of them in a cluster.
        """
        fits = np.zeros((self._window, self._count), np.bool_)
        may_wait = True
        for number, gpu in enumerate(self._gpus):
            for place, job in enumerate(self._offered()):
                fits[place, number] = self._capacity.why_not(job, gpu.id) is None
            ends = any(not job.lasting for job, _ in self._on[gpu.id])
            may_wait &= ends or not fits[:, number].any()
        return np.append(fits, may_wait)

    def take(self, action: int) -> bool:
        """Carry out an action that the mask allows; return whether it ended the decision."""
        if action == self.wait:
            return True
        place, number = divmod(action, self._count)
        job, gpu = self._offered()[place], self._gpus[number]
        self._capacity.take(job, (gpu.id,))
        self._on[gpu.id].append((job, 0.0))
        self.placements.append(Placement(job.id, (gpu.id,)))
        queue = self._queues[job.application]
        queue.pop(0)
        if not queue:
            del self._queues[job.application]
        return False

    def observation(self) -> Floats:
        """Return the features of the offered jobs and of the GPUs, each from 0 to 1."""
        jobs = np.zeros((self._window, JOB_FEATURES), np.float32)
        gpus = np.zeros((self._count, GPU_FEATURES), np.float32)
        for place, job in enumerate(self._offered()):
            gpu = self._gpus[0]
            waiting = len(self._queues[job.application])
            jobs[place] = (
                min(job.memory / max(gpu.memory, 1), 1.0),
                *_use(job, gpu),
                _squashed(_seconds(job) / _MINUTES),
                _squashed(waiting),
            )
        for number, gpu in enumerate(self._gpus):
            on = self._on[gpu.id]
            uses = [_use(job, gpu) for job, _ in on] or [(0.0, 0.0, 0.0)]
            left = max([max(_seconds(job) - past, 0.0) for job, past in on], default=0.0)
            gpus[number] = (
                1 - min(sum(job.memory for job, _ in on) / max(gpu.memory, 1), 1.0),
                _squashed(len(on)),
                *(_squashed(sum(amounts)) for amounts in zip(*uses, strict=True)),
                _squashed(left / _MINUTES),
            )
        return np.concatenate((jobs.ravel(), gpus.ravel()))

    def _offered(self) -> list[Job]:
        queues = list(self._queues.values())[: self._window]
        return [queue[0] for queue in queues]


Choose = Callable[[Floats, Bools], int]
"""Returns an action that the mask allows, for an observation and a mask."""


class ChoicePolicy:
    """Let a function choose, such as the prediction of a trained model.

    Parameters
    ----------
    choose
        It gets an observation and a mask, and returns an action.
    window, gpus
        As in `Choices`; those of the training.
    """

    parameters = Parameters

    def __init__(self, choose: Choose, *, window: int, gpus: int) -> None:
        self._choose = choose
        self._window = window
        self._gpus = gpus

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Choose until the decision ends."""
        choices = Choices(snapshot, self._window, self._gpus)
        while (mask := choices.mask())[: choices.wait].any():
            if choices.take(int(self._choose(choices.observation(), mask))):
                break
        return choices.placements


def _seconds(job: Job | RunningJob) -> float:
    return job.duration or 0.0


def _use(job: Job | RunningJob, gpu: GPU) -> tuple[float, float, float]:
    """Return the mean busy time, share of the SMs and share of the link; 1, 1, 0 if unknown."""
    if job.profile is None or not job.profile.steps:
        return 1.0, 1.0, 0.0
    load = mean_load(phases_of(job.profile, gpu))
    return load.busy, load.sm, load.pcie


def _squashed(amount: float) -> float:
    """Return an amount of any size as a number from 0 to 1."""
    return amount / (1 + amount)
