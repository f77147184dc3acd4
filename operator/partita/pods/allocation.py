"""The allocation of a job: its GPUs, and the share of each GPU that it may use."""

from dataclasses import dataclass
from typing import Literal

from partita.constants import DEVICE_RESOURCE_PREFIX
from partita.models import SharingMode
from partita.models.partition import Toleration
from partita.models.quantities import MEBI

__all__ = ["DeviceInjection", "JobAllocation", "device_resource"]

DeviceInjection = Literal["Auto", "CDI", "RuntimeClass"]


@dataclass(frozen=True, slots=True)
class JobAllocation:
    """The allocation of one attempt of a job.

    Raises
    ------
    ValueError
        If the allocation is not valid: no GPU, unequal numbers of servers and GPUs, an attempt or
        thread percentage below 1, an amount of memory below 1 MiB, or several GPUs in a mode other
        than Exclusive.
    """

    attempt: int
    """Number of the attempt, counted from 1."""
    servers: tuple[str, ...]
    """GPUServers of the allocated GPUs, in name order."""
    uuids: tuple[str, ...]
    """UUIDs of their GPUs as reported by NVML, in the same order."""
    node: str
    """Node of the GPUs, for messages: kube-scheduler finds the node by the extended resource."""
    memory: int
    """GPU memory allocated on each GPU for the whole job (bytes)."""
    total_memory: int
    """Total memory of each GPU, of the smallest if they differ (bytes)."""
    mode: SharingMode
    """How the GPU is shared."""
    thread_percent: int = 100
    """Percentage of the GPU's threads that each process may use."""
    oversubscription: bool = False
    """Whether the partition allows unified memory."""
    device_injection: DeviceInjection = "Auto"
    """Method by which the GPU's device files are mounted into the containers."""
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations of the taints of the GPUs' nodes, to add to the Pod."""
    yields: bool = False
    """Whether its kernels yield to those of co-located jobs, because its priority is below zero."""

    def __post_init__(self) -> None:
        if not self.uuids or len(self.uuids) != len(self.servers):
            raise ValueError("an allocation has one GPU for each server, and at least one")
        if min(self.attempt, self.thread_percent) < 1 or min(self.memory, self.total_memory) < MEBI:
            raise ValueError("attempt and threads are above zero, memory is above 1 MiB")
        if len(self.uuids) > 1 and self.mode is not SharingMode.EXCLUSIVE:
            raise ValueError("a job gets several GPUs only in mode Exclusive")

    @property
    def whole_gpu(self) -> bool:
        """Whether the job runs alone on its GPUs, so that it needs no limits."""
        return self.mode is SharingMode.EXCLUSIVE

    def process_memory(self, processes: int) -> int:
        """Return the memory that each client process may use (bytes, in whole MiB)."""
        return max(1, self.memory // processes // MEBI) * MEBI

    def process_fraction(self, processes: int) -> float:
        """Return the share of the GPU's total memory for each process, rounded down at 1e-6."""
        share = min(self.process_memory(processes), self.total_memory)
        return share * 1_000_000 // self.total_memory / 1_000_000


def device_resource(uuid: str) -> str:
    """Return the extended resource that the agent's device plugin offers for a GPU."""
    return DEVICE_RESOURCE_PREFIX + uuid.removeprefix("GPU-")[:8].lower()
