"""The state, the allocations and the use of the GPUs, now and as the meter counts them. No I/O."""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias, get_args

from prometheus_client import Metric

from partita.accounting.daily_usage import Amounts
from partita.accounting.usage_meter import UsageMeter
from partita.metric import counter, gauge
from partita.models import GPUServer
from partita.models.gpu_server import Canary, MPSStatus, RestartReason
from partita.models.partition_status import GPUState
from partita.scheduling.gpu_state import server_state
from partita.scheduling.idle import unused_since
from partita.store.state import State

__all__ = ["gpu_metrics", "usage_metrics"]

_GIB = 1 << 30
_GPU = ("partition", "gpu")
_OWNER = ("partition", "workload_namespace")
_Server: TypeAlias = tuple[str, str]

_MPS_STATES = get_args(MPSStatus.model_fields["state"].annotation)


def gpu_metrics(state: State) -> Iterator[Metric]:
    """Yield the metrics of all GPUs, and how many each partition requests."""
    yield gauge(
        "partita_partition_wanted_gpus",
        "GPUs that the partition requests (`spec.gpus`).",
        ("partition",),
        {(name,): partition.spec.gpus for name, partition in state.partitions.items()},
    )
    servers = {(s.spec.partition, s.metadata.name): s for s in state.servers.values()}
    yield gauge(
        "partita_gpu_info",
        "Always 1; the labels describe the GPU and its place.",
        (*_GPU, "node", "product", "uuid", "mode"),
        {
            (*gpu, s.status.node, s.status.product, s.status.uuid, s.spec.mode): 1
            for gpu, s in servers.items()
        },
    )
    states = {gpu: _state_of(server, state) for gpu, server in servers.items()}
    yield gauge(
        "partita_gpu_state",
        "1 for the current state of the GPU, 0 for the others. A GPU in Ready accepts jobs.",
        (*_GPU, "state"),
        _one_hot(states, get_args(GPUState)),
    )
    yield gauge(
        "partita_gpu_enforcement",
        "1 for what limits the GPU memory of jobs (Driver or Client), 0 for the other. Absent "
        "until it is known, and without MPS.",
        (*_GPU, "enforcement"),
        _one_hot({g: s.status.enforcement for g, s in servers.items()}, ("Driver", "Client")),
    )
    yield gauge(
        "partita_gpu_memory_bytes",
        "Memory of the GPU.",
        _GPU,
        {gpu: server.status.memory for gpu, server in servers.items()},
    )
    yield gauge(
        "partita_gpu_allocatable_memory_bytes",
        "Memory that can be allocated to jobs.",
        _GPU,
        {
            gpu: state.partitions[gpu[0]].spec.allocatable(server.status.memory)
            for gpu, server in servers.items()
            if gpu[0] in state.partitions
        },
    )
    entries = {gpu: server.status.allocations for gpu, server in servers.items()}
    yield gauge(
        "partita_gpu_allocated_memory_bytes",
        "Memory that is allocated to jobs.",
        _GPU,
        {gpu: sum(entry.memory for entry in its.values()) for gpu, its in entries.items()},
    )
    yield gauge(
        "partita_gpu_allocated_jobs",
        "Jobs and claims with an allocation on the GPU.",
        _GPU,
        {gpu: len(its) for gpu, its in entries.items()},
    )
    yield from _usage(servers)
    yield from _mps({g: s.status.mps for g, s in servers.items() if s.status.mps is not None})


def _state_of(server: GPUServer, state: State) -> GPUState:
    partition = state.partitions.get(server.spec.partition)
    if partition is not None:
        return server_state(server, partition, state)
    return "Unready" if state.unknown_of(server.spec.partition) else "Draining"


def _one_hot(
    found: Mapping[_Server, str | None], words: Collection[str]
) -> dict[tuple[str, str, str], float]:
    """Return 1 for the word of each GPU and 0 for all others; nothing of a GPU without a word."""
    return {
        (*gpu, word): word == its for gpu, its in found.items() if its is not None for word in words
    }


