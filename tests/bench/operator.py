"""`make bench-operator`: how fast the operator answers, starts, and how much memory it takes.

Everything runs as it would elsewhere: the API server, the nodes and the operator are processes
of their own, and what is measured is what a watch of this process sees.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.cluster import GROUP, Cluster, cluster, resident_mebibytes
from partita.pods.own_claims import own_claims

PARTITION, NAMESPACE = "bench", "default"
JOBS = f"{GROUP}/namespaces/{NAMESPACE}/sharedgpujobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUEUED = 100
"""Jobs that wait while the latency of others is measured."""


@dataclass
class Figure:
    """One measured figure beside its target."""

    what: str
    unit: str
    target: float
    measured: float
    samples: int

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.measured <= self.target


def job(name: str, memory: str, seconds: float) -> dict[str, Any]:
    """Make a job that uses less than it allocates and barely loads the GPU."""
    return {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "partition": PARTITION,
            "gpuMemory": memory,
            "template": {
                "metadata": {
                    "annotations": {
                        "sim.partita.dev/duration": f"{seconds}s",
                        "sim.partita.dev/gpu": "1",
                    }
                },
                "spec": {"containers": [{"name": "main", "image": "bench"}]},
            },
        },
    }


class Times:
    """When each thing was seen first."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.gpu: dict[str, str] = {}
        self.reasons: dict[str, dict[str, float]] = {}
        self.changed = asyncio.Event()

    def pod(self, kind: str, body: dict[str, Any], at: float) -> None:
        name = body["metadata"]["name"]
        if kind == "ADDED":
            self.created.setdefault(name, at)
            claims = own_claims(body)
            self.gpu[name] = claims[0].removeprefix(f"{name}.") if claims else ""
        if body.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            self.ended.setdefault(name, at)
        self.changed.set()

    def job(self, _: str, body: dict[str, Any], at: float) -> None:
        status = body.get("status") or {}
        if status.get("reason"):
            seen = self.reasons.setdefault(body["metadata"]["name"], {})
            seen.setdefault(status["reason"], at)
        self.changed.set()

    async def until(self, true: Any, seconds: float = 60) -> None:
        """Wait until something was seen."""
        async with asyncio.timeout(seconds):
            while not true():
                self.changed.clear()
                await self.changed.wait()


async def measure_submission(here: Cluster, times: Times, rounds: int) -> list[float]:
    """Submit small jobs while 100 large ones wait; seconds until each has its Pod."""
    sent: dict[str, float] = {}
    for number in range(rounds):
        name = f"probe-{number}"
        sent[f"{name}-1"] = time.perf_counter()
        await here.post(JOBS, job(name, "256Mi", 1))
        await times.until(lambda name=name: f"{name}-1" in times.created)
    return [times.created[name] - at for name, at in sent.items()]


async def measure_turns(here: Cluster, times: Times, rounds: int) -> list[float]:
    """Let jobs follow each other on a full GPU; seconds from one's end to the next's Pod."""
    names = [f"turn-{number}" for number in range(rounds)]
    for name in names:
        await here.post(JOBS, job(name, "9Gi", 0.3))
    pods = {f"{name}-1" for name in names}
    await times.until(lambda: pods <= times.ended.keys(), 120)
    waits = []
    for gpu in {times.gpu[pod] for pod in pods}:
        mine = sorted((pod for pod in pods if times.gpu[pod] == gpu), key=times.created.__getitem__)
        waits += [times.created[b] - times.ended[a] for a, b in pairwise(mine)]
    return waits


async def measure_reasons(here: Cluster, times: Times, sent: dict[str, float]) -> list[float]:
    """Seconds until each queued job said why it waits."""
    await times.until(lambda: sent.keys() <= times.reasons.keys())
    return [min(times.reasons[name].values()) - at for name, at in sent.items()]


async def measure_change(here: Cluster, times: Times, names: set[str]) -> list[float]:
    """Set a quota that all queued jobs exceed; seconds until each says so."""
    reason = "QuotaExceeded"
    at = time.perf_counter()
    quotas = [{"namespace": NAMESPACE, "memory": "1Mi"}]
    await here.patch(f"{GROUP}/gpupartitions/{PARTITION}", {"spec": {"quotas": quotas}})
    await times.until(lambda: all(reason in times.reasons.get(n, {}) for n in names))
    return [times.reasons[name][reason] - at for name in names]


async def bench(rounds: int) -> list[Figure]:
    """Measure everything once."""
    async with cluster(gpus=2, gpu_memory="10Gi", speed=1) as here:
        operator, ready = await here.start_operator()
        times = Times()
        watches = [
            asyncio.create_task(here.watch(PODS, times.pod)),
            asyncio.create_task(here.watch(JOBS, times.job)),
        ]
        await here.post(
            f"{GROUP}/gpupartitions",
            {
                "apiVersion": "partita.dev/v1alpha1",
                "kind": "GPUPartition",
                "metadata": {"name": PARTITION},
                "spec": {"gpus": 2, "sharing": {"maxJobsPerGPU": 48}},
            },
        )
        turns = await measure_turns(here, times, rounds)
        for number in range(2):
            await here.post(JOBS, job(f"long-{number}", "6Gi", 3600))
        await times.until(lambda: {"long-0-1", "long-1-1"} <= times.created.keys())
        queued = {
            name: await here.post(JOBS, job(name, "8Gi", 1))
            for name in (f"queued-{number}" for number in range(QUEUED))
        }
        reasons = await measure_reasons(here, times, queued)
        submissions = await measure_submission(here, times, rounds)
        changes = await measure_change(here, times, set(queued))
        for number in range(1000 - QUEUED):
            await here.post(JOBS, job(f"more-{number}", "8Gi", 1))
        more = {f"more-{number}" for number in range(1000 - QUEUED)}
        await times.until(lambda: more <= times.reasons.keys(), 120)
        resident = resident_mebibytes(operator.task.pid)
        for watch in watches:
            watch.cancel()
    percentile = statistics.quantiles(submissions, n=100)[98]
    millis = 1000
    return [
        Figure(
            "submit to Pod created, median",
            "ms",
            100,
            statistics.median(submissions) * millis,
            len(submissions),
        ),
        Figure("submit to Pod created, p99", "ms", 300, percentile * millis, len(submissions)),
        Figure(
            "slot freed to next Pod created, median",
            "ms",
            100,
            statistics.median(turns) * millis,
            len(turns),
        ),
        Figure("arrival to waiting reason, slowest", "s", 2, max(reasons), len(reasons)),
        Figure("change of the reason, slowest", "s", 2, max(changes), len(changes)),
        Figure("operator ready after start", "s", 2, ready, 1),
        Figure("resident memory with 1,000 jobs", "MiB", 150, resident, 1),
    ]


def main() -> None:
    """Run, print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="samples of each latency")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    figures = asyncio.run(bench(arguments.rounds))
    if arguments.json:
        json.dump([asdict(f) | {"met": f.met} for f in figures], sys.stdout, indent=2)
        return
    table = Table(title=f"Operator on {os.cpu_count()} cores, Python {platform.python_version()}")
    for column in ("figure", "target", "measured", "samples", ""):
        table.add_column(column, justify="right" if column in {"target", "measured"} else "left")
    for f in figures:
        verdict = "met" if f.met else "MISSED"
        table.add_row(
            f.what,
            f"{f.target:g} {f.unit}",
            f"{f.measured:.1f} {f.unit}" if f.unit != "s" else f"{f.measured:.2f} s",
            str(f.samples),
            verdict,
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
