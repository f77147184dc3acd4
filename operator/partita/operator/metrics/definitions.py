"""Every metric that the operator exports: its name, its meaning and its labels.

Names follow https://prometheus.io/docs/practices/naming/: base units, the unit in the name,
`_total` for counters. Label sets are bounded: partitions, GPUs and the values of Partita's
enumerations, but no job or Pod, and namespaces only with `--namespace-metrics`. This module is the
source of `docs/metrics.md`.
"""

from partita.metric import DAY, HOUR, LONG, MINUTE, SOON, Metric, Section
from partita.operator.metrics.claim_definitions import SECTION as CLAIMS

__all__ = ["SECTIONS", "Metric", "Section"]

LEADER = Metric(
    "partita_leader", "gauge", "1 if this process is the leader, 0 if it waits for the Lease."
)
BUILD = Metric(
    "partita_build_info", "gauge", "Always 1; the label is the version that runs.", ("version",)
)
API_WRITES = Metric(
    "partita_api_writes_total",
    "counter",
    "Writes to the Kubernetes API, except renewals of the Lease.",
    ("verb", "resource", "subresource"),
)
UNREADABLE = Metric(
    "partita_unreadable_objects",
    "gauge",
    "Objects that cannot be read, by the first invalid field. The operator continues with what it "
    "last read of them.",
    ("resource", "field"),
)
UNRECORDED = Metric(
    "partita_unrecorded_decisions_total",
    "counter",
    "Decisions that `--record` dropped because it was too slow or could not write.",
)

JOBS = Metric("partita_jobs", "gauge", "Jobs, by phase.", ("partition", "phase"))
QUEUE = Metric(
    "partita_queue_jobs",
    "gauge",
    "Jobs and claims that wait for a GPU, by the reason in their status. The sum is the length of "
    "the queue.",
    ("partition", "reason"),
)
OLDEST = Metric(
    "partita_queue_oldest_timestamp_seconds",
    "gauge",
    "Time since when the oldest job or claim waits, without those that can never start as they "
    "are. Absent if none waits.",
    ("partition",),
)
WITHOUT_PARTITION = Metric(
    "partita_jobs_without_partition", "gauge", "Jobs whose partition does not exist."
)
FINISHED = Metric(
    "partita_jobs_finished_total",
    "counter",
    "Jobs that finished, by result: Succeeded or Failed.",
    ("partition", "result"),
)

ATTEMPTS = Metric(
    "partita_attempts_total",
    "counter",
    "Attempts that ended, by outcome.",
    ("partition", "outcome"),
)
RESIZES = Metric(
    "partita_out_of_memory_resizes_total",
    "counter",
    "Attempts with a larger allocation because the previous one ran out of GPU memory.",
    ("partition",),
)
QUEUED_TIME = Metric(
    "partita_attempt_queue_seconds",
    "histogram",
    "Time from when an attempt was queued until its GPU memory was allocated.",
    ("partition",),
    SOON + LONG,
)
START_TIME = Metric(
    "partita_attempt_pod_start_seconds",
    "histogram",
    "Time from the allocation until the container ran.",
    ("partition",),
    (*SOON, 5 * MINUTE, 15 * MINUTE),
)
FIRST_USE_TIME = Metric(
    "partita_attempt_first_use_seconds",
    "histogram",
    "Time from the start of the container until the program used the GPU, if an agent observed it.",
    ("partition",),
    (1.0, 2.5, 5.0, 10.0, 30.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR),
)
RUN_TIME = Metric(
    "partita_attempt_run_seconds",
    "histogram",
    "Time from the start of the container to its end.",
    ("partition",),
    (1.0, 10.0, MINUTE, *LONG, 7 * DAY),
)

