"""The GPU's compute mode: exclusive while MPS serves the GPU, the default otherwise.

In EXCLUSIVE_PROCESS only the MPS server may use the GPU. A program that does not find the server
then fails with an error instead of using the GPU without a limit:
https://docs.nvidia.com/deploy/mps/latest/, "GPU Compute Modes".
"""

from typing import Final

import pynvml

from partita.agent.errors import NotPermittedError, SetupError
from partita.agent.gpu.nvml import NVMLDevice
from partita.models import SharingMode

__all__ = ["restore", "set_for"]

_DEFAULT: Final = pynvml.NVML_COMPUTEMODE_DEFAULT
_EXCLUSIVE: Final = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def set_for(gpu: NVMLDevice, mode: SharingMode) -> None:
    """Set the compute mode that a sharing mode needs, unless it is set already.

    Raises
    ------
    SetupError
        This process may not change the compute mode.
    """
    _set(gpu, _EXCLUSIVE if mode is SharingMode.MPS else _DEFAULT)


def restore(gpu: NVMLDevice) -> None:
    """Set the default mode, in which every process may use the GPU.

    Raises
    ------
    SetupError
        This process may not change the compute mode.
    """
    _set(gpu, _DEFAULT)


def _set(gpu: NVMLDevice, wanted: int) -> None:
    now = gpu.compute_mode()
    if now is None or now == wanted:
        # MPS also works on a GPU without compute modes.
        return
    try:
        gpu.set_compute_mode(wanted)
    except NotPermittedError as error:
        raise SetupError(
            "ComputeModeRefused",
            "the agent may not set the GPU's compute mode: run it as root with the capability "
            "SYS_ADMIN",
        ) from error
