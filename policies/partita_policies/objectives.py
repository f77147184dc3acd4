"""What an objective asks of the placement of a job."""

from partita_policies.types import Objective, Snapshot

__all__ = ["packs"]


def packs(snapshot: Snapshot) -> bool:
    """Return whether the objective asks for the placement with least fragmentation.

    A job that must be alone asks for as much as a GPU has on average, and holds all of its own.
    """
    if snapshot.objective is Objective.BALANCED:
        there = sum(gpu.memory for gpu in snapshot.gpus)
        whole = there // max(len(snapshot.gpus), 1)
        asked = sum((whole if job.alone else job.memory) * job.gpus for job in snapshot.jobs)
        on_gpus = ((gpu, one) for gpu in snapshot.gpus for one in gpu.running)
        return asked > there - sum(gpu.memory if one.alone else one.memory for gpu, one in on_gpus)
    return snapshot.objective is Objective.PACKING
