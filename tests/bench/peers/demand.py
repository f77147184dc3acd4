"""What `sharing` asks for: Pods with fractions of GPUs; and a check of where they were put."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from bench.shape import RUN_SECONDS

if TYPE_CHECKING:
    from bench.load import Work

__all__ = [
    "GPU_MEMORY",
    "LASTS",
    "NAMESPACE",
    "PERCENTS",
    "PODS",
    "Packed",
    "Share",
    "demand",
    "fewest_gpus",
    "memory_of",
    "packed",
    "pod",
    "resources",
]

Json = dict[str, Any]

NAMESPACE = "crowd"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LASTS = {RUN_SECONDS: "3600"}
"""Annotation of each Pod: it runs longer than what is measured."""
CPU_OF_GPU, MEMORY_OF_GPU = 16, 64
"""CPUs, and GiB of main memory, that Pods ask for with a whole GPU."""

GPU_MEMORY = 80
"""GiB of each GPU, as of an H100."""
_OF_A_HUNDRED = {10: 50, 20: 30, 25: 12, 50: 8}
"""How many of a hundred Pods ask for so many percent of a GPU's memory and of its compute. A
hundred of them fill 18 GPUs, so that five Pods a GPU leave a tenth of the GPUs free."""
PERCENTS = tuple(_OF_A_HUNDRED)
_SEED = 19
"""Of the order of the Pods, which is the same for every subject."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a subject says that it gave to a Pod.

    Attributes
    ----------
    memory
        GiB.
    compute
        Percent of the GPU.
    """

    gpu: str
    memory: float
    compute: float


@dataclass(frozen=True, slots=True)
class Packed:
    """How the Pods stand on the GPUs.

    Attributes
    ----------
    gpus
        GPUs that have any Pod.
    overfull
        GPUs of whose memory or compute more was given away than there is.
    wrong
        Pods that have no share, or another than they asked for.
    """

    gpus: int
    overfull: int
    wrong: int


def demand(pods: int) -> dict[str, int]:
    """Return how many percent of a GPU each Pod asks for, in the order of submission."""
    mix = [percent for percent, count in _OF_A_HUNDRED.items() for _ in range(count)]
    asked = [mix[number % len(mix)] for number in range(pods)]
    Random(_SEED).shuffle(asked)
    return {f"pod-{number}": percent for number, percent in enumerate(asked)}


def memory_of(percent: int) -> int:
    """Return the GiB that a Pod asks for with so many percent of a GPU."""
    return GPU_MEMORY * percent // 100


def fewest_gpus(asked: Mapping[str, int]) -> int:
    """Return the number of GPUs below which the Pods do not fit, however they are placed."""
    return -(-sum(asked.values()) // 100)


def packed(asked: Mapping[str, int], shares: Mapping[str, Share]) -> Packed:
    """Compare what was given with what was asked for and with what the GPUs have."""
    memory: dict[str, float] = {}
    compute: dict[str, float] = {}
    for share in shares.values():
        memory[share.gpu] = memory.get(share.gpu, 0.0) + share.memory
        compute[share.gpu] = compute.get(share.gpu, 0.0) + share.compute
    wrong = [
        pod
        for pod, percent in asked.items()
        if pod not in shares
        or (shares[pod].memory, shares[pod].compute) != (memory_of(percent), percent)
    ]
    overfull = [gpu for gpu in memory if memory[gpu] > GPU_MEMORY or compute[gpu] > 100]
    return Packed(len(memory), len(overfull), len(wrong))


def resources(percent: int) -> Json:
    """Return what a container asks of its node's CPU and memory."""
    return {
        "cpu": f"{CPU_OF_GPU * 1000 * percent // 100}m",
        "memory": f"{MEMORY_OF_GPU * 1024 * percent // 100}Mi",
    }


def pod(work: Work, container: Json, **spec: Any) -> Json:
    """Return a Pod with more of its container's resources and of its spec."""
    given = {**container, "requests": resources(work.size)}
    main = {"name": "main", "image": "bench", "resources": given}
    return {
        "metadata": {"name": work.name, "annotations": {**LASTS}},
        "spec": {"restartPolicy": "Never", "containers": [main], **spec},
    }
