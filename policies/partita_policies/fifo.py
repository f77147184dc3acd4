"""First in, first out: jobs start in queue order on the GPU with the fewest jobs.

The baseline and the operator's fallback: it needs no history and decides in a few milliseconds.
Jobs spread over the GPUs, as a load balancer that sends each request to the server with the fewest
connections does: what little waits is shared by all GPUs. The order is not strict: unless
`backfill` is false, a later job starts before an earlier one that does not fit now.

Under the objective Packing, and under Balanced while more memory is asked for than is free, a job
gets the GPU with the least free memory that it fits (best fit; D. S. Johnson et al., "Worst-Case
Performance Bounds for Simple One-Dimensional Packing Algorithms", SIAM Journal on Computing 3,
1974), which leaves whole GPUs for large jobs.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from partita_policies.capacity import Choice, FreeCapacity
from partita_policies.incremental import CapacityCache
from partita_policies.lasting import only_lasting
from partita_policies.objectives import packs
from partita_policies.types import Parameters, Placement, Snapshot

__all__ = ["FIFO", "FIFOParameters", "choice_for"]


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


_IN_ORDER = "starts jobs in queue order (its parameter backfill is false)"


class FIFO:
    """Start jobs in queue order on the GPU with the fewest jobs; later jobs may fill gaps."""

    parameters: ClassVar[type[Parameters]] = FIFOParameters

    def __init__(self, parameters: FIFOParameters) -> None:
        self.in_order = not parameters.backfill
        if self.in_order:
            self.waiting_reason = _IN_ORDER
        self._capacity = CapacityCache()

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Place each job on the least loaded GPUs that it fits."""
        with self._capacity.of(snapshot) as capacity:
            return self._placements(snapshot, capacity)

    def _placements(self, snapshot: Snapshot, capacity: FreeCapacity) -> list[Placement]:
        choice = choice_for(snapshot)
        idle: FreeCapacity | None = None
        placements: list[Placement] = []
        jobs = snapshot.jobs if self.in_order else capacity.candidates(snapshot.jobs)
        for job in jobs:
            gpu_ids = capacity.place(job, choice)
            if gpu_ids is not None:
                placements.append(Placement(job.id, gpu_ids))
            elif self.in_order:
                idle = idle or FreeCapacity(
                    (only_lasting(gpu) for gpu in snapshot.gpus), snapshot.nodes
                )
                if idle.first_fit(job) is not None:
                    break
        return placements


def choice_for(snapshot: Snapshot) -> Choice:
    """Return which GPU a job gets: to pack, the tightest one; otherwise the least loaded one."""
    return Choice.TIGHTEST if packs(snapshot) else Choice.LEAST_LOADED
