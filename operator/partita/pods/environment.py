"""The environment variables that limit a job's processes to its allocation.

Each name has a reference to its documentation. `MPS` is
https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from partita.models import Framework, SharingMode
from partita.models.quantities import MEBI
from partita.pods.allocation import JobAllocation
from partita.pods.framework_memory import framework_variables
from partita.pods.mps_directories import log_directory, pipe_directory
from partita.pods.pytorch_options import (
    ALLOCATOR,
    OLD_ALLOCATOR,
    allocator_variables,
    decimal,
    literal,
)

__all__ = [
    "MEMORY_LIMIT",
    "MEMORY_REQUEST",
    "SM_PARTITION",
    "VISIBLE",
    "ContainerEnvironment",
    "environment",
    "shared_variables",
]

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""UUIDs of the GPUs that NVIDIA's runtime makes visible:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html."""
SM_PARTITION: Final = "CUDA_MPS_SM_PARTITION"
"""The static SM partition of a process
(https://docs.nvidia.com/deploy/mps/latest/common-tasks.html, "Using Static SM Partitioning")."""
_CONNECTIONS: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
_MAX_CONNECTIONS: Final = 2
"""Maximum number of connections of a client to the GPU, which is also MPS's default. All clients
share one pool of connections, so a client with more connections reduces the number of clients that
can connect (MPS, "CUDA_DEVICE_MAX_CONNECTIONS")."""

MEMORY_REQUEST: Final = "NVIDIA_GPU_MEMORY_REQUEST"
MEMORY_LIMIT: Final = "NVIDIA_GPU_MEMORY_LIMIT"
"""Variables from which NVIDIA's container toolkit sets the guarantee and the limit of a container's
cgroup for each of its GPUs, in MiB as a decimal number (NVIDIA/nvidia-container-toolkit 1.20.1,
cmd/nvidia-cdi-hook/cudamemorylimits). A container with them is not created on a node without driver
r615 or cgroup v2, so they are set only where a probe Pod has shown that they work."""

_UNIFIED_FRACTION: Final = 2.0
"""Managed memory of a JAX process as a multiple of the GPU's memory. The part above 1 is located
in the node's memory."""


@dataclass(frozen=True, slots=True)
class ContainerEnvironment:
    """The environment that every container of a job gets."""

    variables: dict[str, str]
    """Name to value, in the order in which they are written."""
    pytorch_fraction: float | None = None
    """Memory fraction for PyTorch. It is separate because its variable may also contain options
    of the user."""
    notices: tuple[str, ...] = ()
    """Sentences on requested features that are not available."""


def environment(
    framework: Framework,
    allocation: JobAllocation,
    *,
    processes: int = 1,
    containers: int = 1,
) -> ContainerEnvironment:
    """Return the environment of one attempt.

    Parameters
    ----------
    framework
        Framework whose own memory limit is set as well.
    allocation
        Allocation of the attempt.
    processes
        Client processes of the job. Amounts that MPS or a framework applies to each process are
        divided by this number. The limits of the driver are not.
    containers
        Maximum number of its containers that run at the same time.

    Notes
    -----
    A job that has its GPUs to itself gets no limit.
    """
    variables = {VISIBLE: ",".join(allocation.uuids)}
    if allocation.whole_gpu:
        return ContainerEnvironment(variables)
    if allocation.mode is SharingMode.MPS:
        variables |= _mps(allocation, processes, containers)
    if allocation.driver_limits:
        variables |= _driver(allocation, processes, containers)
    fraction = allocation.process_fraction(processes, containers)
    memory = allocation.process_memory(processes, containers)
    variables |= framework_variables(framework, fraction, memory)
    notices: tuple[str, ...] = ()
    if allocation.oversubscription:
        unified, notices = _unified(framework)
        variables |= unified
    pytorch = fraction if framework is Framework.PYTORCH else None
    return ContainerEnvironment(variables, pytorch, notices)


