"""Reports of simulated GPUs, for `bench.agent_traffic`: all of the agent but what reads the GPU.

    python -m bench.agent_replay KUBECONFIGS JOBS steady|changing SECONDS

It runs with the code of any version that PYTHONPATH names. Each kubeconfig is that of one GPU's
agent, and is named for its GPUServer. The seconds are those of the GPUs: they pass as fast as the
API server answers, once a line is read from stdin.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from partita.agent.dra.sockets import DriverSockets
from partita.agent.main import Agent
from partita.agent.paths import Paths
from partita.agent.settings import AgentSettings
from partita.agent.usage.job_usage import GPUSample
from partita.kube.client import Kube
from partita.kube.connect import connect
from partita.models import SharingMode

__all__ = ["MEMORY", "pod_uid"]

MEMORY: Final = 80 << 30
_SAMPLES: Final = 2
"""A second. An agent takes 1 or 10."""
_START: Final = 1_800_000_000.0
_NOISE: Final = 3.0
"""Standard deviation of the utilisation of a GPU with steady jobs, in percentage points."""


def pod_uid(server: str, job: int) -> str:
    """UID of the Pod of a job."""
    return f"{server}-pod-{job}"


class Load:
    """What one job uses."""

    def __init__(self, jobs: int, changing: str, rng: random.Random) -> None:
        self._share = 90 / jobs
        self._room = 0.9 * MEMORY / jobs
        self._changing = changing == "changing"
        self._rng = rng
        self._until = 0.0
        self.busy = 0.8
        self.memory = 0.5 * self._room

    def at(self, second: float) -> tuple[int, float]:
        """Bytes and percent; a changing job has phases of 20 to 120 s, in which its memory moves."""
        if self._changing:
            if second >= self._until:
                self._until = second + self._rng.uniform(20, 120)
                self.busy = self._rng.uniform(0.05, 1)
                self._target = self._room * self._rng.uniform(0.3, 0.95)
            self.memory += (self._target - self.memory) * 0.02
        return int(self.memory), self.busy * self._share


class Processes:
    """One process in each job's Pod."""

    def __init__(self, server: str) -> None:
        self._server = server

    def of(self, pids: Iterable[int]) -> dict[int, str]:
        return {pid: pod_uid(self._server, pid) for pid in pids}

    def known(self, pid: int) -> Any:
        return SimpleNamespace(pod=pod_uid(self._server, pid), container="c")

    def identity(self, _: int) -> Any:
        return SimpleNamespace(pod=None)


class SimulatedGPU:
    """An agent, and the GPU that it does not have."""

    def __init__(self, server: str, kube: Kube, jobs: int, kind: str) -> None:
        nowhere = Path("/nonexistent")
        self.kube = kube
        self._agent = Agent(
            AgentSettings(
                server=server,
                mode=SharingMode.MPS,
                max_jobs=32,
                node="node-a",
                pod=server,
                namespace="partita-servers",
                paths=Paths(server, nowhere),
                driver_sockets=DriverSockets(nowhere),
                cdi=nowhere,
                proc=nowhere,
                cgroups=nowhere,
            ),
            kube,
        )
        identity = {
            "uuid": f"GPU-{server}",
            "product": "NVIDIA A100-SXM4-80GB",
            "memory": MEMORY,
            "sm_count": 108,
            "pcie_bandwidth": 0,
        }
        found = SimpleNamespace(
            identity=SimpleNamespace(**identity), driver="580.95.05", cuda=13000
        )
        self._agent._gpu = cast("Any", found)
        self._agent.jobs.processes = cast("Any", Processes(server))
        self._rng = random.Random(server)
        self._jobs = {pid: Load(jobs, kind, self._rng) for pid in range(1, jobs + 1)}

    async def watch(self) -> None:
        """Follow the GPUServer, as the agent does."""
        await self._agent._watch_server()

    async def ready(self) -> None:
        """Wait for the ledger."""
        await self._agent.jobs.ledger.loaded.wait()

    async def run(self, seconds: int) -> None:
        """Sample the GPU and report it."""
        for second in range(seconds):
            for part in range(_SAMPLES):
                self._agent.jobs.add_samples([self._sample(second + part / _SAMPLES)])
            await self._agent._reporter.report(self._agent.report(), float(second))

    def _sample(self, second: float) -> GPUSample:
        used = {pid: load.at(second) for pid, load in self._jobs.items()}
        noise = self._rng.gauss(0, _NOISE) if used else 0.0
        total = sum(percent for _, percent in used.values())
        return GPUSample(
            at=_START + second,
            memory={pid: memory for pid, (memory, _) in used.items()},
            used=sum(memory for memory, _ in used.values()),
            utilization=min(100.0, max(0.0, total + noise)),
            shares={
                pid: max(1, round(percent + noise / len(used)))
                for pid, (_, percent) in used.items()
            },
        )


async def main(kubeconfigs: list[Path], jobs: int, kind: str, seconds: int) -> None:
    """Replay; say when all is ready, and at the end what was written."""
    async with AsyncExitStack() as stack:
        gpus = []
        for path in kubeconfigs:
            api = await stack.enter_async_context(connect(str(path)))
            gpus.append(SimulatedGPU(path.stem, Kube(api), jobs, kind))
        watching = [asyncio.create_task(gpu.watch()) for gpu in gpus]
        for gpu in gpus:
            await gpu.ready()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(gpu.run(seconds) for gpu in gpus))
        for task in watching:
            task.cancel()
        written = sum(sum(gpu.kube.writes.values()) for gpu in gpus)
        sys.stdout.write(json.dumps({"writes": written}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    folder, given, how, length = sys.argv[1:]
    asyncio.run(main(sorted(Path(folder).glob("*.json")), int(given), how, int(length)))
