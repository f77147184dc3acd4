"""What an objective asks of the placement of a job."""

from partita_policies.types import Objective, Snapshot

__all__ = ["packs"]


def packs(snapshot: Snapshot) -> bool:
    """Return whether the objective asks for the placement with least fragmentation."""
    if snapshot.objective is Objective.BALANCED:
        asked = sum(job.memory * job.gpus for job in snapshot.jobs)
        held = sum(one.memory for gpu in snapshot.gpus for one in gpu.running)
        return asked > sum(gpu.memory for gpu in snapshot.gpus) - held
    return snapshot.objective is Objective.PACKING