DECISION_TIME = Metric(
    "partita_policy_decision_seconds",
    "histogram",
    "Decision latency of the policy that decided. The time limit is 2 s.",
    ("partition", "policy"),
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
)
DECISIONS = Metric(
    "partita_policy_decisions_total",
    "counter",
    "Decisions that the active policy was asked for.",
    ("partition", "policy"),
)
FALLBACKS = Metric(
    "partita_policy_fallbacks_total",
    "counter",
    "Decisions that the fallback made instead of the active policy.",
    ("partition", "policy"),
)
REJECTIONS = Metric(
    "partita_guard_rejections_total",
    "counter",
    "Placements of the active policy that the guard rejected.",
    ("partition", "policy"),
)
HEALTHY = Metric(
    "partita_policy_healthy",
    "gauge",
    "1 if the active policy made the last decision and all policies of the partition could be "
    "loaded, otherwise 0.",
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
    "Decisions in which the shadow policy agreed with the active policy.",
    ("partition", "policy"),
)
SHADOW_FAILURES = Metric(
    "partita_shadow_failures_total",
    "counter",
    "Decisions in which the shadow policy failed or exceeded the time limit.",
    ("partition", "policy"),
)

WANTED = Metric(
    "partita_partition_wanted_gpus",
    "gauge",
    "GPUs that the partition requests (`spec.gpus`).",
    ("partition",),
)
_GPU = ("partition", "gpu")
GPU_INFO = Metric(
    "partita_gpu_info",
    "gauge",
    "Always 1; the labels describe the GPU and its place.",
    (*_GPU, "node", "product", "uuid", "mode"),
)
GPU_STATE = Metric(
    "partita_gpu_state",
    "gauge",
    "1 for the current state of the GPU, 0 for the others. A GPU in Ready accepts jobs.",
    (*_GPU, "state"),
)
GPU_ENFORCEMENT = Metric(
    "partita_gpu_enforcement",
    "gauge",
    "1 for what limits the GPU memory of jobs (Driver or Client), 0 for the other. Absent until it "
    "is known, and without MPS.",
    (*_GPU, "enforcement"),
)
GPU_WRONG_LIMITS = Metric(
    "partita_gpu_wrong_memory_limits",
    "gauge",
    "Jobs whose limit in the driver is not the expected one, as the agent read it back. Absent "
    "before its first report.",
    _GPU,
)
GPU_MEMORY = Metric("partita_gpu_memory_bytes", "gauge", "Memory of the GPU.", _GPU)
GPU_ALLOCATABLE = Metric(
    "partita_gpu_allocatable_memory_bytes", "gauge", "Memory that can be allocated to jobs.", _GPU
)
GPU_ALLOCATED = Metric(
    "partita_gpu_allocated_memory_bytes", "gauge", "Memory that is allocated to jobs.", _GPU
)
GPU_USED = Metric(
    "partita_gpu_used_memory_bytes",
    "gauge",
    "Memory in use, measured by the agent. Absent before its first report.",
    _GPU,
)
GPU_UTILIZATION = Metric(
    "partita_gpu_utilization_ratio",
    "gauge",
    "GPU utilization from 0 to 1, measured by the agent. Absent before its first report.",
    _GPU,
)
GPU_JOBS = Metric(
    "partita_gpu_allocated_jobs",
    "gauge",
    "Jobs and claims with an allocation on the GPU.",
    _GPU,
)
GPU_IDLE = Metric(
    "partita_gpu_idle_claims",
    "gauge",
    "Claims on the GPU none of whose kernels has run for a minute or more, as the agent reports. "
    "Absent before its first report.",
    _GPU,
)
GPU_UNKNOWN = Metric(
    "partita_gpu_unknown_processes",
    "gauge",
    "Processes that use the GPU without an allocation, counted by the agent. Absent before its "
    "first report.",
    _GPU,
)
MPS_STATE = Metric(
    "partita_mps_state",
    "gauge",
    "1 for the state that the MPS daemon of the GPU reports, 0 for the others. Absent without MPS.",
    (*_GPU, "state"),
)
MPS_CLIENTS = Metric(
    "partita_mps_clients",
    "gauge",
    "Processes of jobs that are connected to MPS. Absent without MPS.",
    _GPU,
)
MPS_WEDGES = Metric(
    "partita_mps_wedges_total",
    "counter",
    "How often the agent found MPS wedged: new programs hung, although MPS answered.",
    _GPU,
)
MPS_RESTARTS = Metric(
    "partita_mps_restarts_total",
    "counter",
    "Restarts of MPS that the agent requested, by reason.",
    (*_GPU, "reason"),
)
CANARIES = Metric(
    "partita_mps_canaries_total",
    "counter",
    "Canary clients with which the agent checked whether MPS accepts clients, by result: Passed or "
    "Failed.",
    (*_GPU, "result"),
)
CANARY_TIME = Metric(
    "partita_mps_canary_seconds",
    "gauge",
    "Duration of the last canary client. Absent before the first one has ended.",
    _GPU,
)

