"""`make bench-operator`: how fast the operator answers, starts, and how much memory it takes.

Everything runs as it would elsewhere: the API server, the nodes and the operator are processes
of their own, and what is measured is what a watch of this process sees.
"""

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import yaml

from bench import harness
from bench.client import Client, Json, client
from bench.harness import Figure, quantile, resident
from bench.shape import API, job
from bench.stage import PARTITIONS_PATH, jobs_path, make_namespace, start
from partita.constants import GROUP
from support.polling import TIMEOUT

EXAMPLES = """\
  make bench-operator                      some two minutes
  make bench-operator ARGS="--rounds 5"    to try it
"""
PARTITION, NAMESPACE = "bench", "default"
JOBS = jobs_path(NAMESPACE)
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
GPUS = 2
QUEUED, ALL = 100, 1000
"""Jobs that wait while the latency of others is measured, and while memory is."""


class Times:
    """When each thing was seen first."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}
        """When the Pod has lost its scheduling gate: it has its GPU."""
        self.ended: dict[str, float] = {}
        self.gpu: dict[str, str] = {}
        self.reasons: dict[str, dict[str, float]] = {}
        self._changed = asyncio.Event()

    def pod(self, _: str, body: Json) -> None:
        name, now = body["metadata"]["name"], time.perf_counter()
        if not body.get("spec", {}).get("schedulingGates"):
            self.started.setdefault(name, now)
        if body.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            self.ended.setdefault(name, now)
        self._changed.set()

    def claim(self, _: str, body: Json) -> None:
        if allocation := (body.get("status") or {}).get("allocation"):
            (device,) = allocation["devices"]["results"]
            self.gpu[body["metadata"]["name"].removesuffix(f".{GROUP}")] = device["pool"]
        self._changed.set()

    def job(self, _: str, body: Json) -> None:
        if reason := (body.get("status") or {}).get("reason"):
            seen = self.reasons.setdefault(body["metadata"]["name"], {})
            seen.setdefault(reason, time.perf_counter())
        self._changed.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something was seen."""
        async with asyncio.timeout(TIMEOUT):
            while not true():
                self._changed.clear()
                await self._changed.wait()


async def submit(api: Client, name: str, memory: str, seconds: float) -> float:
    """Submit a job that barely loads the GPU; return when the answer came."""
    told = {"sim.partita.dev/duration": f"{seconds}s", "sim.partita.dev/gpu": "1"}
    await api.post(JOBS, job(name, PARTITION, memory, told))
    return time.perf_counter()


async def submissions(api: Client, times: Times, rounds: int) -> list[float]:
    """Submit small jobs while 100 large ones wait; seconds until each has its GPU."""
    waits = []
    for number in range(rounds):
        began, pod = time.perf_counter(), f"probe-{number}-1"
        await submit(api, f"probe-{number}", "256Mi", 1)
        await times.until(lambda pod=pod: pod in times.started)
        waits.append(times.started[pod] - began)
    return waits


async def turns(api: Client, times: Times, rounds: int) -> list[float]:
    """Let jobs follow each other on full GPUs; seconds from one's end to the next's start."""
    names = [f"turn-{number}" for number in range(GPUS + rounds)]
    for name in names:
        await submit(api, name, "9Gi", 0.3)
    pods = {f"{name}-1" for name in names}
    await times.until(lambda: pods <= times.ended.keys() & times.gpu.keys())
    waits = []
    for gpu in {times.gpu[pod] for pod in pods}:
        mine = sorted((pod for pod in pods if times.gpu[pod] == gpu), key=times.started.__getitem__)
        waits += [times.started[b] - times.ended[a] for a, b in pairwise(mine)]
    return waits


async def changes(api: Client, times: Times, names: set[str]) -> list[float]:
    """Set a quota that all queued jobs exceed; seconds until each says so."""
    reason, began = "QuotaExceeded", time.perf_counter()
    quotas = [{"namespace": NAMESPACE, "memory": "1Mi"}]
    await api.patch(f"{PARTITIONS_PATH}/{PARTITION}", {"spec": {"quotas": quotas}})
    await times.until(lambda: all(reason in times.reasons.get(name, {}) for name in names))
    return [times.reasons[name][reason] - began for name in names]


