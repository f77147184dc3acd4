"""First in, first out: jobs start in queue order on the first GPU that has room.

The baseline and the operator's fallback: it needs no history and decides in a few milliseconds.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from partita_policies.capacity import FreeCapacity
from partita_policies.lasting import only_lasting
from partita_policies.types import Parameters, Placement, Snapshot

__all__ = ["FIFO", "FIFOParameters"]


class FIFOParameters(Parameters):
    """Parameters of `FIFO`."""

    backfill: bool = Field(
        default=True,
        description=(
            "Whether a job that does not fit now is passed over by later ones that do. Without "
            "it the queue waits for its first job, unless that fits no GPU even when only services "
            "run there."
        ),
    )


class FIFO:
    """Start jobs in queue order on the first GPU that they fit; later jobs may fill gaps."""

    parameters: ClassVar[type[Parameters]] = FIFOParameters

    def __init__(self, parameters: FIFOParameters) -> None:
        self._backfill = parameters.backfill

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Place each job on the first GPUs that it fits."""
        capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        idle: FreeCapacity | None = None
        placements: list[Placement] = []
        for job in snapshot.jobs:
            if capacity.full:
                break
            gpu_ids = capacity.first_fit(job)
            if gpu_ids is not None:
                capacity.take(job, gpu_ids)
                placements.append(Placement(job.id, gpu_ids))
            elif not self._backfill:
                idle = idle or FreeCapacity(
                    (only_lasting(gpu) for gpu in snapshot.gpus), snapshot.nodes
                )
                if idle.first_fit(job) is not None:
                    break
        return placements
