"""Terminates the MPS clients of Pods that are being ended, before kubelet signals their programs.

A client that a signal ends with work in flight can wedge MPS for all others on the GPU (NVIDIA's
"Limitations", quoted in `terminate`; measured by kai-scheduler/kai-gpu-fractioning, mpsd/internal/
drain/server.go of pull 147). The operator marks the allocation of a Pod that is being ended, and
`partita.pods.termination` says what kubelet then does, and when.

A client that SIGTERM would kill is terminated at once. A client that handles SIGTERM is terminated
only shortly before SIGKILL, so it can use the GPU in its grace period, for example to save its
state. Clients that connect meanwhile, also from `kubectl exec`, are treated in the same way.

These ends are not covered, because nobody tells the agent of them before the signal: a deletion
without a grace period, kubelet's own evictions, a node that is shut down, and the out-of-memory
killer. A program also counts as handling SIGTERM if its runtime catches the signal and exits, as
Go's does.
"""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn

import structlog

from partita.agent.allocations import AllocationReader, Key, LedgerEntry
from partita.agent.attribution.processes import PodsOfProcesses, ProcessIdentity
from partita.agent.errors import MPSError, MPSUnansweredError
from partita.agent.event_wait import event_or_timeout
from partita.agent.mps.control import MPSControl
from partita.agent.times import AgentTimes
from partita.pods.termination import TERMINATE_BEFORE_KILL

__all__ = ["ClientTermination", "ReleaseTimes"]


class ReleaseTimes:
    """When the clients of allocations that are being released must be terminated.

    The deadline in the ledger is by another clock than the node's. So the remaining time is also
    derived from when the agent first saw the mark, and the shorter time counts.
    """

    def __init__(self) -> None:
        self._seen: dict[Key, float] = {}

    def update(
        self, allocations: Mapping[Key, LedgerEntry], now: float, clock: datetime
    ) -> dict[Key, float]:
        """Return for each allocation that is being released when its last clients must go.

        Parameters
        ----------
        now
            Seconds of a monotonic clock; the result is by this clock, too.
        clock
            The node's time.
        """
        releasing = {
            key: (a.releasing_since, a.release_deadline)
            for key, a in allocations.items()
            if a.releasing_since and a.release_deadline
        }
        self._seen = {key: self._seen.get(key, now) for key in releasing}
        return {
            key: min(
                self._seen[key] + (deadline - since).total_seconds(),
                now + (deadline - clock).total_seconds(),
            )
            - TERMINATE_BEFORE_KILL
            for key, (since, deadline) in releasing.items()
        }


@dataclass(slots=True)
class ClientTermination:
    """Terminates the MPS clients of one GPU whose Pods are being ended.

    Parameters
    ----------
    control
        Returns a client of the control daemon with a deadline in seconds.
    ledger
        The allocations of the GPU.
    processes
        Finds the Pods of processes.
    terminated
        Called with the PID of a client that MPS has terminated.
    wedged
        Called with a message if MPS does not terminate a client.
    times
        How long it waits.
    """

    control: Callable[[float], MPSControl]
    ledger: AllocationReader
    processes: PodsOfProcesses
    terminated: Callable[[int], None]
    wedged: Callable[[str], None]
    times: AgentTimes
    _release_times: ReleaseTimes = field(default_factory=ReleaseTimes)
    _done: set[tuple[int, ProcessIdentity]] = field(default_factory=set)
    """Clients that were terminated. MPS lists them until their processes exit."""
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    async def run(self) -> NoReturn:
        """Terminate clients until cancelled."""
        while True:
            due = self._release_times.update(
                self.ledger.allocations, time.monotonic(), datetime.now(UTC)
            )
            if due:
                try:
                    await self._terminate(due)
                except MPSError as error:
                    self._log.warning("MPS clients not listed", error=str(error))
                await event_or_timeout(self.ledger.changed, self.times.releases_every)
            else:
                self._done.clear()
                await self.ledger.changed.wait()
                self.ledger.changed.clear()

    async def _terminate(self, due: Mapping[Key, float]) -> None:
        """Terminate the clients whose time has come, the first Pod that is killed first."""
        # The ledger may change while the daemon answers.
        by_pod = self.ledger.by_pod()
        found: list[tuple[float, int, int, ProcessIdentity, str]] = []
        control = self.control(self.times.terminated_within)
        for server in await control.servers():
            for pid in await control.clients(server):
                identity = self.processes.identity(pid)
                entry = by_pod.get(identity.pod or "")
                if entry is None or entry.key not in due or (pid, identity) in self._done:
                    continue
                at, handles = due[entry.key], self.processes.catches(pid, signal.SIGTERM)
                if not handles or time.monotonic() >= at:
                    found.append((at, server, pid, identity, entry.user))
        for _, server, pid, identity, job in sorted(found):
            if self.processes.identity(pid) == identity:  # else it has exited
                await self._terminate_client(control, server, pid, identity, job)

    async def _terminate_client(
        self, control: MPSControl, server: int, pid: int, identity: ProcessIdentity, job: str
    ) -> None:
        began = time.monotonic()
        log = self._log.bind(job=job, pid=pid)
        try:
            error = await control.terminate(server, pid)
        except MPSUnansweredError as unanswered:
            self.wedged(f"MPS did not terminate a client of {job}: {unanswered}")
            return
        except MPSError as failed:
            log.warning("MPS client not terminated", error=str(failed))
            return
        if error:  # it is tried again, unless the client has exited
            log.warning("MPS client not terminated", error=error)
        else:
            self._done.add((pid, identity))
            self.terminated(pid)
            log.info("MPS client terminated", seconds=round(time.monotonic() - began, 3))
