"""The metrics of the whole agent."""

from __future__ import annotations

from typing import TypeAlias

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families

from agent.claims import allocate
from agent.node import Node
from gpu.fake import MIB
from metrics.example import agent
from partita.agent.metrics import serve_metrics
from support.meanwhile import running
from support.polling import until

Samples: TypeAlias = dict[tuple[str, str], float]


async def scrape(port: int) -> Samples:
    """The values by metric and name of the Pod; the Pod is empty for the GPU's own."""
    url = f"http://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        text = await answer.text()
    return {
        (sample.name, sample.labels.get("workload_pod", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_prometheus_sees_what_each_pod_uses_now(node: Node, port: int):
    await node.create()
    node.start_agent(metrics_port=port)
    node.start_mps()
    await node.is_ready()
    job = await allocate(node, "train", 1000)
    program = job.run("alloc:200", "forever")
    pod = job.pod["metadata"]["name"]

    async def seen() -> Samples | None:
        found = await scrape(port)
        used = found.get(("partita_workload_used_memory_bytes", pod))
        return found if used == 500 * MIB else None  # its context first, then what it allocates

    found = await until(seen)
    assert found["partita_workload_allocated_memory_bytes", pod] == 1000 * MIB
    assert found["partita_workload_peak_memory_bytes", pod] == 500 * MIB
    assert found["partita_workload_gpu_processes", pod] == 1
    assert 0 <= found["partita_workload_gpu_utilization_ratio", pod] <= 1
    assert {name for name, _ in found} == {metric.name for metric in agent().collect()}

    program.kill()

    async def gone() -> Samples | None:
        found = await scrape(port)
        return None if found["partita_workload_gpu_processes", pod] else found

    left = await until(gone)
    assert left["partita_workload_used_memory_bytes", pod] == 0
    assert left["partita_workload_peak_memory_bytes", pod] == 500 * MIB
    assert ("partita_workload_gpu_utilization_ratio", pod) not in left


async def test_a_port_in_use_is_logged_and_stops_nothing_else(port: int):
    taken = aiohttp.web.AppRunner(aiohttp.web.Application())
    await taken.setup()
    with structlog.testing.capture_logs() as logs:
        try:
            await aiohttp.web.TCPSite(taken, port=port).start()
            async with running(serve_metrics(port, agent())):
                await until(lambda: logs)
        finally:
            await taken.cleanup()
    assert logs[0]["event"] == "metrics not served"
