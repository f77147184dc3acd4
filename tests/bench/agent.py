"""`make bench-agent`: what the agent costs its node, with 16 clients on its GPU.

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
from pathlib import Path

from agent.limited import limited_job, probe
from agent.node import Node
from gpu.fake import MIB, FakeGPUs, build
from support.clusters import embedded_server
from support.crds import install_crds

CLIENTS = 16
CPU_TARGET = 1.0
"""Percent of a core."""
MEMORY_TARGET = 60.0
"""MB of resident memory."""
NAMESPACE = "default"


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


async def measure(seconds: float, *, limited: bool) -> tuple[float, dict[str, float]]:
    """Return percent of a core and memory.

    Parameters
    ----------
    limited
        Whether the driver limits the jobs. Otherwise the agent finds processes above their limit.
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
                api = server.api(session)
                await install_crds(api)
                gpus.install_driver(*(["615.71.09"] if limited else []))
                gpus.add(0, context=300 * MIB)
                if limited:
                    gpus.mount_cgroups()
                gpus.start_driver()
                node = Node(api, server, NAMESPACE, gpus)
                await node.create()
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
                agent = gpus.start(
                    sys.executable, "-m", "bench.agent_process", folder, node.name, NAMESPACE,
                    CLIENTS, server.kubeconfig, **settings,
                )  # fmt: skip
                node.start_mps()
                try:
                    return await _measure(node, agent, seconds, limited=limited)
                finally:
                    await asyncio.to_thread(gpus.close)
                    await node.close()


async def _measure(
    node: Node, agent: subprocess.Popen[str], seconds: float, *, limited: bool
) -> tuple[float, dict[str, float]]:
    if limited:
        await probe(node)
    await node.is_ready()
    for n in range(CLIENTS):
        steps = (f"alloc:{100 + n}", "forever")
        if limited:
            (await limited_job(node, f"job-{n}", 1000)).run(*steps)
        else:
            (await node.allocate(f"job-{n}", 1000)).run(*steps)
    await node.until(lambda b: len((b["status"].get("usage") or {}).get("jobs") or {}) == CLIENTS)
    await asyncio.sleep(5)
    began, at = cpu_seconds(agent.pid), time.monotonic()
    await asyncio.sleep(seconds)
    used, took = cpu_seconds(agent.pid) - began, time.monotonic() - at
    return 100 * used / took, memory(agent.pid)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure")
    arguments = parser.parse_args()
    for limited, kind in ((True, "limits of the driver"), (False, "limits of MPS")):
        cpu, resident = asyncio.run(measure(arguments.seconds, limited=limited))
        sys.stdout.write(
            f"The agent with {CLIENTS} clients and {kind}, over {arguments.seconds:g} s:\n"
            f"  processor  {cpu:6.2f} % of a core   (target {CPU_TARGET:g} %)\n"
            f"  memory     {resident['VmRSS']:6.1f} MB resident  (target {MEMORY_TARGET:g} MB), of "
            f"which {resident['RssAnon']:.1f} MB are its own\n"
        )


if __name__ == "__main__":
    main()
