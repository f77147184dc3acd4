"""The GPU's compute mode: exclusive while MPS serves it, as everybody else wants it afterwards.

In EXCLUSIVE_PROCESS only the MPS server may use the GPU, so a program that does not find its
server fails loudly instead of running beside the others without a limit:
https://docs.nvidia.com/deploy/mps/latest/, "GPU Compute Modes".
"""

from typing import Final

import pynvml

from partita.agent.errors import NotPermittedError, SetupError
from partita.agent.nvml import NVMLDevice
from partita.models import SharingMode

__all__ = ["claim", "restore"]

_DEFAULT: Final = pynvml.NVML_COMPUTEMODE_DEFAULT
_EXCLUSIVE: Final = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def claim(gpu: NVMLDevice, mode: SharingMode, *, keep: bool) -> None:
    """Set the mode that a way of sharing needs; nothing is written where it is set already.

    Parameters
    ----------
    keep
        Leave it as it is.

    Raises
    ------
    SetupError
        If it may not be set.
    """
    if not keep:
        _set(gpu, _EXCLUSIVE if mode is SharingMode.MPS else _DEFAULT)


def restore(gpu: NVMLDevice, *, keep: bool) -> None:
    """Let anybody use the GPU again.

    Raises
    ------
    SetupError
        If it may not be set.
    """
    if not keep:
        _set(gpu, _DEFAULT)


def _set(gpu: NVMLDevice, wanted: int) -> None:
    now = gpu.compute_mode()
    if now is None or now == wanted:
        # A GPU without compute modes cannot be claimed; MPS works on it all the same.
        return
    try:
        gpu.set_compute_mode(wanted)
    except NotPermittedError as error:
        raise SetupError(
            "ComputeModeRefused",
            "the GPU's compute mode may not be set: run the agent as root with the capability "
            "SYS_ADMIN, or let it keep the mode (--keep-compute-mode)",
        ) from error
