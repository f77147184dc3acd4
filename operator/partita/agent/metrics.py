"""The metrics that the agent exports: what its GPU and each workload on it use now.

The status of the GPUServer has the same numbers, but is written seldom (`report_pace`).
"""

import asyncio
from collections.abc import Iterator
from typing import NoReturn

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.registry import Collector
from typing_extensions import override

from partita.agent.running_jobs import RunningJobs
from partita.metric import gauge

__all__ = ["AgentMetrics", "serve_metrics"]

_GPU = ("partition", "gpu")
_WORKLOAD = (*_GPU, "workload_namespace", "workload_pod")


class AgentMetrics(Collector):
    """The metrics of the agent of a GPUServer, read on each scrape.

    Parameters
    ----------
    server
        The GPUServer.
    jobs
        The jobs on its GPU.
    """

    def __init__(self, server: str, jobs: RunningJobs) -> None:
        self._server = server
        self._jobs = jobs

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield every metric; none before the GPU was first sampled."""
        jobs = self._jobs
        if jobs.sample is None:
            return
        gpu = jobs.ledger.server.spec.partition, self._server
        yield gauge(
            "partita_agent_gpu_used_memory_bytes",
            "Memory of the GPU in use.",
            _GPU,
            {gpu: jobs.sample.used},
        )
        yield gauge(
            "partita_agent_gpu_utilization_ratio",
            "GPU utilization from 0 to 1.",
            _GPU,
            {gpu: (jobs.utilization.value or 0) / 100},
        )
        ledger = jobs.ledger.allocations
        pods = {key: (*gpu, entry.namespace, entry.pod) for key, entry in ledger.items()}
        yield gauge(
            "partita_workload_allocated_memory_bytes",
            "GPU memory that is allocated to the Pod.",
            _WORKLOAD,
            {pods[key]: entry.memory for key, entry in ledger.items()},
        )
        yield gauge(
            "partita_workload_gpu_processes",
            "Processes of the Pod on the GPU.",
            _WORKLOAD,
            {pod: jobs.processes_of[key] for key, pod in pods.items()},
        )
        usage = jobs.usage()
        uses = {pods[key]: usage[e.uid] for key, e in ledger.items() if e.uid in usage}
        yield gauge(
            "partita_workload_used_memory_bytes",
            "GPU memory that the Pod uses.",
            _WORKLOAD,
            {pod: use.memory for pod, use in uses.items()},
        )
        yield gauge(
            "partita_workload_peak_memory_bytes",
            "Most GPU memory that the Pod has used since the agent started.",
            _WORKLOAD,
            {pod: use.peak for pod, use in uses.items()},
        )
        yield gauge(
            "partita_workload_gpu_utilization_ratio",
            "GPU utilization of the Pod from 0 to 1. Absent if it has no process on the GPU.",
            _WORKLOAD,
            {p: u.utilization / 100 for p, u in uses.items() if u.utilization is not None},
        )


async def serve_metrics(port: int, metrics: Collector) -> NoReturn:
    """Serve /metrics until cancelled.

    If the port cannot be opened, this is logged: the agent works without its metrics.

    Parameters
    ----------
    port
        TCP port on all interfaces.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    app = web.Application()
    app.router.add_get("/metrics", make_aiohttp_handler(registry, disable_compression=True))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=port).start()
        except OSError as error:
            structlog.get_logger(__name__).error("metrics not served", error=str(error))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
    raise AssertionError  # it waits forever
