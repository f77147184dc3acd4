"""Cgroups of our own, and the memory limits of the driver for them.

https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Setting Limits".
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from acceptance.requirements import CGROUP_ROOT, DMEM
from acceptance.results import CannotRunError
from partita.agent.errors import NVMLError

if TYPE_CHECKING:
    # pynvml may be what is missing.
    from partita.agent.nvml import NVMLDevice

__all__ = ["Limits", "backend", "leaf", "limits", "own_cgroup", "set_limits"]

_EMPTY_DEADLINE = 10.0
"""Seconds for the kernel to take ended processes out of a cgroup. An assumption."""


class Limits(NamedTuple):
    """The limits of one cgroup for one GPU, in bytes."""

    soft: int
    hard: int
    used: int


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
    import pynvml

    from partita.agent.nvml_calls import call

    asked = pynvml.c_nvmlSetMemoryLimits_v1_t(str(folder).encode(), soft, hard)
    try:
        call(pynvml.nvmlDeviceSetMemoryLimits_v1, gpu._handle, asked)
    except NVMLError as error:
        raise CannotRunError(f"the driver did not set limits for {folder}: {error}") from None
    if limits(gpu, folder) is None:
        raise CannotRunError(f"the driver has no limits for {folder} after they were set")


def limits(gpu: NVMLDevice, folder: Path) -> Limits | None:
    """Read limits and use; None if none are set."""
    import pynvml

    read = pynvml.c_nvmlGetMemoryLimits_v1_t(str(folder).encode())
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(gpu._handle, read)
    except pynvml.NVMLError as error:
        if error.value in {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED}:
            return None
        raise CannotRunError(f"limits of {folder} cannot be read: {error}") from None
    return Limits(read.softLimit, read.hardLimit, read.currentUsed)
