"""How the containers of a Pod ended, read from its status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from partita.pods.memory_errors import (
    is_gpu_out_of_memory,
    is_mps_client_terminated,
    over_budget,
)
from partita.pods.pod_status import read_time

__all__ = [
    "ContainerEnd",
    "ContainerFailure",
    "container_ends",
    "container_states",
    "last_failure",
]

Json = Mapping[str, Any]

_SIGKILLED: Final = 128 + 9
"""Exit code of a killed program, by the convention of shells and container runtimes."""
_HOST_OUT_OF_MEMORY: Final = "OOMKilled"
"""Reason of a container that exceeded its limit of the node's memory."""
_FULL_PERCENT: Final = 95
"""Percent of its GPU memory that a program which failed without a message must have used to count
as out of memory. An assumption: a program allocates its last large block at once."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How one container ended."""

    container: str
    exit_code: int
    reason: str
    message: str
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def from_outside(self) -> bool:
        """Whether it ended like a program that the agent ended because of its GPU memory."""
        killed = self.exit_code == _SIGKILLED and self.reason != _HOST_OUT_OF_MEMORY
        return killed or is_mps_client_terminated(self.message)


@dataclass(frozen=True, slots=True)
class ContainerFailure:
    """The last failure of a container of a Pod, which may run again since."""

    started_at: datetime
    """When the container that failed had started, by the node's clock."""
    running: bool = False
    """Whether it runs again."""
    out_of_memory: bool = False
    """Whether its last output says that the GPU memory was not enough."""
    from_outside: bool = False
    """As in `ContainerEnd`."""
    silent: bool = False
    """Whether it failed without any output that Kubernetes kept."""
    over_budget: str = ""
    """As in `PodOutcome`."""

    def ran_out(self, memory: int, peak: int | None) -> bool:
        """Return whether it failed because its GPU memory was not enough.

        Without `terminationMessagePolicy: FallbackToLogsOnError` Kubernetes may keep no output.
        Then the measured peak decides.

        Parameters
        ----------
        memory
            Bytes that the Pod could use.
        peak
            Most bytes that it has used; None if unknown.
        """
        if self.out_of_memory or peak is None:
            return self.out_of_memory
        full = peak * 100 >= memory * _FULL_PERCENT
        return (self.from_outside and peak > memory) or (self.silent and full)


def container_states(statuses: list[dict[str, Any]] | None) -> Iterator[dict[str, Any]]:
    """Return the states of containers."""
    for container in statuses or []:
        yield container.get("state") or {}


def container_ends(statuses: list[dict[str, Any]] | None) -> Iterator[ContainerEnd]:
    """Return how those containers ended that have ended."""
    for container in statuses or []:
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            yield _end(container, ended)


def _end(container: Json, ended: Json) -> ContainerEnd:
    return ContainerEnd(
        container=container.get("name") or "",
        exit_code=int(ended.get("exitCode") or 0),
        reason=ended.get("reason") or "",
        message=ended.get("message") or "",
        started_at=read_time(ended.get("startedAt")),
        finished_at=read_time(ended.get("finishedAt")),
    )


def last_failure(status: Json) -> ContainerFailure | None:
    """Return the last failure of a Pod's containers; None if none has failed.

    A failure that says that the GPU memory was not enough comes before others. A container that
    exceeded its limit of the node's memory does not count.

    Parameters
    ----------
    status
        `status` of the Pod as the API server returns it.
    """
    failures = [
        (is_gpu_out_of_memory(end.message), end.finished_at or _LONG_AGO, end, running)
        for kind in ("initContainerStatuses", "containerStatuses")
        for end, running in _last_ends(status.get(kind))
        if end.exit_code and end.reason != _HOST_OUT_OF_MEMORY
    ]
    if not failures:
        return None
    out_of_memory, _, end, running = max(failures, key=lambda failure: failure[:2])
    return ContainerFailure(
        started_at=end.started_at or _LONG_AGO,
        running=running,
        out_of_memory=out_of_memory,
        from_outside=end.from_outside,
        silent=not end.message.strip() and not end.from_outside,
        over_budget=over_budget(end.message),
    )


def _last_ends(statuses: list[dict[str, Any]] | None) -> Iterator[tuple[ContainerEnd, bool]]:
    """Return the last end of each container that has ended, and whether it runs again."""
    for container in statuses or []:
        state, before = container.get("state") or {}, container.get("lastState") or {}
        ended = state.get("terminated") or before.get("terminated")
        if ended:
            yield _end(container, ended), "running" in state
