"""Shortest job first, on the GPU with the fewest jobs.

The order is optimal for the mean completion time of jobs that do not share (W. E. Smith, "Various
optimizers for single-stage production", Naval Research Logistics Quarterly 3, 1956). A priority
comes before the run time, and jobs of unknown run time come last.

With `exclusive` it is a baseline of the DqnGPU study: J. Oh, "A Job Placement Using Reinforcement
Learning in GPU Virtualization Environment" (2019), section V.1, which gives each GPU one job at a
time. Lasting jobs are no jobs in this sense: a GPU with only services takes one job, if their free
memory suffices.
"""

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from pydantic import Field

from partita_policies.capacity import Choice, FreeCapacity
from partita_policies.fifo import choice_for
from partita_policies.incremental import CapacityCache
from partita_policies.types import Job, Parameters, Placement, Snapshot

__all__ = ["SJF", "SJFParameters"]


_ONE_PER_GPU = "starts one job per GPU (its parameter exclusive is true)"


class SJFParameters(Parameters):
    """Parameters of `SJF`."""

    exclusive: bool = Field(
        default=False,
        description=(
            "Start a job only on a GPU without other jobs, as in the DqnGPU study: GPUs are never "
            "shared."
        ),
    )


class SJF:
    """Start the shortest job first, on the GPU with the fewest jobs."""

    parameters: ClassVar[type[Parameters]] = SJFParameters

    def __init__(self, parameters: SJFParameters) -> None:
        self._exclusive = parameters.exclusive
        self._capacity = CapacityCache()
        self.waiting_reason = _ONE_PER_GPU if parameters.exclusive else ""

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Place the jobs by descending priority, then by ascending duration."""
        if self._exclusive:
            return self._one_per_gpu(snapshot)
        with self._capacity.of(snapshot) as capacity:
            return self._shared(snapshot, capacity)

    @staticmethod
    def _shared(snapshot: Snapshot, capacity: FreeCapacity) -> list[Placement]:
        choice = choice_for(snapshot)
        placements: list[Placement] = []
        in_order = sorted(capacity.candidates(snapshot.jobs), key=_urgency)
        for job in capacity.candidates(in_order):
            gpu_ids = capacity.place(job, choice)
            if gpu_ids is not None:
                placements.append(Placement(job.id, gpu_ids))
        return placements

    @staticmethod
    def _one_per_gpu(snapshot: Snapshot) -> list[Placement]:
        import numpy as np  # noqa: PLC0415 - the operator decides with it, and starts without

        # GPUs without services come first, so a job that must be alone finds them.
        gpus = sorted(snapshot.gpus, key=lambda gpu: any(one.lasting for one in gpu.running))
        capacity, places = FreeCapacity(gpus, snapshot.nodes), {g.id: n for n, g in enumerate(gpus)}
        idle = np.array([all(one.lasting for one in gpu.running) for gpu in gpus], np.bool_)
        placements: list[Placement] = []
        for job in sorted(snapshot.jobs, key=_urgency):
            if not idle.any():
                break
            gpu_ids = capacity.place(job, Choice.FIRST, idle)
            if gpu_ids is not None:
                idle[[places[gpu_id] for gpu_id in gpu_ids]] = False
                placements.append(Placement(job.id, gpu_ids))
        return placements


def _urgency(job: Job) -> tuple[int, float]:
    return (-job.priority, inf if job.duration is None else job.duration)
