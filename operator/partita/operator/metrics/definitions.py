"""Every figure that the operator exports: its name, what it means, by what it is told apart.

Names follow https://prometheus.io/docs/practices/naming/: base units, the unit in the name,
`_total` for what is counted. Label sets are bounded: partitions, GPUs and the words of our own
enumerations; never a job, a Pod or a namespace. `docs/metrics.md` is generated from this module.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["SECTIONS", "Metric", "Section"]

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One figure."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram; that of everything is added."""


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_SOON = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, _MINUTE)
_LONG = (5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY)

LEADER = Metric(
    "partita_leader", "gauge", "1 where this process leads and decides, 0 where it waits to."
)
BUILD = Metric("partita_build_info", "gauge", "1; the label says which version runs.", ("version",))
API_WRITES = Metric(
    "partita_api_writes_total",
    "counter",
    "Writes to the Kubernetes API, without renewals of the Lease.",
    ("verb", "resource", "subresource"),
)
UNREADABLE = Metric(
    "partita_unreadable_objects",
    "gauge",
    "Objects that cannot be read, by the first field that is wrong. What was last read of them "
    "stays in force.",
    ("resource", "field"),
)
UNRECORDED = Metric(
    "partita_unrecorded_decisions_total",
    "counter",
    "Decisions that `--record` could not keep up with, or not write.",
)

JOBS = Metric("partita_jobs", "gauge", "Jobs there are, by phase.", ("partition", "phase"))
QUEUE = Metric(
    "partita_queue_jobs",
    "gauge",
    "Jobs that wait for a GPU, by the reason in their status; the sum is the queue's length.",
    ("partition", "reason"),
)
OLDEST = Metric(
    "partita_queue_oldest_timestamp_seconds",
    "gauge",
    "Since when the job waits that has waited longest, of those that time can help. "
    "Absent where none waits.",
    ("partition",),
)
HOMELESS = Metric("partita_jobs_without_partition", "gauge", "Jobs whose partition does not exist.")
FINISHED = Metric(
    "partita_jobs_finished_total",
    "counter",
    "Jobs that came to their end: Succeeded or Failed.",
    ("partition", "result"),
)

ATTEMPTS = Metric(
    "partita_attempts_total", "counter", "Attempts that ended, by how.", ("partition", "outcome")
)
RESIZES = Metric(
    "partita_out_of_memory_resizes_total",
    "counter",
    "Attempts allocated larger because the one before ran out of GPU memory.",
    ("partition",),
)
QUEUED_TIME = Metric(
    "partita_attempt_queue_seconds",
    "histogram",
    "From when an attempt was to start until its GPU memory was allocated.",
    ("partition",),
    _SOON + _LONG,
)
START_TIME = Metric(
    "partita_attempt_pod_start_seconds",
    "histogram",
    "From the allocation until the program's container ran.",
    ("partition",),
    (*_SOON, 5 * _MINUTE, 15 * _MINUTE),
)
FIRST_USE_TIME = Metric(
    "partita_attempt_first_use_seconds",
    "histogram",
    "From the container's start until the program used the GPU; only where an agent saw it.",
    ("partition",),
    (1.0, 2.5, 5.0, 10.0, 30.0, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR),
)
RUN_TIME = Metric(
    "partita_attempt_run_seconds",
    "histogram",
    "From the container's start to its end.",
    ("partition",),
    (1.0, 10.0, _MINUTE, *_LONG, 7 * _DAY),
)

DECISION_TIME = Metric(
    "partita_policy_decision_seconds",
    "histogram",
    "How long the policy thought that decided; more than 2 s it is not given.",
    ("partition", "policy"),
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
)
DECISIONS = Metric(
    "partita_policy_decisions_total",
    "counter",
    "Decisions that the policy in charge was asked for.",
    ("partition", "policy"),
)
FALLBACKS = Metric(
    "partita_policy_fallbacks_total",
    "counter",
    "Decisions of these that the fallback made.",
    ("partition", "policy"),
)
REJECTIONS = Metric(
    "partita_guard_rejections_total",
    "counter",
    "Placements of the policy in charge that broke a rule.",
    ("partition", "policy"),
)
HEALTHY = Metric(
    "partita_policy_healthy",
    "gauge",
    "1 where the policy in charge decided last, and all policies of the partition can be had.",
    ("partition", "policy"),
)
SHADOW_DECISIONS = Metric(
    "partita_shadow_decisions_total",
    "counter",
    "Decisions that a shadow policy was asked for.",
    ("partition", "policy"),
)
SHADOW_AGREEMENTS = Metric(
    "partita_shadow_agreements_total",
    "counter",
    "Decisions of these in which it placed what was placed.",
    ("partition", "policy"),
)
SHADOW_FAILURES = Metric(
    "partita_shadow_failures_total",
    "counter",
    "Decisions of these in which it failed or overran its time.",
    ("partition", "policy"),
)

