"""Finds MPS clients of jobs that ended uncleanly.

A client that is killed with work in flight can wedge MPS: other clients of the GPU fail with
cudaErrorIllegalAddress, and later ones may hang in CUDA's initialisation
(https://github.com/kai-scheduler/kai-gpu-fractioning, README and mpsd/internal/drain; NVIDIA plans
a fix for CUDA 13.6). Nobody reports how a process of another container ended. So a client counts as
ended cleanly only if MPS terminated it, or if its container exited with code 0.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from partita.agent.allocations import READ_WITHIN, LedgerEntry
from partita.kube.errors import KubernetesError

__all__ = ["ClientEnd", "ClientExits", "JobClient", "UncleanEnd", "container_end"]

CONTAINER_ENDS_WITHIN: Final = 5.0
"""Seconds after which a container that runs on without its client tells nothing about the client's
end. An assumption: a launcher exits shortly after its workers."""
_KILLED: Final = frozenset({128 + 9, 128 + 15})
"""Exit codes of a program that SIGKILL or SIGTERM ended, by the convention of container
runtimes."""

Body = Mapping[str, Any]


class ClientEnd(StrEnum):
    """How a client ended."""

    CLEAN = "clean"
    """Its container exited with code 0."""
    KILLED = "killed"
    """A signal ended it, or its Pod was removed."""
    FAILED = "failed"
    """It ended in another way, which may have left work on the GPU."""


@dataclass(frozen=True, slots=True)
class JobClient:
    """A client of a job."""

    allocation: LedgerEntry
    container: str
    """ID of its container; empty if it is unknown."""


@dataclass(frozen=True, slots=True)
class UncleanEnd:
    """A client that ended uncleanly."""

    allocation: LedgerEntry
    at: float
    """When it was missing first, from `time.time`."""
    killed: bool
    """Whether a signal ended it."""


class ClientExits:
    """The ends of the MPS clients of one GPU."""

    def __init__(self) -> None:
        self.clients: Mapping[int, JobClient] = {}
        """The current clients, by PID."""
        self._vanished: dict[int, tuple[JobClient, float]] = {}
        """Clients that have ended, it is not known how, by PID; and when they were missing first.
        """
        self._terminated: set[int] = set()
        self.has_left = False
        """Whether any client has ended since this was reset."""
        self.ended_unseen = False
        """Whether an attempt has ended of which no sample showed a client, since this was reset.

        It may have had one that was killed between two samples."""

    @property
    def undecided(self) -> bool:
        """Whether a client has ended and it is not known how."""
        return bool(self._vanished)

    def update(self, at: float, clients: Mapping[int, JobClient]) -> None:
        """Set the current clients of jobs, by PID.

        Parameters
        ----------
        at
            Time of the sample, from `time.time`.
        """
        for pid, client in self.clients.items():
            if pid not in clients:
                self.has_left = True
                if pid in self._terminated:
                    self._terminated.discard(pid)
                else:
                    self._vanished[pid] = client, at
        self.clients = clients

    def terminated(self, pid: int) -> None:
        """Record that MPS has terminated the work of a client: its end is clean."""
        if self._vanished.pop(pid, None) is None and pid in self.clients:
            self._terminated.add(pid)

    async def decide(
        self, now: float, read_pod: Callable[[LedgerEntry], Awaitable[Body | None]]
    ) -> list[UncleanEnd]:
        """Return the ends that turned out to be unclean since the last call.

        Parameters
        ----------
        now
            Current time, from `time.time`.
        read_pod
            Returns the Pod of an allocation; None if it does not exist. An error of the API
            server, or no answer, means that it is not known yet.
        """
        pods: dict[LedgerEntry, Body | None] = {}
        vanished = self._vanished.copy()
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_WITHIN):
                for allocation in {client.allocation for client, _ in vanished.values()}:
                    with suppress(KubernetesError):
                        pods[allocation] = await read_pod(allocation)
        unclean = []
        for pid, (client, at) in vanished.items():
            allocation = client.allocation
            end = container_end(pods[allocation], client) if allocation in pods else None
            if end is None and now - at < CONTAINER_ENDS_WITHIN:
                continue
            # A termination may have been recorded meanwhile.
            if self._vanished.pop(pid, None) is not None and end is not ClientEnd.CLEAN:
                unclean.append(UncleanEnd(allocation, at, end is ClientEnd.KILLED))
        return unclean


def container_end(pod: Body | None, client: JobClient) -> ClientEnd | None:
    """Return how a client ended, by the end of its container; None if that runs.

    Parameters
    ----------
    pod
        The Pod of the client's allocation; None if it does not exist.
    """
    if pod is None:
        return ClientEnd.KILLED
    codes = list(_exit_codes(pod.get("status") or {}, client.container))
    if not codes:
        return None
    if any(code in _KILLED for code in codes):
        return ClientEnd.KILLED
    return ClientEnd.FAILED if any(codes) else ClientEnd.CLEAN


def _exit_codes(status: Body, container: str) -> Iterator[int]:
    """Yield the exit codes of a container, or of all containers if it is unknown."""
    for kind in ("containerStatuses", "initContainerStatuses"):
        for found in status.get(kind) or ():
            for state in (found.get("state"), found.get("lastState")):
                ended = (state or {}).get("terminated")
                if ended is None:
                    continue
                started = str(ended.get("containerID") or found.get("containerID") or "")
                own = started.endswith(container) if container else kind == "containerStatuses"
                if own:
                    yield int(ended.get("exitCode") or 0)
