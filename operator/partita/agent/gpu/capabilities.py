"""The capabilities of CUDA and the GPU as fields of the GPUServer's status."""

from typing import Any, Final

import pynvml

from partita.agent.gpu.gpu_health import SlowMetrics

__all__ = ["cuda_name", "gpu_capabilities"]

_COMPUTE_MODES: Final = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "Default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "ExclusiveThread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "Prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "ExclusiveProcess",
}


def gpu_capabilities(cuda: int | None, metrics: SlowMetrics | None) -> dict[str, Any]:
    """Return the fields of `status.capabilities` on CUDA and the GPU; unknown ones are left out.

    Parameters
    ----------
    cuda
        The newest CUDA that the driver supports, such as 13040 for 13.4.
    metrics
        The metrics that were read last.
    """
    found: dict[str, Any] = {}
    if cuda is not None:
        found["cudaVersion"] = cuda_name(cuda)
    if metrics is not None and metrics.compute_mode in _COMPUTE_MODES:
        found["computeMode"] = _COMPUTE_MODES[metrics.compute_mode]
    return found


def cuda_name(cuda: int) -> str:
    """Return the name of a CUDA version, such as `13.4` for 13040."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}"
