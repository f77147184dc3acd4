"""What to set in a framework so that it stays within its slice of a GPU.

A program sees the whole GPU as its total under a memory limit of MPS, and the limit as its free
memory. Under a limit of the driver it sees the limit as the total. NVIDIA measured both in
"Per-GPU Compute and Memory Limits with MPS", "Verified Behavior"
(https://docs.nvidia.com/dynamo/dev/many-model-serving/per-gpu-compute-and-memory-limits-with-mps).
So a fraction of the total must be computed from the GPU, and a fraction of the free memory not.
Users see the whole GPU too (https://github.com/NVIDIA/k8s-device-plugin/issues/764).

An assumption (memory-limit): drivers before r615 report the whole GPU as the total, too. If they
reported the limit as the total, all fractions would be those under the driver's limit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from partita.models import Allocation, Framework, GPUServer
from partita.models.quantities import MEBI, format_memory
from partita.pods.allocation import CONTEXT_MEMORY, JobAllocation
from partita.pods.memory_errors import (
    RAPIDS,
    TRITON,
    VLLM,
    VLLM_ENGINE,
    VLLM_PROFILING,
)
from partita.pods.pytorch_options import ALLOCATOR, PYTORCH_FRACTION, decimal

__all__ = [
    "FrameworkSetting",
    "allocated_settings",
    "budget_advice",
    "framework_settings",
    "framework_variables",
    "named_frameworks",
    "settings_on",
]


_NAMES: Final = {
    VLLM: ("vllm",),
    str(Framework.JAX): ("jax", "xla_"),
    str(Framework.TENSORFLOW): ("tensorflow", "tf_force", "tf_gpu"),
    str(Framework.PYTORCH): ("torch",),
    str(Framework.CUPY): ("cupy",),
    RAPIDS: ("rapids", "dask-cuda", "dask_cuda", "rmm-pool"),
    TRITON: ("tritonserver",),
}
"""Parts of the names of their images, programs, packages, options and variables, in lower case.
Triton's is that of its server, since PyTorch has a compiler of the same name."""


@dataclass(frozen=True, slots=True)
class FrameworkSetting:
    """What to write for one framework."""

    framework: str
    setting: str
    partita: Framework = Framework.NONE
    """The `spec.framework` with which Partita sets it; `None` if the user must."""


def named_frameworks(spec: Mapping[str, Any], setting: str = "") -> tuple[str, ...]:
    """Return the frameworks that a Pod's images, commands and variables name.

    Parameters
    ----------
    setting
        The framework that the job or Pod is set to, which counts too.
    """
    text = "\n".join(_written(spec)).lower()
    return tuple(
        name
        for name, parts in _NAMES.items()
        if name == setting or any(part in text for part in parts)
    )


def _written(spec: Mapping[str, Any]) -> Iterator[str]:
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        yield container.get("image") or ""
        yield from container.get("command") or ()
        yield from container.get("args") or ()
        for variable in container.get("env") or ():
            yield variable.get("name") or ""
            yield variable.get("value") or ""


def framework_variables(framework: Framework, fraction: float, memory: int) -> dict[str, str]:
    """Return the variables that limit a framework.

    Parameters
    ----------
    fraction
        Share of a process of the total memory that CUDA reports.
    memory
        The same in bytes.
    """
    match framework:
        case Framework.TENSORFLOW:
            # TensorFlow grows its memory instead of allocating the whole GPU. No variable sets an
            # amount: https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth.
            # The cost is 0.6 %, measured by Kang and Gil (studies/tensorflow-memory-mode.txt).
            return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        case Framework.JAX:
            # https://docs.jax.dev/en/latest/201/gpu-memory.html. The fraction refers to the total
            # of cuMemGetInfo (xla/pjrt/gpu/gpu_helpers.cc).
            # XLA_PYTHON_CLIENT_MEM_FRACTION is the deprecated name. If both are set, jaxlib 0.10.2
            # raises ValueError ("specified together"). An empty value counts as unset and
            # overrides a value of the user or the image. Preallocation is off because it would
            # allocate the whole fraction at once. Then the MPS limit would leave no memory for
            # CUDA's libraries outside XLA, and a profile would show only the allocation.
            return {
                "XLA_CLIENT_MEM_FRACTION": decimal(fraction),
                "XLA_PYTHON_CLIENT_MEM_FRACTION": "",
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            }
        case Framework.CUPY:
            # Bytes on each device: https://docs.cupy.dev/en/stable/reference/environment.html.
            return {"CUPY_GPU_MEMORY_LIMIT": str(memory)}
        case Framework.PYTORCH | Framework.NONE:
            # PyTorch's variable may also have options of the user (`partita.pods.pytorch_options`).
            return {}


