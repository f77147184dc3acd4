"""What was allocated and used, as the meter has counted it. No I/O."""

from collections.abc import Iterator

from prometheus_client import Metric

from partita.accounting.daily_usage import Amounts
from partita.accounting.usage_meter import UsageMeter
from partita.metric import counter
from partita.store.state import State

__all__ = ["usage_metrics"]

_GIB = 1 << 30
_OWNER = ("partition", "workload_namespace")


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