WANTED = Metric(
    "partita_partition_wanted_gpus", "gauge", "GPUs that the partition asks for.", ("partition",)
)
_GPU = ("partition", "gpu")
GPU_INFO = Metric(
    "partita_gpu_info",
    "gauge",
    "1; the labels say where the GPU is and what it is.",
    (*_GPU, "node", "product", "uuid", "mode"),
)
GPU_STATE = Metric(
    "partita_gpu_state",
    "gauge",
    "1 for the state that the GPU is in, 0 for the others. It takes jobs in Ready.",
    (*_GPU, "state"),
)
GPU_MEMORY = Metric("partita_gpu_memory_bytes", "gauge", "The GPU's memory.", _GPU)
GPU_ALLOCATABLE = Metric(
    "partita_gpu_allocatable_memory_bytes", "gauge", "Memory of it that may be allocated.", _GPU
)
GPU_ALLOCATED = Metric(
    "partita_gpu_allocated_memory_bytes", "gauge", "Memory that is allocated.", _GPU
)
GPU_USED = Metric(
    "partita_gpu_used_memory_bytes",
    "gauge",
    "Memory in use, as the agent measured it. Absent before its first report.",
    _GPU,
)
GPU_UTILIZATION = Metric(
    "partita_gpu_utilization_ratio",
    "gauge",
    "GPU utilisation, 0 to 1, as the agent measured it. Absent before its first report.",
    _GPU,
)
GPU_JOBS = Metric(
    "partita_gpu_allocated_jobs", "gauge", "Jobs that are allocated on the GPU.", _GPU
)
GPU_UNKNOWN = Metric(
    "partita_gpu_unknown_processes",
    "gauge",
    "Processes that use the GPU without an allocation, as the agent counted them. Absent before "
    "its first report.",
    _GPU,
)
MPS_STATE = Metric(
    "partita_mps_state",
    "gauge",
    "1 for what the GPU's MPS daemon answers, 0 for the others. Absent without MPS.",
    (*_GPU, "state"),
)
MPS_CLIENTS = Metric(
    "partita_mps_clients", "gauge", "Client processes connected to MPS. Absent without MPS.", _GPU
)

SECTIONS = (
    Section(
        "The process",
        "Beside these, each replica tells of its own process (`process_cpu_seconds_total`, "
        "`process_resident_memory_bytes`, `process_open_fds` and so on).",
        (LEADER, BUILD, API_WRITES, UNREADABLE, UNRECORDED),
    ),
    Section(
        "Jobs and the queue",
        "A job that is resumed counts as waiting since it was submitted, or since its last "
        "attempt ended.",
        (JOBS, QUEUE, OLDEST, HOMELESS, FINISHED),
    ),
    Section(
        "Attempts",
        "What an attempt costs beside its work, by step: queued, allocated, container running, "
        "first use of the GPU. Each step is counted once it is written into the job's status; the "
        "first use, which an agent tells to the second, is written with the attempt's end.",
        (ATTEMPTS, RESIZES, QUEUED_TIME, START_TIME, FIRST_USE_TIME, RUN_TIME),
    ),
    Section(
        "Policies",
        "`policy` is the one in charge, or the shadow; for the time of a decision it is the one "
        "that decided. Counts begin anew when `spec.policy` changes.",
        (
            DECISION_TIME,
            DECISIONS,
            FALLBACKS,
            REJECTIONS,
            HEALTHY,
            SHADOW_DECISIONS,
            SHADOW_AGREEMENTS,
            SHADOW_FAILURES,
        ),
    ),
    Section(
        "GPUs",
        "`gpu` is the name of the GPUServer. What a GPU is used for comes from its agent's "
        "reports in the GPUServer's status; agents serve no page of their own.",
        (
            WANTED,
            GPU_INFO,
            GPU_STATE,
            GPU_MEMORY,
            GPU_ALLOCATABLE,
            GPU_ALLOCATED,
            GPU_USED,
            GPU_UTILIZATION,
            GPU_JOBS,
            GPU_UNKNOWN,
            MPS_STATE,
            MPS_CLIENTS,
        ),
    ),
)
"""All of them, in the order of their page."""
