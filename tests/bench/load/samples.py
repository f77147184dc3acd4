"""What the operator and its cluster are like at a moment, and how that changed over time."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

from bench.load.figures import Figure
from bench.load.trend import trend

__all__ = ["BLOCKS", "MOST_GROWTH", "Sample", "figures", "read_page"]

BLOCKS = 25
"""Points of a trend: each stands for all that happened since the one before."""
MOST_GROWTH = 5.0
"""Percent, from the first quarter to the last; below that we call it flat (assumption)."""
MOST_MEMORY = 300.0
"""MB; issue 7."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment. What counts, counts since the start."""

    time: float
    """Seconds since the first job."""
    done: int
    """Jobs that have ended."""
    present: int
    """Jobs in the cluster."""
    waiting: float
    memory: float
    """Resident memory of the operator, MB."""
    cpu: float
    """Seconds of the operator."""
    cycles: float
    cycle_seconds: float
    writes: float
    """The operator's."""
    api_cpu: float
    """Seconds of the API server."""
    etcd: float
    """Size of etcd's file, MB."""
    load: float
    """The machine's load average of the last minute."""


def read_page(page: str) -> Mapping[str, float]:
    """Return what the operator's metrics say, summed up over their labels."""
    told: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            told[sample.name] += sample.value
    return told


def figures(samples: Sequence[Sample], since: float) -> list[Figure]:
    """Return what changed from then on, and the operator's peak of memory over all."""
    kept = [sample for sample in samples if sample.time >= since]
    wanted = min(BLOCKS, len(kept) - 1)
    points = [kept[round(n * (len(kept) - 1) / wanted)] for n in range(wanted + 1)]
    blocks = list(pairwise(points))
    hours = [(a.time + b.time) / 7200 for a, b in blocks]

    def per(part: Callable[[Sample], float], whole: Callable[[Sample], float]) -> list[float]:
        return [(part(b) - part(a)) / max(1, whole(b) - whole(a)) for a, b in blocks]

    def mean(what: Callable[[Sample], float]) -> list[float]:
        return [
            statistics.fmean(what(s) for s in kept if a.time < s.time <= b.time) for a, b in blocks
        ]

    def ends(name: str, unit: str, values: list[float]) -> list[Figure]:
        found = trend(hours, values)
        return [
            Figure(f"{name}: first quarter", found.first, unit),
            Figure(f"{name}: last quarter", found.last, unit),
        ]

    def grown(name: str, unit: str, values: list[float]) -> list[Figure]:
        found = trend(hours, values)
        return [
            *ends(name, unit, values),
            Figure(f"{name}: growth", found.growth, "%", MOST_GROWTH),
            Figure(f"{name}: slope", found.slope, f"{unit}/h"),
            Figure(f"{name}: slope, ± (95 %)", found.margin, f"{unit}/h"),
        ]

    def jobs(sample: Sample) -> float:
        return sample.done

    cycle = [1000 * each for each in per(lambda s: s.cycle_seconds, lambda s: s.cycles)]
    cpu = [1000 * each for each in per(lambda s: s.cpu, jobs)]
    api = [1000 * each for each in per(lambda s: s.api_cpu, jobs)]
    ratio = [ours / theirs for ours, theirs in zip(cpu, api, strict=True)]
    return [
        Figure("memory: peak", max(s.memory for s in samples), "MB", MOST_MEMORY),
        *grown("memory", "MB", mean(lambda s: s.memory)),
        *grown("time per cycle", "ms", cycle),
        *grown("CPU a job, operator", "ms", cpu),
        *grown("jobs in the cluster", "", mean(lambda s: s.present)),
        *ends("jobs that wait", "", mean(lambda s: s.waiting)),
        *ends("CPU a job, API server", "ms", api),
        *ends("CPU a job, operator by API server", "", ratio),
        *ends("writes a job", "", per(lambda s: s.writes, jobs)),
        *ends("load of the machine", "", mean(lambda s: s.load)),
        Figure("etcd: largest file", max(s.etcd for s in samples), "MB"),
    ]
