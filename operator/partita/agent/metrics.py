"""The metrics that the agent exports: what its GPU and each workload on it use now.

The status of the GPUServer has the same numbers, but is written seldom (`report_pace`).
prometheus_client would take about as many lines, and memory on each node with a GPU.
"""

from collections.abc import Iterator

from partita.agent.usage.running_jobs import RunningJobs
from partita.metric import Metric, Section

__all__ = ["SECTION", "AgentMetrics"]

_GPU = ("partition", "gpu")
_WORKLOAD = (*_GPU, "workload_namespace", "workload_pod")
USED = Metric("partita_agent_gpu_used_memory_bytes", "gauge", "Memory of the GPU in use.", _GPU)
UTILIZATION = Metric(
    "partita_agent_gpu_utilization_ratio", "gauge", "GPU utilization from 0 to 1.", _GPU
)
WORKLOAD_ALLOCATED = Metric(
    "partita_workload_allocated_memory_bytes",
    "gauge",
    "GPU memory that is allocated to the Pod.",
    _WORKLOAD,
)
WORKLOAD_USED = Metric(
    "partita_workload_used_memory_bytes", "gauge", "GPU memory that the Pod uses.", _WORKLOAD
)
WORKLOAD_PEAK = Metric(
    "partita_workload_peak_memory_bytes",
    "gauge",
    "Most GPU memory that the Pod has used since the agent started.",
    _WORKLOAD,
)
WORKLOAD_UTILIZATION = Metric(
    "partita_workload_gpu_utilization_ratio",
    "gauge",
    "GPU utilization of the Pod from 0 to 1. Absent if it has no process on the GPU.",
    _WORKLOAD,
)
WORKLOAD_PROCESSES = Metric(
    "partita_workload_gpu_processes", "gauge", "Processes of the Pod on the GPU.", _WORKLOAD
)

SECTION = Section(
    "Agents",
    "Each agent exports these on port 8080 of its server Pod, in the namespace `partita-servers`. "
    "They are current at each scrape; utilization is a mean in which the last minute counts 86 %. "
    "The labels `workload_namespace` and `workload_pod` name the Pod of a job or of a claim: at "
    "most `maxJobsPerGPU` on a GPU at a time.",
    (
        USED,
        UTILIZATION,
        WORKLOAD_ALLOCATED,
        WORKLOAD_USED,
        WORKLOAD_PEAK,
        WORKLOAD_UTILIZATION,
        WORKLOAD_PROCESSES,
    ),
)

_Sample = tuple[Metric, tuple[str, ...], float]


class AgentMetrics:
    """The page that Prometheus scrapes.

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

    def render(self) -> str:
        """Return the page in the Prometheus text format, version 0.0.4.

        Names of Kubernetes objects, which all labels are, have no characters to escape
        (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format).
        """
        samples = list(self._samples())
        lines = []
        for metric in SECTION.metrics:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            for labels, value in ((labels, value) for m, labels, value in samples if m is metric):
                pairs = zip(metric.labels, labels, strict=True)
                named = ",".join(f'{name}="{text}"' for name, text in pairs)
                lines.append(f"{metric.name}{{{named}}} {value}")
        return "".join(f"{line}\n" for line in lines)

    def _samples(self) -> Iterator[_Sample]:
        jobs, server = self._jobs, self._jobs.ledger.server
        if server is None or jobs.sample is None:
            return
        gpu = server.spec.partition, self._server
        yield USED, gpu, jobs.sample.used
        yield UTILIZATION, gpu, (jobs.utilization.value or 0) / 100
        uses = jobs.usage()
        for key, entry in jobs.ledger.allocations.items():
            pod = (*gpu, entry.namespace, entry.pod)
            yield WORKLOAD_ALLOCATED, pod, entry.guaranteed
            yield WORKLOAD_PROCESSES, pod, jobs.processes_of[key]
            use = uses.get(entry.uid)
            if use is None:
                continue
            yield WORKLOAD_USED, pod, use.memory
            yield WORKLOAD_PEAK, pod, use.peak
            if use.utilization is not None:
                yield WORKLOAD_UTILIZATION, pod, use.utilization / 100
