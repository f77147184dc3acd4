"""Finds the GPU of the server Pod and checks whether it can be shared.

kubelet reports the devices of its Pods, with each strategy of the device plugin. If it reports
none, as of NVIDIA's DRA driver, it is the only GPU that is visible to this container.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from partita.agent.errors import KubeletError, SetupError
from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice, gpus
from partita.agent.kubelet import kubelet_pb2 as api
from partita.agent.kubelet.client import call_service
from partita.constants import GPU_RESOURCE
from partita.models import SharingMode
from partita.pods.gpu_claim import NVIDIA_DRIVER

__all__ = ["assigned", "check", "find_gpu"]

_OLDEST_DRIVER: Final = 495
"""MPS limits a client's memory since CUDA 11.5. The driver of CUDA 11.5 is 495
(https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/, "CUDA Driver")."""
_OLDEST_CAPABILITY: Final = (7, 0)
"""Volta. On older GPUs MPS has no limits, and clients can access each other's memory
(https://docs.nvidia.com/deploy/mps/latest/, "Memory Protection")."""

_MIG: Final = (
    "the GPU is in MIG mode, which Partita does not share: turn it off (nvidia-smi -mig 0; for a "
    "vGPU, take a profile without MIG), or exclude the GPU from the partition"
)


async def assigned(
    pod: str, namespace: str, socket: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what kubelet reports about the GPU of a Pod; empty if it reports nothing.

    kubelet reports claims from Kubernetes 1.34 on (feature `KubeletPodResourcesDynamicResources`).

    Returns
    -------
    tuple of str, tuple of str
        UUIDs of the GPUs that it got from NVIDIA's device plugin, which uses them as device IDs,
        followed by `::<n>` for a shared GPU; and the CDI devices that it got from NVIDIA's DRA
        driver, with the device files of the GPU. That driver writes them for each claim, such as
        `k8s.gpu.nvidia.com/claim=<UID>-gpu-0`, and none with the UUID
        (kubernetes-sigs/dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin/cdi.go).
    """
    try:
        answer = await call_service(
            socket, "/v1.PodResourcesLister/List", api.Empty(), api.ListPodResourcesResponse
        )
    except KubeletError:
        return (), ()
    containers = [
        container
        for found in answer.pod_resources
        if (found.name, found.namespace) == (pod, namespace)
        for container in found.containers
    ]
    uuids = [
        device.partition("::")[0]
        for container in containers
        for devices in container.devices
        if devices.resource_name == GPU_RESOURCE
        for device in devices.device_ids
    ]
    cdi = [
        device.name
        for container in containers
        for dynamic in container.dynamic_resources
        for claimed in dynamic.claim_resources
        if claimed.driver_name == NVIDIA_DRIVER
        for device in claimed.cdi_devices
    ]
    return tuple(uuids), tuple(dict.fromkeys(cdi))


def find_gpu(assigned_uuids: Iterable[str]) -> NVMLDevice:
    """Find the GPU of this Pod among those that NVML lists.

    Parameters
    ----------
    assigned_uuids
        The GPUs that kubelet reported.

    Raises
    ------
    SetupError
        The GPU of the Pod is unknown.
    GPULostError
        The GPU is missing.
    """
    uuids = list(assigned_uuids)
    if any(uuid.startswith("MIG-") for uuid in uuids):
        # The plugin offers MIG devices as GPUs (`mig.strategy: single`).
        raise SetupError("MIGEnabled", _MIG)
    if len(uuids) == 1:
        return NVMLDevice.of(uuids[0])
    if len(uuids) > 1:
        raise SetupError(
            "SeveralGPUs",
            f"the server Pod got {len(uuids)} GPUs; it requests one: is {GPU_RESOURCE} set to 1 in "
            "it, and is the device plugin NVIDIA's?",
        )
    found = gpus()
    if len(found) == 1:
        return found[0]
    raise SetupError(
        "NoGPU" if not found else "SeveralGPUs",
        f"NVML lists {len(found)} GPUs, and kubelet does not say which this Pod has: set "
        "`--kubelet-directory` of `partita run` to kubelet's --root-dir",
    )


def check(identity: GPUIdentity, mode: SharingMode) -> None:
    """Check that the GPU can be shared in this mode.

    Raises
    ------
    SetupError
        The GPU cannot be shared; the message contains what to change.
    """
    if identity.mig:
        raise SetupError("MIGEnabled", _MIG)
    if not identity.memory:
        # NVML does not support the question of a GB10's memory:
        # https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1073
        raise SetupError(
            "NoDedicatedMemory",
            f"this GPU has no memory of its own to divide: {identity.product} uses the node's; "
            "exclude it from the partition (gpuSelector), and give it to Pods through NVIDIA's "
            "device plugin",
        )
    if mode is not SharingMode.MPS:
        return
    if identity.vgpu:
        # An assumption: NVIDIA's documentation of MPS does not name vGPUs, nor that of vGPUs MPS.
        # If it is wrong, vGPUs are refused that MPS could share.
        raise SetupError(
            "VirtualGPU",
            f"{identity.product} is a vGPU, in which MPS is not known to work: pass whole GPUs "
            "through to the virtual machine, or share by TimeSlicing",
        )
    if identity.driver_major < _OLDEST_DRIVER:
        raise SetupError(
            "DriverTooOld",
            f"driver {identity.driver} cannot limit the memory of MPS clients: install "
            f"{_OLDEST_DRIVER} or later, or share by TimeSlicing",
        )
    if identity.capability is not None and identity.capability < _OLDEST_CAPABILITY:
        raise SetupError(
            "GPUTooOld",
            f"{identity.product} is older than Volta, whose MPS is the first with limits: "
            "share it by TimeSlicing",
        )
