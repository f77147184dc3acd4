"""Static SM partitions: exclusive SMs for the clients of each.

Sections are of https://docs.nvidia.com/deploy/mps/latest/: "Common Tasks", "Using Static SM
Partitioning" (commands and answers), "MPS v3 Interface", "SM Partitions" (when it is refused).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

CHUNK_SMS = 4
CHUNK_SMS_HOPPER = 8
"""SMs of a chunk: 8 from Hopper on, 4 before ("When to Use MPS", "Static SM Partitioning")."""
AMPERE, HOPPER = 8, 9
"""First compute capabilities of these architectures."""


class PartitionError(Exception):
    """A command is refused."""


@dataclass(frozen=True)
class Partition:
    """Exclusive SMs of one GPU."""

    name: str
    """What the user calls it; v3 alone."""
    device: str
    """UUID of the GPU."""
    code: str
    chunks: int
    sms: int

    @property
    def id(self) -> str:
        """The value for CUDA_MPS_SM_PARTITION."""
        return f"{self.device}/{self.code}"


class SMPartitions:
    """The partitions of one GPU."""

    def __init__(self) -> None:
        self.made: list[Partition] = []
        self.next = 0

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.made)

    def __contains__(self, identity: str) -> bool:
        return any(p.id == identity for p in self.made)

    def add(self, gpu: dict[str, str], chunks: int, *, busy: bool, name: str = "") -> Partition:
        if not gpu:
            raise PartitionError("Invalid device")
        if int(gpu.get("capability_major", "8")) < AMPERE:
            raise PartitionError("Static partitioning is not supported on this device")
        if busy:
            raise PartitionError("The device has active clients")
        if chunks < 1 or chunks > self.free(gpu):
            raise PartitionError(
                f"Failed to fulfill the requested SM partition of {chunks} chunks, error "
                "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
            )
        self.next += 1
        sms = chunks * chunk_sms(gpu)
        made = Partition(name, gpu["uuid"], f"P{self.next:02}{'A' * 29}", chunks, sms)
        self.made.append(made)
        self.total = int(gpu.get("sms", "108"))
        return made

    def free(self, gpu: dict[str, str]) -> int:
        """Chunks that no partition has."""
        return chunks_of(gpu) - sum(p.chunks for p in self.made)

    def share(self, identity: str) -> float:
        """Percent of the SMs that a partition has."""
        return next(100 * p.sms / self.total for p in self.made if p.id == identity)

    def table(self, gpu: dict[str, str], used: Collection[str]) -> str:
        """What `lspart` prints."""
        device, taken = gpu["uuid"][:12], sum(p.chunks for p in self.made)
        free = int(gpu.get("sms", "108")) - sum(p.sms for p in self.made)
        lines = [
            "GPU Partition free used free used clients",
            "chunk chunk SM SM",
            f"{device} - {self.free(gpu)} {taken} {free} {taken * chunk_sms(gpu)} -",
        ]
        for p in self.made:
            clients = "Yes" if p.id in used else "-"
            lines.append(f"{device} {p.code} - {p.chunks} - {p.sms} {clients}")
        return "".join(f"{line}\n" for line in lines)


def chunk_sms(gpu: dict[str, str]) -> int:
    """SMs of a chunk of this GPU."""
    return CHUNK_SMS_HOPPER if int(gpu.get("capability_major", "8")) >= HOPPER else CHUNK_SMS


def chunks_of(gpu: dict[str, str]) -> int:
    """All chunks of this GPU; what does not fill one belongs to none."""
    return int(gpu.get("sms", "108")) // chunk_sms(gpu)


def answer_v2(
    partitions: SMPartitions | None, words: list[str], gpu: dict[str, str], used: Collection[str]
) -> str:
    """Answer a command of protocol 2.

    Parameters
    ----------
    used
        The partitions of the clients.
    """
    if partitions is None:
        return "Static partitioning mode disabled\n"
    try:
        match words:
            case ["sm_partition", "add", _, chunks]:
                return f"{partitions.add(gpu, int(chunks), busy=bool(used)).id}\n"
            case ["lspart"]:
                return partitions.table(gpu, used)
    except PartitionError as error:
        return f"{error}\n"
    return f"Unrecognized command: {' '.join(words)}\n"