_OWNER = ("partition", "workload_namespace")
GPU_SECONDS_ALLOCATED = Metric(
    "partita_allocated_gpu_seconds_total",
    "counter",
    "Allocated share of a GPU times seconds. The share is that of the allocatable memory, or 1 for "
    "a GPU that is allocated to one job alone.",
    _OWNER,
)
GPU_SECONDS_USED = Metric(
    "partita_used_gpu_seconds_total",
    "counter",
    "GPU utilization (1 is 100 %) of jobs and workloads times seconds, as measured by the agent.",
    _OWNER,
)
MEMORY_SECONDS_ALLOCATED = Metric(
    "partita_allocated_memory_byte_seconds_total",
    "counter",
    "Allocated GPU memory times seconds.",
    _OWNER,
)
MEMORY_SECONDS_USED = Metric(
    "partita_used_memory_byte_seconds_total",
    "counter",
    "GPU memory in use by jobs and workloads times seconds, as measured by the agent.",
    _OWNER,
)

SECTIONS = (
    Section(
        "The process",
        "Each replica also exports metrics of its own process (`process_cpu_seconds_total`, "
        "`process_resident_memory_bytes`, `process_open_fds` and so on).",
        (LEADER, BUILD, API_WRITES, UNREADABLE, UNRECORDED),
    ),
    Section(
        "Jobs and the queue",
        "A resumed job counts as waiting since it was submitted, or since its last attempt ended.",
        (JOBS, QUEUE, OLDEST, WITHOUT_PARTITION, FINISHED),
    ),
    Section(
        "Attempts",
        "The overhead of an attempt, by step: queued, allocated, container running, first use of "
        "the GPU. A step is counted when it is written to the job's status. The first use is "
        "reported by the agent with a resolution of one second and written when the attempt ends.",
        (ATTEMPTS, RESIZES, QUEUED_TIME, START_TIME, FIRST_USE_TIME, RUN_TIME),
    ),
    CLAIMS,
    Section(
        "Policies",
        "The label `policy` is the active policy or the shadow policy. For the decision latency it "
        "is the policy that decided. The counters restart at 0 when `spec.policy` changes.",
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
        "The label `gpu` is the name of the GPUServer. Usage comes from the reports of the agent "
        "in the status of the GPUServer: it is at most a minute old, and differs from the current "
        "value by less than 5 points or 1 % of the memory where that is longer ago. The metrics of "
        "the agents below are current.",
        (
            WANTED,
            GPU_INFO,
            GPU_ENFORCEMENT,
            GPU_WRONG_LIMITS,
            GPU_STATE,
            GPU_MEMORY,
            GPU_ALLOCATABLE,
            GPU_ALLOCATED,
            GPU_USED,
            GPU_UTILIZATION,
            GPU_JOBS,
            GPU_IDLE,
            GPU_UNKNOWN,
            MPS_STATE,
            MPS_CLIENTS,
            MPS_WEDGES,
            MPS_RESTARTS,
            CANARIES,
            CANARY_TIME,
        ),
    ),
    Section(
        "Accounting",
        "The label `workload_namespace` is empty, and the sum is over all namespaces, unless the "
        "operator runs with `--namespace-metrics`. The counters start at 0 with the process; "
        "`partita usage` reads the records of the last 90 days.",
        (
            GPU_SECONDS_ALLOCATED,
            GPU_SECONDS_USED,
            MEMORY_SECONDS_ALLOCATED,
            MEMORY_SECONDS_USED,
        ),
    ),
)
"""All metrics, in the order of docs/metrics.md."""