@contextlib.asynccontextmanager
async def cluster(stack: ExitStack) -> AsyncIterator[tuple[Client, Callable[..., int]]]:
    """Run an embedded API server and a node of two GPUs; yield what asks it and what starts more of `partita`."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="partita-bench-")))
    kubeconfig = folder / "kubeconfig"

    def run(said: str, command: str, *options: str) -> int:
        program = [sys.executable, "-m", "partita", command, *options]
        return start(program, folder / f"{command}.log", said, stack)

    run("Ctrl-C", "apiserver", "--kubeconfig-out", str(kubeconfig))
    config = yaml.safe_load(kubeconfig.read_text())
    async with client(config["clusters"][0]["cluster"]["server"]) as api:
        await make_namespace(api, "partita-system")
        where = ("--kubeconfig", str(kubeconfig))
        gpus = ("--nodes", "1", "--gpus", str(GPUS), "--gpu-memory", "10Gi", "--speed", "1")
        run("Ctrl-C", "nodes", *where, *gpus)
        yield api, lambda said, command, *options: run(said, command, *where, *options)


async def bench(rounds: int, stack: ExitStack) -> list[Figure]:
    """Measure everything once."""
    async with cluster(stack) as (api, run):
        began = time.perf_counter()
        operator = run('"ready"', "run", "--identity", "b")
        ready = time.perf_counter() - began
        times = Times()
        watching = [
            asyncio.create_task(api.watch(PODS, times.pod)),
            asyncio.create_task(api.watch(JOBS, times.job)),
            asyncio.create_task(api.watch(CLAIMS, times.claim)),
        ]
        spec = {"gpus": GPUS, "sharing": {"maxJobsPerGPU": 48}}
        meta = {"apiVersion": API, "kind": "GPUPartition", "metadata": {"name": PARTITION}}
        await api.post(PARTITIONS_PATH, {**meta, "spec": spec})
        turn = await turns(api, times, rounds)
        for number in range(2):
            await submit(api, f"long-{number}", "6Gi", 3600)
        await times.until(lambda: {"long-0-1", "long-1-1"} <= times.started.keys())
        sent = {f"queued-{n}": await submit(api, f"queued-{n}", "8Gi", 1) for n in range(QUEUED)}
        await times.until(lambda: sent.keys() <= times.reasons.keys())
        reasons = [min(times.reasons[name].values()) - at for name, at in sent.items()]
        pods = await submissions(api, times, rounds)
        changed = await changes(api, times, set(sent))
        more = [f"more-{number}" for number in range(ALL - QUEUED)]
        for name in more:
            await submit(api, name, "8Gi", 1)
        await times.until(lambda: times.reasons.keys() >= {*more})
        memory = resident(operator) / 1.048576
        for task in watching:
            task.cancel()
    milli = 1000
    return [
        Figure("submit to Pod with GPU, median", milli * quantile(pods, 0.5), "ms", 100, len(pods)),
        Figure("submit to Pod with GPU, p99", milli * quantile(pods, 0.99), "ms", 300, len(pods)),
        Figure("released to next Pod, median", milli * quantile(turn, 0.5), "ms", 100, len(turn)),
        Figure("arrival to waiting reason, slowest", max(reasons), "s", 2, len(reasons)),
        Figure("change of the reason, slowest", max(changed), "s", 2, len(changed)),
        Figure("operator ready after start", ready, "s", 2),
        Figure("resident memory with 1,000 jobs", memory, "MiB", 150),
    ]


def main() -> None:
    """Measure and print."""
    parser = harness.parser("operator", __doc__, EXAMPLES)
    harness.add_number(parser, "--rounds", 100, "samples of each latency")
    given = parser.parse_args()
    with ExitStack() as stack:
        figures = asyncio.run(bench(given.rounds, stack))
    harness.show("The operator", figures)


if __name__ == "__main__":
    main()
