"""How a cold operator copes with 1,000 to 50,000 jobs that wait for 10 to 1,000 GPUs.

API server (the embedded one), simulated nodes and the operator are processes of their own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp

from apiserver.processes import free_port
from bench.cluster import GROUP, Cluster, cluster, until
from bench.load.metered import CYCLES
from bench.load.samples import read_page
from bench.operator import JOBS, PODS, job
from bench.scale.meters import usage

__all__ = ["ColdStart", "measure_cold_start"]

GPUS_A_NODE = 8
SUBMITTERS = 32
LATE = 20
"""Jobs that come once all GPUs are full: each has a cycle find that there is no room."""
ASK_EVERY = 1.0
"""Seconds between two looks at the operator's metrics, which cost it more the more jobs there are."""
PATIENCE = 600.0
"""Seconds in which anything must have happened."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """What one size took."""

    jobs: int
    gpus: int
    ready: float
    """Seconds until the operator had read all there is."""
    first_pod: float
    """Seconds until the first job had its Pod."""
    all_given: float
    """Seconds until each GPU had a job."""
    cycle: float
    """Seconds of a cycle in which nothing is free, the policy's thought and its wait included."""
    peak: float
    """Most resident memory, MB."""


async def measure_cold_start(jobs: int, gpus: int) -> ColdStart:
    """Measure one size."""
    nodes = -(-gpus // GPUS_A_NODE)
    async with cluster(
        nodes=nodes, gpus=min(gpus, GPUS_A_NODE), gpu_memory="40Gi", speed=1
    ) as here:
        await _carve(here, gpus)
        _tell("GPUs are carved")
        await _submit(here, (job(f"job-{n}", "30Gi", 36_000) for n in range(jobs)))
        _tell("jobs are submitted")
        pods: list[float] = []
        watching = asyncio.create_task(here.watch(PODS, lambda kind, _, at: _note(pods, kind, at)))
        port = free_port()
        operator = await here.spawn(
            *("run", "--kubeconfig", str(here.kubeconfig), "--identity", "b"),
            *("--health-port", str(port)),
            module="bench.load.metered",
        )
        ready = await operator.wait_for('"ready"', PATIENCE)
        _tell(f"the operator is ready after {ready:.1f} s")
        await until(lambda: len(pods) >= gpus, "a Pod for each GPU", PATIENCE)
        _tell("each GPU has a job")
        cycle = await _full_cycles(here, port)
        watching.cancel()
        peak = usage(operator.task.pid).peak
        first, last = (at - operator.started for at in (pods[0], pods[gpus - 1]))
        return ColdStart(jobs, gpus, ready, first, last, cycle, peak)


def _tell(text: str) -> None:
    sys.stderr.write(f"  {text}\n")


def _note(pods: list[float], kind: str, at: float) -> None:
    if kind == "ADDED":
        pods.append(at)


async def _carve(here: Cluster, gpus: int) -> None:
    """Have all GPUs served, by an operator that then ends."""
    spec = {"gpus": gpus, "policy": {"name": "fifo"}}
    meta = {"name": "bench"}
    body = {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPartition", "metadata": meta}
    await here.post(f"{GROUP}/gpupartitions", {**body, "spec": spec})
    operator, _ = await here.start_operator()
    async with asyncio.timeout(PATIENCE):
        while await _ready_gpus(here) < gpus:
            await asyncio.sleep(1)
    await operator.stop()


async def _ready_gpus(here: Cluster) -> int:
    servers = (await here.get(f"{GROUP}/gpuservers"))["items"]
    conditions = (s.get("status", {}).get("conditions", []) for s in servers)
    return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in cs) for cs in conditions)


async def _submit(here: Cluster, bodies: Iterable[dict[str, Any]]) -> None:
    left = iter(bodies)

    async def work() -> None:
        for body in left:
            await here.post(JOBS, body)

    async with asyncio.TaskGroup() as group:
        for _ in range(SUBMITTERS):
            group.create_task(work())


async def _full_cycles(here: Cluster, port: int) -> float:
    """Return the mean time of cycles in which nothing is free."""
    async with aiohttp.ClientSession() as session:

        async def cycles() -> tuple[float, float]:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                page = read_page((await response.read()).decode())
            return page[f"{CYCLES}_sum"], page[f"{CYCLES}_count"]

        began = before = await cycles()
        for number in range(LATE):
            await here.post(JOBS, job(f"late-{number}", "30Gi", 36_000))
            async with asyncio.timeout(PATIENCE):
                while (now := await cycles())[1] == before[1]:
                    await asyncio.sleep(ASK_EVERY)
            before = now
        return (before[0] - began[0]) / (before[1] - began[1])