def framework_settings(
    allocation: JobAllocation, processes: int = 1, containers: int = 1
) -> tuple[FrameworkSetting, ...]:
    """Return what to write for each framework that takes its memory at its start.

    Parameters
    ----------
    processes, containers
        As in `JobAllocation.process_memory`.

    Notes
    -----
    What a framework reserves at once leaves room for the CUDA context, which MPS counts: under a
    limit of 10 GiB NVIDIA could allocate 9,728 MiB (see above). The driver's limit has that room.
    A program alone on its GPU needs no settings.
    """
    if allocation.whole_gpu:
        return ()
    share = allocation.process_memory(processes, containers)
    fraction = allocation.process_fraction(processes, containers)
    # Half is left of a share that is smaller than twice the context. An assumption.
    room = share if allocation.driver_limits else max(share - CONTEXT_MEMORY, share // 2)
    total = allocation.visible_memory(processes, containers)

    def variables(framework: Framework) -> FrameworkSetting:
        values = framework_variables(framework, fraction, share)
        written = " ".join(f"{name}={value}" for name, value in values.items() if value)
        return FrameworkSetting(str(framework), written, framework)

    return (
        # A fraction of the total, compared with the free memory (vllm/v1/worker/utils.py,
        # request_memory). Rounded down, because vLLM does not start one byte above.
        FrameworkSetting(VLLM, f"--gpu-memory-utilization {decimal(room * 1000 // total / 1000)}"),
        variables(Framework.JAX),
        variables(Framework.TENSORFLOW),
        FrameworkSetting(
            str(Framework.PYTORCH),
            f"{ALLOCATOR}={PYTORCH_FRACTION}:{decimal(fraction)}",
            Framework.PYTORCH,
        ),
        variables(Framework.CUPY),
        # Fractions are of the GPU's total there, so an amount is written: dask-cuda's option
        # (dask_cuda/cli.py, rmm_pool_size), or `initial_pool_size` of rmm.reinitialize.
        FrameworkSetting(RAPIDS, f"--rmm-pool-size {room // MEBI}MiB"),
        # What its models need comes on top, so the pool is its default
        # (https://github.com/triton-inference-server/server/issues/7950), or half of a small slice.
        FrameworkSetting(TRITON, f"--cuda-memory-pool-byte-size 0:{min(64 * MEBI, room // 2)}"),
    )


def settings_on(
    server: GPUServer,
    memory: int,
    limit: int | None = None,
    processes: int = 1,
    containers: int = 1,
) -> tuple[FrameworkSetting, ...]:
    """Return the settings for a slice of a GPU; none before the GPU's memory is known.

    Parameters
    ----------
    memory, limit
        Bytes of the slice, and its ceiling if it has one.
    processes, containers
        As in `framework_settings`.
    """
    status = server.status
    if min(memory, status.memory) < MEBI:
        return ()
    by_driver = status.enforcement == "Driver"
    allocation = JobAllocation(
        uuids=(status.uuid,),
        memory=memory,
        memory_limit=limit if by_driver else None,
        total_memory=status.memory,
        mode=server.spec.mode,
        driver_limits=by_driver,
    )
    return framework_settings(allocation, processes, containers)


def allocated_settings(entry: Allocation, server: GPUServer) -> tuple[FrameworkSetting, ...]:
    """Return the settings for an entry in the ledger of a GPU."""
    return settings_on(server, entry.memory, entry.memory_limit, entry.clients, entry.slots)


def budget_advice(
    found: str, allocated: Mapping[str, Allocation], servers: Mapping[str, GPUServer]
) -> str:
    """Return what to set if a program's last output says that its memory did not fit.

    Parameters
    ----------
    found
        What `memory_errors.over_budget` found; empty if nothing.
    allocated
        Its entries in the ledgers, by GPUServer.
    servers
        The GPUServers by name.
    """
    if found == VLLM_PROFILING:
        # It compares what is free on the device before and after: under a limit that is its own,
        # without one it is everybody's. With a fixed cache it does not compare
        # (vllm/v1/worker/gpu_worker.py, determine_available_memory), but demands at its start that
        # the fraction is free (https://github.com/vllm-project/vllm/pull/39852, not merged).
        return (
            "vLLM stopped because another program released GPU memory while it measured: run it "
            "again, or set --kv-cache-memory-bytes as well, with which it does not measure; keep "
            "--gpu-memory-utilization"
        )
    name, entry = next(iter(allocated.items()), ("", None))
    settings = allocated_settings(entry, servers[name]) if found and entry is not None else ()
    if entry is None or not settings:
        return ""
    framework = VLLM if found == VLLM_ENGINE else found
    written = next(
        (one.setting for one in settings if one.framework == framework),
        "spec.framework of the job, or annotation partita.dev/framework of the Pod",
    )
    has = format_memory(entry.memory_limit or entry.memory)
    asked = f"asked for more GPU memory than its slice of {has}"
    told = f"{found} did not start, its log says why; if it {asked}"
    return (
        f"{told if found == VLLM_ENGINE else f'{found} {asked}'}: set {written}; if that is set, "
        "ask for more GPU memory"
    )
