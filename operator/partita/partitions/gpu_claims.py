"""Offers server Pods their GPUs by claims, for partitions whose gpuSource is DRA."""

from contextlib import suppress

from partita.kube.client import CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_SLICES, Kube
from partita.kube.errors import AlreadyExistsError, NotFoundError
from partita.models import GPUPartition
from partita.pods.gpu_claim import NVIDIA_CLASS, NVIDIA_DRIVER, build_gpu_claim_template

__all__ = ["GPUSourceError", "create_gpu_claim_template"]

_REMEDY = (
    "install NVIDIA's DRA driver for GPUs (dra-driver-nvidia-gpu, or GPU Operator 26.7 or later "
    "with a GPUCluster), or set spec.gpuSource to DevicePlugin"
)


class GPUSourceError(Exception):
    """No server Pod can get a GPU from the partition's `gpuSource`; the message says why."""


async def create_gpu_claim_template(kube: Kube, partition: GPUPartition, namespace: str) -> None:
    """Create the template of the claims of a partition's server Pods, unless it exists.

    Parameters
    ----------
    namespace
        Namespace of the server Pods.

    Raises
    ------
    GPUSourceError
        NVIDIA's DRA driver does not offer GPUs in this cluster.
    KubernetesError
        The API server refuses a request.
    """
    classes: list[dict[str, object]] = []
    with suppress(NotFoundError):  # the API is not served: Kubernetes is older than 1.34
        classes, _ = await kube.list(DEVICE_CLASSES, field_selector=f"metadata.name={NVIDIA_CLASS}")
    if not classes:
        raise GPUSourceError(
            f"spec.gpuSource is DRA, but there is no DeviceClass {NVIDIA_CLASS}: {_REMEDY}"
        )
    slices, _ = await kube.list(RESOURCE_SLICES, field_selector=f"spec.driver={NVIDIA_DRIVER}")
    if not slices:
        raise GPUSourceError(
            f"spec.gpuSource is DRA, but driver {NVIDIA_DRIVER} has published no ResourceSlice: "
            "look at the log of its kubelet plugin on the GPU nodes, or set spec.gpuSource to "
            "DevicePlugin"
        )
    with suppress(AlreadyExistsError):
        await kube.create(CLAIM_TEMPLATES, build_gpu_claim_template(partition, namespace))
