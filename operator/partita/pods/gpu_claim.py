"""The ResourceClaimTemplate by which server Pods get GPUs from NVIDIA's DRA driver.

kube-controller-manager creates a claim from it for each server Pod, and deletes it with the Pod. A
claim asks for one device of class `gpu.nvidia.com`, which is a whole GPU. Without `adminAccess` and
without a sharing configuration nobody else gets the GPU, and NVIDIA's driver starts no MPS of its
own (kubernetes-sigs/dra-driver-nvidia-gpu, site/content/docs/guides/gpu-allocation/
allocating-gpus.md and guides/mps.md).

Each container that names the claim gets the GPU's device files and the driver's libraries by CDI,
and no other GPU. `NVIDIA_VISIBLE_DEVICES` is `void` in it (NVIDIA/nvidia-container-toolkit,
pkg/nvcdi/wrapper.go).
"""

import json
from typing import Any, Final

from partita.constants import LABEL_PARTITION, PART_OF
from partita.models import GPUPartition
from partita.models.partition import GPUSelector
from partita.pods.content_hash import content_hash

__all__ = [
    "NVIDIA_CLASS",
    "NVIDIA_DRIVER",
    "POD_CLAIM",
    "build_gpu_claim_template",
    "gpu_claim_template_name",
]

NVIDIA_DRIVER: Final = "gpu.nvidia.com"
"""Name of NVIDIA's DRA driver for GPUs, and domain of its devices' attributes and capacities."""
NVIDIA_CLASS: Final = "gpu.nvidia.com"
"""DeviceClass of whole GPUs (deployments/helm/dra-driver-nvidia-gpu/templates/
deviceclass-gpu.yaml)."""
POD_CLAIM: Final = "gpu"
"""Name of the claim in the server Pod's spec."""


def gpu_claim_template_name(partition: GPUPartition) -> str:
    """Return the name of the template, which differs for each content: its spec is immutable."""
    return f"partita-{partition.metadata.name}-gpu-{content_hash(_claim_spec(partition))}"


def build_gpu_claim_template(partition: GPUPartition, namespace: str) -> dict[str, Any]:
    """Build the template of the claims of a partition's server Pods.

    Parameters
    ----------
    namespace
        Namespace of the server Pods.
    """
    return {
        "metadata": {
            "name": gpu_claim_template_name(partition),
            "namespace": namespace,
            "labels": {**PART_OF, LABEL_PARTITION: partition.metadata.name},
            "ownerReferences": [partition.owner_reference()],
        },
        "spec": {"spec": _claim_spec(partition)},
    }


def _claim_spec(partition: GPUPartition) -> dict[str, Any]:
    request: dict[str, Any] = {"deviceClassName": NVIDIA_CLASS}
    if expressions := _selectors(partition.spec.gpu_selector):
        request["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    return {"devices": {"requests": [{"name": POD_CLAIM, "exactly": request}]}}


def _selectors(selector: GPUSelector) -> list[str]:
    """Convert the selector to CEL, with the names of the driver's page "ResourceSlice attributes".

    `products` may have the spaces of NVML or the hyphens of the node label
    `nvidia.com/gpu.product`.
    """
    expressions = []
    if selector.products:
        products = json.dumps([product.replace(" ", "-") for product in selector.products])
        name = f'device.attributes["{NVIDIA_DRIVER}"].productName'
        expressions.append(f'{name}.replace(" ", "-") in {products}')
    if selector.min_memory is not None:
        memory = f'device.capacity["{NVIDIA_DRIVER}"].memory'
        expressions.append(f'{memory}.compareTo(quantity("{selector.min_memory}")) >= 0')
    return expressions
