"""The allocation of a job: its GPUs, and the share of each GPU that it may use."""

from dataclasses import dataclass
from typing import Final, Literal

from partita.models import SharingMode
from partita.models.partition import Toleration
from partita.models.quantities import MEBI

__all__ = ["CONTEXT_MEMORY", "DeviceInjection", "JobAllocation"]

DeviceInjection = Literal["Auto", "CDI", "RuntimeClass"]


CONTEXT_MEMORY: Final = 512 * MEBI
"""GPU memory for the CUDA context of one process (bytes). Where the driver limits its containers, a
job gets it in addition to its memory, because the driver counts contexts too. An assumption:
NVIDIA's guide "Per-GPU Compute and Memory Limits with MPS" (ai-dynamo/dynamo) found "a few hundred
MiB" for the context of a client. What a smaller context leaves over, the job may use."""


@dataclass(frozen=True, slots=True)
class JobAllocation:
    """The allocation of one attempt of a job.

    Raises
    ------
    ValueError
        If the allocation is not valid: no GPU, an attempt or thread percentage below 1, an amount
        of memory below 1 MiB, or several GPUs in a mode other than Exclusive.
    """

    uuids: tuple[str, ...]
    """UUIDs of its GPUs as reported by NVML, in the name order of their GPUServers."""
    memory: int
    """GPU memory allocated on each GPU for the whole job (bytes)."""
    total_memory: int
    """Total memory of each GPU, of the smallest if they differ (bytes)."""
    mode: SharingMode
    """How the GPU is shared."""
    attempt: int = 1
    """Number of the attempt, counted from 1."""
    thread_percent: int = 100
    """Percentage of the GPU's threads that each process may use."""
    memory_limit: int | None = None
    """Most GPU memory that the job may use on each GPU while other jobs do not need it (bytes);
    None for `memory`."""
    driver_limits: bool = False
    """Whether the driver limits the memory of each container. The node has proved that it does."""
    protocol: int = 2
    """Protocol of the MPS control daemon."""
    oversubscription: bool = False
    """Whether the partition allows unified memory."""
    device_injection: DeviceInjection = "Auto"
    """Method by which the GPU's device files are mounted into the containers."""
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations of the taints of the GPUs' nodes, to add to the Pod."""
    yields: bool = False
    """Whether its kernels yield to those of co-located jobs, because its priority is below zero."""

    def __post_init__(self) -> None:
        if not self.uuids:
            raise ValueError("an allocation has at least one GPU")
        if min(self.attempt, self.thread_percent) < 1 or min(self.memory, self.total_memory) < MEBI:
            raise ValueError("attempt and threads are above zero, memory is above 1 MiB")
        if len(self.uuids) > 1 and self.mode is not SharingMode.EXCLUSIVE:
            raise ValueError("a job gets several GPUs only in mode Exclusive")

    @property
    def whole_gpu(self) -> bool:
        """Whether the job runs alone on its GPUs, so that it needs no limits."""
        return self.mode is SharingMode.EXCLUSIVE

    @property
    def ceiling(self) -> int:
        """The most memory that the job may use on each GPU, in bytes."""
        return self.memory_limit or self.memory

    def container_memory(self, memory: int, processes: int, containers: int) -> int:
        """Return the part of an amount of memory that one container gets from the driver.

        The driver limits each container separately. So the amount is divided equally between all
        containers that run at the same time. It is increased by the memory of the contexts.

        Parameters
        ----------
        memory
            Bytes for the whole job: its `memory` or its `ceiling`.
        processes
            Client processes of all containers.
        containers
            Maximum number of containers that run at the same time.

        Returns
        -------
        int
            Bytes, in whole MiB.
        """
        return max(1, (memory + CONTEXT_MEMORY * processes) // containers // MEBI) * MEBI

    def process_memory(self, processes: int, containers: int = 1) -> int:
        """Return the memory that each client process may use (bytes, in whole MiB).

        Parameters
        ----------
        processes, containers
            As in `container_memory`. The number of containers matters only if the driver limits
            each of them.
        """
        if self.driver_limits:
            return max(1, self.ceiling // max(processes, containers) // MEBI) * MEBI
        return max(1, self.memory // processes // MEBI) * MEBI

    def visible_memory(self, processes: int, containers: int = 1) -> int:
        """Return the total memory that CUDA reports to a process, in bytes.

        It is the GPU's, or the limit of the container if the driver limits it
        (https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "How Limits Are
        Reported").
        """
        if not self.driver_limits:
            return self.total_memory
        limit = self.container_memory(self.ceiling, processes, containers)
        return min(self.total_memory, limit)

    def process_fraction(self, processes: int, containers: int = 1) -> float:
        """Return the share of each process of `visible_memory`, rounded down at 1e-6."""
        total = self.visible_memory(processes, containers)
        share = min(self.process_memory(processes, containers), total)
        return share * 1_000_000 // total / 1_000_000
