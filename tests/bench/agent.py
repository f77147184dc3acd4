"""`make bench-agent`: what the agent costs its node, with 16 Pods with claims on its GPU.

Then it measures how long kubelet waits for a claim to be prepared and unprepared beside them. The
agent's metrics are scraped meanwhile, as by Prometheus.

The agent is a process of its own, on the fake GPU, with an API server and a kubelet. Its time is
that of all its threads and of the commands that it runs; a real driver's calls cost more than the
fake's, so the figure is the agent's own share.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from grpclib.client import Channel, UnaryUnaryMethod

from agent.claims import PREPARE, UNPREPARE, Claim, allocate_claim
from agent.limited import limited_claim, probe
from agent.node import Node
from apiserver.processes import free_port
from bench import harness
from bench.harness import Figure, quantile, resident, usage
from gpu.fake import MIB, FakeGPUs, build
from partita.agent.dra.sockets import DriverSockets
from partita.agent.kubelet import kubelet_pb2 as api
from support.clusters import embedded_server
from support.crds import install_crds

EXAMPLES = """\
  make bench-agent                        some three minutes
  make bench-agent ARGS="--seconds 5"     to try it
"""
CLIENTS = 16
NAMESPACE = "default"
SCRAPE_EVERY = 15.0
"""Seconds."""
CALLS = 200
"""Claims that are prepared and unprepared one after the other."""


async def measure(seconds: float, *, limited: bool) -> list[Figure]:
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
                    server.kubeconfig, port, **settings,
                )  # fmt: skip
                node.start_mps()
                try:
                    return await _measure(node, agent, port, seconds, limited=limited)
                finally:
                    await asyncio.to_thread(gpus.close)
                    await node.close()


async def _measure(
    node: Node, agent: subprocess.Popen[str], port: int, seconds: float, *, limited: bool
) -> list[Figure]:
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
    began, at = usage(agent.pid, children=True).cpu, time.monotonic()
    while (left := at + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(left, SCRAPE_EVERY))
        await _scrape(port)
    used = usage(agent.pid, children=True).cpu - began
    processor = 100 * used / (time.monotonic() - at)
    memory, own = resident(agent.pid), resident(agent.pid, "RssAnon")
    claim = await allocate_claim(node, "another", 1000)
    times: dict[str, list[float]] = {PREPARE: [], UNPREPARE: []}
    for _ in range(CALLS):
        for method, found in times.items():
            found.append(await kubelet.call(method, claim))
    kubelet.close()
    calls = [
        Figure(f"{what}, {name}", 1000 * quantile(times[method], share), "ms", samples=CALLS)
        for what, method in (("prepare", PREPARE), ("unprepare", UNPREPARE))
        for name, share in (("median", 0.5), ("p99", 0.99))
    ]
    return [
        Figure("processor, % of a core", processor, "%", 1),
        Figure("memory, resident", memory, "MB", 60),
        Figure("  of it not backed by files", own, "MB"),
        *calls,
    ]


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


def main() -> None:
    """Measure and print."""
    parser = harness.parser("agent", __doc__, EXAMPLES)
    harness.add_number(parser, "--seconds", 60, "how long to measure, for each kind of limits")
    seconds = parser.parse_args().seconds
    for limited, kind in ((True, "limits of the driver"), (False, "limits of MPS")):
        figures = asyncio.run(measure(seconds, limited=limited))
        harness.show(f"The agent with {CLIENTS} claims and {kind}, over {seconds} s", figures)


if __name__ == "__main__":
    main()
