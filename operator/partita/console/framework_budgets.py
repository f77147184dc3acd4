"""What to set in frameworks on the slice that a job or workload has, or could get. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from partita.pods.framework_memory import (
    FrameworkSetting,
    allocated_settings,
    budget_advice,
    settings_on,
)
from partita.scheduling.memory_request import MemoryRequest, asked_request
from partita.scheduling.request import Request
from partita.store.state import State

__all__ = ["FrameworkBudget", "budgets_of", "failure_advice", "planned_budgets"]


@dataclass(frozen=True, slots=True)
class FrameworkBudget:
    """The settings on GPUs that need the same."""

    gpus: tuple[str, ...]
    """The GPUServers."""
    settings: tuple[FrameworkSetting, ...]


def budgets_of(uid: str, request: Request | None, state: State) -> tuple[FrameworkBudget, ...]:
    """Return the settings of what has this UID, on its GPUs or on those that it could get."""
    if allocated := state.allocated(uid):
        return _grouped(
            (name, allocated_settings(entry, state.servers[name]))
            for name, entry in allocated.items()
        )
    return planned_budgets(request, state) if request is not None else ()


def planned_budgets(request: Request, state: State) -> tuple[FrameworkBudget, ...]:
    """Return the settings on each GPU of a partition that is large enough for a request.

    None before its memory is known.
    """
    partition = state.partitions.get(request.partition)
    if partition is None:
        return ()
    asked = asked_request(request, partition, 0, MemoryRequest(0, 0))
    if asked is None:
        return ()
    return _grouped(
        (
            server.metadata.name,
            settings_on(server, asked.guarantee, asked.ceiling, request.processes),
        )
        for server in state.servers_of(request.partition)
        if asked.guarantee <= partition.spec.allocatable(server.status.memory)
    )


def failure_advice(uid: str, state: State) -> str:
    """Return what to set if a container of a Pod asked for more memory than its slice has."""
    failures = (pod.workload.failure for pod in state.pods_of(uid))
    found = next((one.over_budget for one in failures if one is not None and one.over_budget), "")
    return budget_advice(found, state.allocated(uid), state.servers)


def _grouped(
    found: Iterable[tuple[str, tuple[FrameworkSetting, ...]]],
) -> tuple[FrameworkBudget, ...]:
    gpus: dict[tuple[FrameworkSetting, ...], list[str]] = defaultdict(list)
    for name, settings in found:
        if settings:
            gpus[settings].append(name)
    return tuple(FrameworkBudget(tuple(names), settings) for settings, names in gpus.items())
