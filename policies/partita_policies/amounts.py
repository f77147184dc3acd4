"""What workloads hold of a partition: memory, places and MPS clients of its GPUs.

Threads are not among them. `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` is a limit and reserves nothing: the
percentages of a GPU's jobs may add up to more than 100. Static partitions of the SMs are reserved,
and each takes a place, so the share of the places is that of the threads.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from partita_policies.types import GPU, Job, RunningJob

__all__ = [
    "DominantShare",
    "GPUAmounts",
    "amounts_of",
    "capacity_of",
    "held_by",
    "share_of",
    "total_of",
]


class GPUAmounts(NamedTuple):
    """Amounts of the resources of one or several GPUs."""

    memory: int = 0
    """Bytes."""
    places: int = 0
    clients: int = 0
    """MPS clients."""

    def plus(self, more: "GPUAmounts") -> "GPUAmounts":
        """Return the sum."""
        return GPUAmounts(
            self.memory + more.memory, self.places + more.places, self.clients + more.clients
        )

    def minus(self, less: "GPUAmounts") -> "GPUAmounts":
        """Return the difference, in which an amount may be negative."""
        return self.plus(less.times(-1))

    def times(self, count: int) -> "GPUAmounts":
        """Return a multiple."""
        return GPUAmounts(self.memory * count, self.places * count, self.clients * count)

    def percent(self, percent: int) -> "GPUAmounts":
        """Return a percentage, rounded down."""
        return GPUAmounts(*(amount * percent // 100 for amount in self))

    def exceeded(self, limit: "GPUAmounts") -> str:
        """Return the name of the first resource of which this is more than the limit, if any."""
        pairs = zip(self._fields, self, limit, strict=True)
        return next((name for name, amount, most in pairs if amount > most), "")


def total_of(amounts: Iterable[GPUAmounts]) -> GPUAmounts:
    """Return the sum of all."""
    total = GPUAmounts()
    for each in amounts:
        total = total.plus(each)
    return total


def capacity_of(gpus: Iterable[GPU]) -> GPUAmounts:
    """Return what GPUs have in total."""
    return total_of(GPUAmounts(gpu.memory, gpu.max_jobs, gpu.max_clients) for gpu in gpus)


def amounts_of(job: Job | RunningJob, gpu: GPU) -> GPUAmounts:
    """Return what a job holds of a GPU; one that is alone holds all of it."""
    if job.alone:
        return capacity_of([gpu])
    return GPUAmounts(job.memory, job.slots, job.clients)


def held_by(gpus: Iterable[GPU], *, lasting: bool) -> GPUAmounts:
    """Return what lasting jobs hold of GPUs, or what the others do."""
    return total_of(
        amounts_of(one, gpu) for gpu in gpus for one in gpu.running if one.lasting is lasting
    )


@dataclass(frozen=True, slots=True)
class DominantShare:
    """The largest of a tenant's shares of the resources.

    Whoever holds few bytes and many places or clients has a large one (Ghodsi et al., Dominant
    Resource Fairness, NSDI 2011, section 4).
    """

    share: float
    """From 0 to 1."""
    resource: str
    """What it is a share of: `memory`, `places` or `clients`."""


def share_of(held: GPUAmounts, capacity: GPUAmounts) -> DominantShare:
    """Return the dominant share of what somebody holds."""
    shares = {
        name: amount / total if total else 0.0
        for name, amount, total in zip(GPUAmounts._fields, held, capacity, strict=True)
    }
    most = max(shares, key=lambda name: shares[name])
    return DominantShare(shares[most], most)
