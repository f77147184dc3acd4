"""A whole cluster of subprocesses for a benchmark, and a watch that notes when things happen."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

__all__ = ["Cluster", "Process", "cluster", "resident_mebibytes", "until"]

Json = dict[str, Any]
GROUP = "/apis/partita.dev/v1alpha1"
START_TIMEOUT = 60.0
"""Seconds within which each part of the cluster must be up."""


@dataclass
class Process:
    """A part of the cluster, run as `python -m partita ...`."""

    task: asyncio.subprocess.Process
    log: Path
    started: float

    async def wait_for(self, text: str, within: float = START_TIMEOUT) -> float:
        """Wait until its log has a text; return the seconds since its start."""
        deadline = time.perf_counter() + within
        while text not in self.log.read_text():
            if self.task.returncode is not None or time.perf_counter() > deadline:
                raise RuntimeError(f"{text!r} did not come:\n{self.log.read_text()[-2000:]}")
            await asyncio.sleep(0.005)
        return time.perf_counter() - self.started

    async def stop(self) -> None:
        """End it, and wait for that."""
        if self.task.returncode is None:
            self.task.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.task.wait(), 15)
            except TimeoutError:
                self.task.kill()
                await self.task.wait()


@dataclass
class Cluster:
    """The embedded API server, simulated nodes and, once started, the operator."""

    url: str
    kubeconfig: Path
    folder: Path
    http: aiohttp.ClientSession
    processes: list[Process] = field(default_factory=list)

    async def spawn(self, *arguments: str, module: str = "partita") -> Process:
        """Start a part of it."""
        log = self.folder / f"{arguments[0]}-{len(self.processes)}.log"
        with log.open("wb") as out:
            started = time.perf_counter()
            task = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdout=out,
                stderr=out,
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            )
        process = Process(task, log, started)
        self.processes.append(process)
        return process

    async def start_operator(self) -> tuple[Process, float]:
        """Start the operator; return it and the seconds until it was ready."""
        process = await self.spawn("run", "--kubeconfig", str(self.kubeconfig), "--identity", "b")
        return process, await process.wait_for('"ready"')

    async def post(self, path: str, body: Json) -> float:
        """Create an object; return when the answer came."""
        async with self.http.post(self.url + path, json=body) as response:
            if response.status >= 300:
                raise RuntimeError(await response.text())
            await response.read()
            return time.perf_counter()

    async def patch(self, path: str, body: Json) -> None:
        """Merge a patch into an object."""
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self.http.patch(self.url + path, json=body, headers=headers) as response:
            response.raise_for_status()

    async def get(self, path: str) -> Json:
        """Read an object or a list."""
        async with self.http.get(self.url + path) as response:
            response.raise_for_status()
            result: Json = await response.json()
            return result

    async def watch(self, path: str, see: Callable[[str, Json, float], None]) -> None:
        """Tell of every event, with the moment in which it came."""
        timeout = aiohttp.ClientTimeout(total=None)
        version = (await self.get(f"{path}?limit=1"))["metadata"]["resourceVersion"]
        query = f"?watch=true&resourceVersion={version}"
        async with self.http.get(self.url + path + query, timeout=timeout) as response:
            async for line in response.content:
                event = json.loads(line)
                see(event["type"], event["object"], time.perf_counter())


@contextlib.asynccontextmanager
async def cluster(
    *, gpus: int, gpu_memory: str, speed: float, nodes: int = 1
) -> AsyncIterator[Cluster]:
    """Run an embedded API server and simulated nodes, of so many GPUs each, for a block."""
    with tempfile.TemporaryDirectory(prefix="partita-bench-") as name:
        folder = Path(name)
        kubeconfig = folder / "kubeconfig"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 22) as http:
            made = Cluster("", kubeconfig, folder, http)
            try:
                await made.spawn("apiserver", "--kubeconfig-out", str(kubeconfig))
                await until(kubeconfig.is_file, "the API server")
                made.url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"][
                    "server"
                ]
                meta = {"name": "partita-system"}
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
                await made.post("/api/v1/namespaces", namespace)
                kubelets = await made.spawn(
                    *("nodes", "--kubeconfig", str(kubeconfig), "--nodes", str(nodes)),
                    *("--gpus", str(gpus), "--gpu-memory", gpu_memory, "--speed", str(speed)),
                )
                await kubelets.wait_for("until Ctrl-C")
                yield made
            finally:
                for process in reversed(made.processes):
                    await process.stop()


def resident_mebibytes(pid: int) -> float:
    """Resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} is gone")


async def until(true: Callable[[], bool], what: str, within: float = START_TIMEOUT) -> None:
    """Wait until this holds; raise with what did not come about."""
    deadline = time.perf_counter() + within
    while not true():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{what} did not come within {within:g} s")
        await asyncio.sleep(0.01)
