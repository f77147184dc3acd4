"""Finds out what is missing before anything is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceptance.clients import Client, ClientError
from acceptance.mps import plain_environment
from partita.agent.errors import GPULostError, NoDriverError, NotPermittedError, NVMLError
from partita.agent.mps.control import CONTROL

if TYPE_CHECKING:
    from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice

__all__ = ["Found", "MissingError", "find_gpu", "find_mps", "probe", "probe_torch", "settings"]

_DRIVER_FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/local/cuda/bin")
"""Where container runtimes put the driver's programs."""
_OLDEST_DRIVER = 495
_OLDEST_CAPABILITY = (7, 0)
"""As in `partita.agent.gpu.discovery`, which needs more than this machine may have."""
_IDLE_MEMORY = 4 << 30
"""Bytes in use on a GPU that nobody uses, at most: the driver's own. An assumption."""
_BUSY = 5
"""Percent of utilisation from which somebody computes. An assumption."""


class MissingError(Exception):
    """Nothing can be run; says everything that is missing."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = list(reasons)


@dataclass(slots=True)
class Found:
    """The GPU that is to be tried."""

    gpu: NVMLDevice
    identity: GPUIdentity
    driver: str
    cuda: int | None
    """The newest CUDA that the driver supports, such as 13010 for 13.1; None if unknown."""
    facts: dict[str, Any] = field(default_factory=dict)


def find_gpu(wanted: str) -> Found:
    """Find the GPU and make sure that it can be tried as it is.

    Parameters
    ----------
    wanted
        Index or UUID; empty for the only one.

    Raises
    ------
    MissingError
        If it cannot.
    """
    if importlib.util.find_spec("pynvml") is None:
        raise MissingError(
            ["pynvml (nvidia-ml-py) is missing: `pynvml` cannot be imported by this Python"]
        )
    from partita.agent.gpu.nvml import gpus, open_library

    try:
        open_library()
        found = gpus()
    except NoDriverError as error:
        raise MissingError([f"no NVIDIA driver is loaded here ({error})"]) from None
    except NotPermittedError as error:
        raise MissingError([f"NVML may not be used by this user ({error})"]) from None
    except NVMLError as error:
        raise MissingError([f"the NVIDIA driver does not answer ({error})"]) from None
    chosen = [
        gpu
        for index, gpu in enumerate(found)
        if wanted in {"", str(index)} or gpu.uuid().startswith(wanted)
    ]
    if not chosen:
        what = f"GPU {wanted}" if found else "GPU"
        raise MissingError([f"no {what}: the driver shows {len(found)}"])
    if len(chosen) > 1:
        raise MissingError([f"the driver shows {len(found)} GPUs: say which (--gpu)"])
    gpu = chosen[0]
    try:
        identity = gpu.identity()
        missing = _unfit(gpu, identity)
    except (GPULostError, NVMLError) as error:
        raise MissingError([f"the GPU does not answer ({error})"]) from None
    if missing:
        raise MissingError(missing)
    return Found(gpu, identity, identity.driver, identity.cuda)


def _unfit(gpu: NVMLDevice, identity: GPUIdentity) -> list[str]:
    """Tell what about the GPU's own state stands in the way; nothing of it is changed."""
    reasons = []
    if identity.mig:
        reasons.append("MIG mode is on, which MPS of Partita does not share; it is left on")
    # NVML_COMPUTEMODE_DEFAULT is 0; with another one at most one program could use it.
    if gpu.compute_mode() not in {0, None}:
        reasons.append("the GPU's compute mode is not DEFAULT; it is left as it is")
    others = sorted(gpu.processes().keys() - {os.getpid()})
    used, busy = gpu.memory_used(), gpu.utilization()[0] or 0
    if others:
        pids = ", ".join(map(str, others[:5]))
        reasons.append(f"the GPU is in use by someone else: PID {pids}")
    elif used > _IDLE_MEMORY or busy > _BUSY:
        reasons.append(
            f"the GPU is in use by someone whom the driver does not name: {used >> 20} MiB are "
            f"taken and {busy} % of the time it is busy"
        )
    return reasons


def find_mps(found: Found) -> str:
    """Tell why MPS cannot be used; empty if it can, and its programs are then on PATH."""
    if shutil.which(CONTROL) is None:
        folder = next((f for f in _DRIVER_FOLDERS if Path(f, CONTROL).exists()), None)
        if folder is None:
            return f"the MPS program is missing: {CONTROL} is neither on PATH nor with the driver"
        os.environ["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{folder}"
    if shutil.which(CONTROL) is None:
        return f"{CONTROL} may not be run by this user"
    major = found.driver.partition(".")[0]
    if not major.isdigit() or int(major) < _OLDEST_DRIVER:
        return f"driver {found.driver} is older than {_OLDEST_DRIVER}, the first with memory limits"
    capability = found.identity.capability
    if capability is not None and capability < _OLDEST_CAPABILITY:
        return f"{found.identity.product} is older than Volta, the first with memory limits"
    return ""


def probe(found: Found, program: Sequence[str], folder: Path) -> None:
    """Make sure that programs can use the GPU, and note what one of them says of it.

    Raises
    ------
    MissingError
        If it cannot.
    """
    try:
        with _without_mps(found, program, folder) as client:
            found.facts.update(client.ready().facts)
            client.ask("alloc", mib=64)
            found.facts["named by NVML"] = client.pid in found.gpu.processes()
    except ClientError as error:
        raise MissingError([f"CUDA cannot use the GPU: {error}"]) from None


def probe_torch(found: Found, worker: Sequence[str], folder: Path) -> str:
    """Tell why torch cannot be used; empty if it can, and note what it says of the GPU."""
    if importlib.util.find_spec("torch") is None:
        return "torch is missing: it cannot be imported by this Python"
    try:
        with _without_mps(found, worker, folder) as client:
            found.facts.update(client.ready().facts)
    except ClientError as error:
        return f"torch cannot use the GPU: {error}"
    return ""


def _without_mps(found: Found, command: Sequence[str], folder: Path) -> Client:
    nowhere = folder / "nowhere"
    nowhere.mkdir(exist_ok=True)
    return Client(command, plain_environment(found.identity.uuid, nowhere), folder / "probe")


def settings(gpu: NVMLDevice) -> dict[str, Any]:
    """Read what we must leave as it is; what the GPU cannot tell is None."""
    import pynvml

    from partita.agent.gpu.nvml_calls import maybe

    handle = gpu.handle  # the agent itself has no use for most of these
    asked: dict[str, tuple[Callable[..., Any], int | None]] = {
        "compute mode": (pynvml.nvmlDeviceGetComputeMode, None),
        "MIG mode": (pynvml.nvmlDeviceGetMigMode, None),
        "persistence mode": (pynvml.nvmlDeviceGetPersistenceMode, None),
        "ECC mode": (pynvml.nvmlDeviceGetEccMode, None),
        "power limit (mW)": (pynvml.nvmlDeviceGetPowerManagementLimit, None),
        "SM clock set (MHz)": (pynvml.nvmlDeviceGetApplicationsClock, pynvml.NVML_CLOCK_SM),
        "memory clock set (MHz)": (pynvml.nvmlDeviceGetApplicationsClock, pynvml.NVML_CLOCK_MEM),
    }
    read = {}
    for name, (function, argument) in asked.items():
        arguments = [handle] if argument is None else [handle, argument]
        value = None
        with suppress(NVMLError):
            value = maybe(function, *arguments)
        read[name] = list(value) if isinstance(value, tuple | list) else value
    return read
