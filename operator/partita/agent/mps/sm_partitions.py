"""Static SM partitions: how the SMs of a GPU are divided.

The unit is a chunk of SMs. Each slot gets a partition of the same number of chunks. What remains is
not used.

https://docs.nvidia.com/deploy/mps/latest/common-tasks.html, "Using Static SM Partitioning".
"""

from typing import Final

from partita.agent.errors import MPSGarbledError, SetupError

__all__ = ["REASON", "equal_chunks", "no_partitions", "parse_partitions"]

REASON: Final = "StaticSMNotSupported"
"""Reason of the conditions of a GPU whose SMs cannot be partitioned."""
_COLUMNS: Final = 7
"""GPU, partition, free chunks, used chunks, free SMs, used SMs, clients (page above)."""
_DISABLED: Final = "disabled"
"""Is in the answer of a daemon without `-S`: "Static partitioning mode disabled".

An assumption (mps-status): all drivers say "disabled" of it. If not, MPS does not start either, but
the condition does not say why."""


def parse_partitions(answer: str) -> tuple[int, list[str]]:
    """Parse the answer to `lspart` of a daemon that serves one GPU.

    Returns
    -------
    int, list of str
        Number of chunks of the GPU, and the existing partitions.

    Raises
    ------
    MPSGarbledError
        It is not such a table.
    SetupError
        The daemon does not support partitions.
    """
    if _DISABLED in answer:
        raise no_partitions(answer)
    rows = [line.split() for line in answer.splitlines() if line.startswith("GPU-")]
    free = [row for row in rows if len(row) == _COLUMNS and row[1] == "-"]
    if len(free) != 1 or not (free[0][2].isdigit() and free[0][3].isdigit()):
        raise MPSGarbledError(f"not a table of partitions: {answer[:200]!r}")
    names = [row[1] for row in rows if row[1] != "-"]
    return int(free[0][2]) + int(free[0][3]), names


def equal_chunks(chunks: int, partitions: int) -> int:
    """Return the number of chunks of each of a number of equal partitions.

    Raises
    ------
    SetupError
        There are fewer chunks than partitions.
    """
    if chunks < partitions:
        raise SetupError(
            REASON,
            f"the GPU's SMs can be divided into at most {chunks} partitions: set "
            f"sharing.maxJobsPerGPU to {chunks} or less",
        )
    return chunks // partitions


def no_partitions(answer: str) -> SetupError:
    """Return the error for a partition that the control daemon refuses."""
    return SetupError(
        REASON,
        f"MPS did not partition the GPU's SMs ({answer.strip()[:200]}): set sharing.isolation to "
        "None if this persists",
    )
