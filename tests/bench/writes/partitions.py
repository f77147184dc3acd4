"""Writes of a GPUPartition's status, which lists each of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from bench.writes.variant import Comparison, Json, Variant, custom
from partita.models import crd

__all__ = ["partitions"]


def _gpu(number: int, jobs: int) -> Json:
    return {
        "name": f"partition-0-{number}",
        "node": f"node-{number // 8}",
        "product": "NVIDIA A100-SXM4-80GB",
        "memory": "78Gi",
        "allocated": f"{8 * jobs}Gi",
        "jobs": jobs,
        "state": "Ready",
        "enforcement": "Client",
    }


def _status(gpus: int, number: int) -> Json:
    """Return what a write changes while jobs start: the queue, and GPUs here and there."""
    summary = [_gpu(each, (each + number) % 7) for each in range(gpus)]
    return {"queue": {"queued": number, "running": number}, "gpuSummary": summary}


def _variant(gpus: int) -> Variant:
    kinds = crd.crds()
    return custom(
        f"{gpus:,}",
        next(c for c in kinds if c["spec"]["names"]["plural"] == "gpupartitions"),
        {"spec": {"gpus": gpus}},
        lambda _, number: {"status": _status(gpus, number)},
        subresource="status",
        status={"gpus": gpus, **_status(gpus, 0)},
    )


def partitions() -> Iterator[Comparison]:
    """Return the comparisons of writes of partitions."""
    yield Comparison("partition status: 10 GPUs / 100 GPUs", _variant(10), _variant(100))
    yield Comparison("partition status: 10 GPUs / 1,000 GPUs", _variant(10), _variant(1_000))
