"""Cgroups of our own, and the memory limits of the driver for them.

https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Setting Limits".
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance.requirements import CGROUP_ROOT, DMEM
from acceptance.results import CannotRunError
from partita.agent.errors import NVMLError

if TYPE_CHECKING:
    # pynvml may be what is missing.
    from partita.agent.gpu.nvml import NVMLDevice
    from partita.agent.gpu.nvml_memory_limits import MemoryLimits

__all__ = ["backend", "leaf", "limits", "own_cgroup", "set_limits"]

_EMPTY_DEADLINE = 10.0
"""Seconds for the kernel to take ended processes out of a cgroup. An assumption."""


@contextlib.contextmanager
def own_cgroup() -> Iterator[Path]:
    """Make a cgroup below the root and remove it, and what was made in it, at the end."""
    folder = CGROUP_ROOT / f"partita-acceptance-{os.getpid()}"
    folder.mkdir()
    try:
        with contextlib.suppress(OSError):
            # Not every kernel has the controller; without it the driver counts by itself.
            (folder / "cgroup.subtree_control").write_text("+dmem\n")
        yield folder
    finally:
        for child in sorted(folder.rglob("*"), reverse=True):
            if child.is_dir():
                remove(child)
        remove(folder)


def leaf(parent: Path, name: str) -> Path:
    """Make a cgroup below another one, as a container runtime does."""
    folder = parent / name
    folder.mkdir()
    return folder


def remove(folder: Path) -> None:
    """Remove a cgroup once its processes are gone."""
    deadline = time.monotonic() + _EMPTY_DEADLINE
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def backend(folder: Path) -> str:
    """Return what enforces limits for this cgroup: the kernel (dmem) or the driver (misc)."""
    return "dmem" if (folder / DMEM).exists() else "misc"


def set_limits(gpu: NVMLDevice, folder: Path, *, soft: int, hard: int) -> None:
    """Set both limits, in bytes.

    Raises
    ------
    CannotRunError
        The driver does not accept them.
    """
    from partita.agent.gpu.nvml_memory_limits import set_memory_limits

    try:
        set_memory_limits(gpu, folder, soft, hard)
    except NVMLError as error:
        raise CannotRunError(f"the driver did not set limits for {folder}: {error}") from None


def limits(gpu: NVMLDevice, folder: Path) -> MemoryLimits | None:
    """Read limits and use; None if none are set."""
    from partita.agent.gpu.nvml_memory_limits import memory_limits

    return memory_limits(gpu, folder)
