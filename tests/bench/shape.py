"""What is submitted: the shape of Kueue's scheduler benchmark.

Source: kubernetes-sigs/kueue, test/performance/scheduler/configs/baseline/generator.yaml.
"""

from dataclasses import dataclass, replace
from typing import Any

from partita.constants import GROUP, VERSION

__all__ = [
    "CAPACITY",
    "CLASSES",
    "GPU_MEMORY",
    "PARTITIONS",
    "RUN_SECONDS",
    "JobClass",
    "job",
    "partition",
    "shrunk",
]

PARTITIONS = 30
CAPACITY = 20
"""Units of each partition: one GPU, of which a job of so many units allocates as many twentieths."""
GPU_MEMORY = "22Gi"
"""Of which 7 % are never allocated (the default), and 20 GiB are left for whole units."""
RUN_SECONDS = "bench.partita.dev/seconds"
"""Annotation of a Pod: how long the simulated kubelet lets it run."""
API = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of one kind in each partition."""

    name: str
    units: int
    seconds: float
    """How long each runs."""
    priority: int
    count: int
    every: float
    """Seconds between two submissions to one partition."""


CLASSES = (
    JobClass("small", units=1, seconds=0.2, priority=50, count=350, every=0.1),
    JobClass("medium", units=5, seconds=0.5, priority=100, count=100, every=0.5),
    JobClass("large", units=20, seconds=1.0, priority=200, count=50, every=1.2),
)


def shrunk(share: float) -> tuple[JobClass, ...]:
    """Return the classes with only this share of their jobs, at the same pace."""
    return tuple(replace(c, count=max(1, round(c.count * share))) for c in CLASSES)


def partition(name: str) -> dict[str, Any]:
    """Return a GPUPartition of one GPU that takes the priorities above."""
    spec = {"gpus": 1, "maxPriority": 200, "sharing": {"maxJobsPerGPU": CAPACITY}}
    return {"apiVersion": API, "kind": "GPUPartition", "metadata": {"name": name}, "spec": spec}


def job(
    name: str, partition: str, memory: str, annotations: dict[str, str], **spec: Any
) -> dict[str, Any]:
    """Return a SharedGPUJob of one container, with more of its spec."""
    resources = spec.pop("resources", {})
    container = {"name": "main", "image": "bench", "resources": resources}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    asked = {"partition": partition, "gpuMemory": memory, "template": template}
    meta = {"name": name}
    return {"apiVersion": API, "kind": "SharedGPUJob", "metadata": meta, "spec": {**asked, **spec}}