def shared_variables(
    ours: ContainerEnvironment, containers: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the variables that all containers of a claim get alike.

    They replace those of the containers. A variable with options of the user keeps these options if
    all containers agree about it. If they do not, or if a value is not known here, the variable is
    left to them: then MPS or the driver alone limits PyTorch.

    Parameters
    ----------
    ours
        The environment of the claim.
    containers
        The containers that use the claim, as in the Pod.
    """
    variables = dict(ours.variables)
    users = [container.get("env") or [] for container in containers]
    if _agreed(users, _CONNECTIONS) in [{str(n + 1)} for n in range(_MAX_CONNECTIONS)]:
        variables.pop(_CONNECTIONS, None)  # the user may choose fewer
    new, old = _agreed(users, ALLOCATOR), _agreed(users, OLD_ALLOCATOR)
    if ours.pytorch_fraction is not None and len(new) <= 1 and len(old) <= 1:
        values = (next(iter(new), None), next(iter(old), None))
        variables |= allocator_variables(*values, ours.pytorch_fraction)
    return variables


def _agreed(users: list[list[dict[str, Any]]], name: str) -> set[str | None]:
    """Return the different values of a variable; two values if one of them is not known."""
    unknown = any(e["name"] == name and "valueFrom" in e for env in users for e in env)
    return {literal(env, name) for env in users} | ({"", None} if unknown else set())


def _driver(allocation: JobAllocation, processes: int, containers: int) -> dict[str, str]:
    amounts = {MEMORY_REQUEST: allocation.memory, MEMORY_LIMIT: allocation.ceiling}
    return {
        name: str(allocation.container_memory(memory, processes, containers) // MEBI)
        for name, memory in amounts.items()
    }


def _mps(allocation: JobAllocation, processes: int, containers: int) -> dict[str, str]:
    (uuid,) = allocation.uuids
    # If the driver limits a container, its processes share the container's memory, and MPS limits
    # each of them only to all of it.
    sharing = 1 if allocation.driver_limits else processes
    mebibytes = allocation.process_memory(sharing, containers) // MEBI
    variables = {
        # MPS, "CUDA_MPS_PIPE_DIRECTORY" and "CUDA_MPS_LOG_DIRECTORY".
        "CUDA_MPS_PIPE_DIRECTORY": pipe_directory(uuid),
        "CUDA_MPS_LOG_DIRECTORY": log_directory(uuid),
        # MPS, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": the key is the device's ordinal in the process.
        # A UUID must not be used: an entry for a device that is not visible drops every limit.
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={mebibytes}M",
        # MPS, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(allocation.thread_percent),
        _CONNECTIONS: str(_MAX_CONNECTIONS),
    }
    if allocation.yields:
        # MPS, "CUDA_MPS_CLIENT_PRIORITY": 0 is normal, 1 below normal.
        variables["CUDA_MPS_CLIENT_PRIORITY"] = "1"
    return variables


def _unified(framework: Framework) -> tuple[dict[str, str], tuple[str, ...]]:
    match framework:
        case Framework.JAX:
            # XLA with unified memory uses max(1, fraction) of the GPU's memory
            # (xla/pjrt/gpu/gpu_helpers.cc), and requires preallocation to be off:
            # https://github.com/google-deepmind/alphafold3/blob/main/docs/performance.md,
            # "Unified memory".
            return {
                "TF_FORCE_UNIFIED_MEMORY": "true",
                "XLA_CLIENT_MEM_FRACTION": decimal(_UNIFIED_FRACTION),
            }, ()
        case Framework.TENSORFLOW:
            # Only XLA's client reads the variable. TensorFlow's own allocator reads
            # GPUOptions (tensorflow/core/common_runtime/gpu/gpu_process_state.cc; measured in
            # https://github.com/tensorflow/tensorflow/issues/57627).
            return {"TF_FORCE_UNIFIED_MEMORY": "true"}, (
                (
                    "oversubscription in TensorFlow needs the program's consent too: set "
                    "GPUOptions.per_process_gpu_memory_fraction above 1 in it"
                ),
            )
        case Framework.PYTORCH | Framework.CUPY:
            return {}, (
                f"{framework} does not support oversubscription: the job is held to its allocation",
            )
        case Framework.NONE:
            return {}, (
                (
                    "an unknown framework does not support oversubscription: set spec.framework "
                    "to TensorFlow or JAX if the program uses one of them"
                ),
            )