def _usage(servers: Mapping[_Server, GPUServer]) -> Iterator[Metric]:
    """Yield what the agents have measured."""
    usages = {g: s.status.usage for g, s in servers.items() if s.status.usage is not None}
    yield gauge(
        "partita_gpu_used_memory_bytes",
        "Memory in use, measured by the agent. Absent before its first report.",
        _GPU,
        {gpu: usage.memory for gpu, usage in usages.items()},
    )
    yield gauge(
        "partita_gpu_utilization_ratio",
        "GPU utilization from 0 to 1, measured by the agent. Absent before its first report.",
        _GPU,
        {gpu: usage.gpu_utilization / 100 for gpu, usage in usages.items()},
    )
    yield gauge(
        "partita_gpu_wrong_memory_limits",
        "Jobs whose limit in the driver is not the expected one, as the agent read it back. Absent "
        "before its first report.",
        _GPU,
        {
            gpu: sum(use.limit_mismatch is not None for use in usage.jobs.values())
            for gpu, usage in usages.items()
        },
    )
    yield gauge(
        "partita_gpu_idle_claims",
        "Claims on the GPU none of whose kernels has run for a minute or more, as the agent "
        "reports. Absent before its first report.",
        _GPU,
        {
            gpu: sum(unused_since(uid, [server]) is not None for uid in server.status.allocations)
            for gpu, server in servers.items()
            if gpu in usages
        },
    )
    yield gauge(
        "partita_gpu_unknown_processes",
        "Processes that use the GPU without an allocation, counted by the agent. Absent before its "
        "first report.",
        _GPU,
        {g: u.unknown_processes.count if u.unknown_processes else 0 for g, u in usages.items()},
    )


def _mps(daemons: Mapping[_Server, MPSStatus]) -> Iterator[Metric]:
    """Yield what the agents report of MPS."""
    yield gauge(
        "partita_mps_state",
        "1 for the state that the MPS daemon of the GPU reports, 0 for the others. Absent without "
        "MPS.",
        (*_GPU, "state"),
        _one_hot({gpu: mps.state for gpu, mps in daemons.items()}, _MPS_STATES),
    )
    yield gauge(
        "partita_mps_clients",
        "Processes of jobs that are connected to MPS. Absent without MPS.",
        _GPU,
        {gpu: mps.clients for gpu, mps in daemons.items()},
    )
    yield counter(
        "partita_mps_restarts_total",
        "Restarts of MPS that the agent requested, by reason. Wedged: new programs hung, although "
        "MPS answered.",
        (*_GPU, "reason"),
        {
            (*gpu, reason): mps.restarts.get(reason, 0)
            for gpu, mps in daemons.items()
            for reason in get_args(RestartReason)
        },
    )
    canaries = {gpu: mps.canary or Canary() for gpu, mps in daemons.items()}
    passed = {(*gpu, "Passed"): c.checks - c.failures for gpu, c in canaries.items()}
    yield counter(
        "partita_mps_canaries_total",
        "Canary clients with which the agent checked whether MPS accepts clients, by result: "
        "Passed or Failed.",
        (*_GPU, "result"),
        passed | {(*gpu, "Failed"): c.failures for gpu, c in canaries.items()},
    )
    yield gauge(
        "partita_mps_canary_seconds",
        "Duration of the last canary client. Absent before the first one has ended.",
        _GPU,
        {gpu: c.duration_milliseconds / 1000 for gpu, c in canaries.items() if c.checks},
    )


def usage_metrics(meter: UsageMeter, state: State) -> Iterator[Metric]:
    """Yield the amounts since the process started, by partition and, if counted, by namespace."""
    sums = {owner: its for owner, its in meter.totals.items() if owner[0] in state.partitions}
    if not meter.by_namespace:
        # If a counter is missing before its first event, `increase()` does not count that event.
        sums = {(name, ""): Amounts() for name in state.partitions} | sums
    yield counter(
        "partita_allocated_gpu_seconds_total",
        "Allocated share of a GPU times seconds. The share is that of the allocatable memory, or 1 "
        "for a GPU that is allocated to one job alone.",
        _OWNER,
        {owner: its.gpu_seconds_allocated for owner, its in sums.items()},
    )
    yield counter(
        "partita_used_gpu_seconds_total",
        "GPU utilization (1 is 100 %) of jobs and workloads times seconds, as measured by the "
        "agent.",
        _OWNER,
        {owner: its.gpu_seconds_used for owner, its in sums.items()},
    )
    yield counter(
        "partita_allocated_memory_byte_seconds_total",
        "Allocated GPU memory times seconds.",
        _OWNER,
        {owner: its.gib_seconds_allocated * _GIB for owner, its in sums.items()},
    )
    yield counter(
        "partita_used_memory_byte_seconds_total",
        "GPU memory in use by jobs and workloads times seconds, as measured by the agent.",
        _OWNER,
        {owner: its.gib_seconds_used * _GIB for owner, its in sums.items()},
    )
