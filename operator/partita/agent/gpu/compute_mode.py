"""The GPU's compute mode: exclusive while MPS serves the GPU, the default otherwise.

In EXCLUSIVE_PROCESS only the MPS server may use the GPU. A program that does not find the server
then fails with an error instead of using the GPU without a limit:
https://docs.nvidia.com/deploy/mps/latest/, "GPU Compute Modes".
"""

import pynvml

from partita.agent.errors import NotPermittedError, SetupError
from partita.agent.gpu.nvml import NVMLDevice

__all__ = ["set_compute_mode"]


def set_compute_mode(gpu: NVMLDevice, *, exclusive: bool) -> None:
    """Set the compute mode unless it is set already.

    Parameters
    ----------
    exclusive
        Whether only MPS may use the GPU. By default every process may.

    Raises
    ------
    SetupError
        This process may not change the compute mode.
    """
    wanted = pynvml.NVML_COMPUTEMODE_DEFAULT
    if exclusive:
        wanted = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    # MPS also works on a GPU without compute modes.
    if gpu.compute_mode() in {None, wanted}:
        return
    try:
        gpu.set_compute_mode(wanted)
    except NotPermittedError as error:
        raise SetupError(
            "ComputeModeRefused",
            "the agent may not set the GPU's compute mode: run it as root with the capability "
            "SYS_ADMIN",
        ) from error
