"""`make bench-agent`: what the agent costs its node, with 16 Pods with claims on its GPU.

Then it measures how long kubelet waits for a claim to be prepared and unprepared beside them.

It serves its metrics meanwhile, which are scraped as Prometheus does.

The agent is a process of its own, on the fake GPU, with an API server and a kubelet. Its time is
that of all its threads and of the commands that it runs; a real driver's calls cost more than the
fake's, so the figure is the agent's own share.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import aiohttp
from grpclib.client import Channel, UnaryUnaryMethod

from agent.claims import PREPARE, UNPREPARE, Claim, allocate_claim
from agent.limited import limited_claim, probe
from agent.node import Node
from apiserver.processes import free_port
from gpu.fake import MIB, FakeGPUs, build
from partita.agent.dra.sockets import DriverSockets
from partita.agent.kubelet import kubelet_pb2 as api
from support.clusters import embedded_server
from support.crds import install_crds

CLIENTS = 16
CPU_TARGET = 1.0
"""Percent of a core."""
MEMORY_TARGET = 60.0
"""MB of resident memory."""
NAMESPACE = "default"
SCRAPE_EVERY = 15.0
"""Seconds."""
CALLS = 200
"""Claims that are prepared and unprepared one after the other."""


@dataclass(frozen=True)
class Figures:
    """What one measurement has found."""

    processor: float
    """Percent of a core."""
    memory: dict[str, float]
    """MB by kind."""
    prepare: list[float]
    """Seconds."""
    unprepare: list[float]
    """Seconds."""


def cpu_seconds(pid: int) -> float:
    """Time of a process, its threads and the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> dict[str, float]:
    """Resident memory, all of it and what no file backs, MB."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {key: int(lines[key].split()[0]) * 1024 / 1e6 for key in ("VmRSS", "RssAnon")}


async def measure(seconds: float, *, limited: bool) -> Figures:
    """Measure an agent.

    Parameters
    ----------
    limited
        Whether the driver limits the Pods. Otherwise the agent finds processes above their limit.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as text:
        folder = Path(text)
        os.environ["FAKE_GPU_DIR"] = text
        built = build(folder / "built")
        os.environ["PATH"] = f"{built.folder}{os.pathsep}{os.environ['PATH']}"
        os.environ["LD_LIBRARY_PATH"] = str(built.folder)  # of the canary client
        gpus = FakeGPUs(built, folder)
        with embedded_server(folder) as server:
            async with server.session() as session:
                cluster = server.api(session)
                await install_crds(cluster)
                gpus.install_driver(*(["615.71.09"] if limited else []))
                gpus.add(0, context=300 * MIB)
                if limited:
                    gpus.mount_cgroups()
                gpus.start_driver()
                node = Node(cluster, server, NAMESPACE, gpus)
                await node.create(maxJobs=CLIENTS + 1)
                # As in the image, where all of it is compiled: to compile takes memory, too, which is
                # never given back.
                settings = {
                    "PYTHONDONTWRITEBYTECODE": "",
                    "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
                    "PYTHONPATH": str(Path(__file__).parents[1]),
                }
                compiling = [sys.executable, "-c", "import bench.agent_process as a; a.load()"]
                await asyncio.to_thread(
                    subprocess.run, compiling, env=os.environ | settings, check=True
                )
                port = free_port()
                agent = gpus.start(
                    sys.executable, "-m", "bench.agent_process", folder, node.name, NAMESPACE,
                    CLIENTS + 1, server.kubeconfig, port, **settings,
                )  # fmt: skip
                node.start_mps()
                try:
                    return await _measure(node, agent, port, seconds, limited=limited)
                finally:
                    await asyncio.to_thread(gpus.close)
                    await node.close()


async def _measure(
    node: Node, agent: subprocess.Popen[str], port: int, seconds: float, *, limited: bool
) -> Figures:
    if limited:
        await probe(node)
    await node.is_ready()
    kubelet = Kubelet(node)
    for n in range(CLIENTS):
        claim = await allocate_claim(node, f"serve-{n}", 1000)
        await kubelet.call(PREPARE, claim)
        steps = (f"alloc:{100 + n}", "forever")
        (await limited_claim(claim) if limited else claim).run(*steps)
    await node.until(lambda b: len((b["status"].get("usage") or {}).get("jobs") or {}) == CLIENTS)
    await asyncio.sleep(5)
    began, at = cpu_seconds(agent.pid), time.monotonic()
    while (left := at + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(left, SCRAPE_EVERY))
        await _scrape(port)
    used, took = cpu_seconds(agent.pid) - began, time.monotonic() - at
    claim = await allocate_claim(node, "another", 1000)
    times: dict[str, list[float]] = {PREPARE: [], UNPREPARE: []}
    for _ in range(CALLS):
        for method, found in times.items():
            found.append(await kubelet.call(method, claim))
    kubelet.close()
    return Figures(100 * used / took, memory(agent.pid), times[PREPARE], times[UNPREPARE])


async def _scrape(port: int) -> None:
    url = f"http://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        answer.raise_for_status()
        await answer.read()


class Kubelet:
    """Calls the agent over one connection, without threads, beside which no process may fork."""

    def __init__(self, node: Node) -> None:
        socket = DriverSockets(node.kubelet.folder).service(node.name)
        self._channel = Channel(path=str(socket))

    async def call(self, method: str, claim: Claim) -> float:
        """Ask for one claim; return the seconds that the agent took."""
        asked = api.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)
        answer = api.PrepareResponse if method == PREPARE else api.UnprepareResponse
        call = UnaryUnaryMethod(self._channel, method, api.ClaimsRequest, answer)
        began = time.monotonic()
        done = (await call(api.ClaimsRequest(claims=[asked]))).claims[claim.uid]
        if done.error:
            raise RuntimeError(done.error)
        return time.monotonic() - began

    def close(self) -> None:
        self._channel.close()


def percentiles(seconds: list[float]) -> str:
    """Return the median and the 99th percentile in milliseconds."""
    found = quantiles(seconds, n=100)
    return f"p50 {1000 * found[49]:.1f} ms, p99 {1000 * found[98]:.1f} ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure")
    arguments = parser.parse_args()
    for limited, kind in ((True, "limits of the driver"), (False, "limits of MPS")):
        figures = asyncio.run(measure(arguments.seconds, limited=limited))
        resident = figures.memory
        sys.stdout.write(
            f"The agent with {CLIENTS} claims and {kind}, over {arguments.seconds:g} s:\n"
            f"  processor  {figures.processor:6.2f} % of a core   (target {CPU_TARGET:g} %)\n"
            f"  memory     {resident['VmRSS']:6.1f} MB resident  (target {MEMORY_TARGET:g} MB), of "
            f"which {resident['RssAnon']:.1f} MB are its own\n"
            f"  prepare    {percentiles(figures.prepare)}\n"
            f"  unprepare  {percentiles(figures.unprepare)}\n"
        )


if __name__ == "__main__":
    main()
