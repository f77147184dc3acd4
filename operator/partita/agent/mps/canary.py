"""The canary client: shows whether MPS accepts clients.

It runs as `python -m partita.agent.mps.canary UUID`.

It initialises CUDA as any program does, and allocates and frees a little GPU memory. It starts no
kernel, so it has no work in flight at any time, and killing it cannot affect other clients. Its
caller sets `CUDA_MPS_PIPE_DIRECTORY` and ends it after a deadline: behind a wedged MPS server it
never returns.

Exit code 0: MPS works. Otherwise the last line of stderr is the error.
"""

import sys
from typing import Final

from partita.agent.errors import CUDAError
from partita.agent.gpu.cuda_driver import CUDADriver

__all__ = ["main"]

_SIZE: Final = 1 << 20
"""Bytes to allocate: little enough for a GPU that is almost full."""
_OUT_OF_MEMORY: Final = 2
"""CUDA_ERROR_OUT_OF_MEMORY: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html."""


def main(uuid: str) -> int:
    """Use the GPU for a moment and return the exit code."""
    try:
        driver = CUDADriver()
        driver.initialize()
        with driver.context(driver.device(uuid)):
            driver.free(driver.allocate(_SIZE))
    except CUDAError as error:
        if error.code == _OUT_OF_MEMORY:
            return 0  # jobs use all of the memory; MPS and the driver have answered
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
