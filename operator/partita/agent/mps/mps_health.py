"""Monitors the MPS control daemon of one GPU, and requests a restart when it is needed.

The daemon is healthy if it answers, and if a canary client has shown that it accepts clients
(`CanaryCheck`); a running process is not enough. A fault ends when all clients have exited, usually
within a moment, so a periodic check can miss it. The logs and Xids report faults, too.
After any fault the GPU stays faulted until the jobs that the fault terminated have been released.
Otherwise jobs that are placed later would count as lost, too.
A canary that hangs may only be slow. MPS is wedged, and every job of the GPU restarts, if a client
has ended uncleanly before, as wedges begin, or if the next canary hangs as well.

A client that ended uncleanly may have left a fault that wedges MPS later. So MPS is restarted when
the GPU has no job any more.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from partita.agent.errors import MPSBusyError, MPSError, MPSGoneError
from partita.agent.health import RELEASED_WITHIN, Health, HealthProblem, Source
from partita.agent.mps.canary_check import CanaryCheck
from partita.agent.mps.client_exits import ClientExits, UncleanEnd
from partita.agent.mps.control import MPSControl, ServerState
from partita.agent.times import AgentTimes
from partita.models.gpu_server import RestartReason
from partita.models.quantities import format_time

__all__ = ["MPSHealth"]

START_WITHIN: Final = 90.0
"""Seconds in which a daemon must start; `partita agent mps` waits 60 s for a server."""
FAULT_HELD_FOR: Final = 1.5
"""Seconds for which the report of a fault waits for the end of a client that has just vanished: if
it was killed, no program is the cause. The operator waits longer for the report."""
KILL_EXPLAINS: Final = 5.0
"""Seconds after a client was killed in which a fault is its effect. An assumption: the fault arises
when its work is interrupted."""
_UNANSWERED: Final = 2
"""Consecutive checks without an answer after which the daemon counts as hung."""
_HANGS: Final = 2
"""Consecutive canaries that hang, after which MPS is wedged without another sign."""
_REFUSALS: Final = 3
"""Consecutive refused canaries after which MPS is restarted if it has no clients."""
_FATAL: Final = "a program caused a fatal fault, and every client of the GPU is lost"
_KILLED: Final = "a program was killed with work on the GPU, and every client of the GPU is lost"


@dataclass(slots=True)
class MPSHealth:
    """The health of the control daemon of one GPU.

    Parameters
    ----------
    control
        Returns a client of the daemon.
    health
        Receives the problems.
    canary
        Decides when a canary client is needed.
    exits
        The ends of the jobs' clients.
    restart
        Requests a restart of the daemon.
    released
        Returns whether the GPU has no allocation any more.
    has_single_job
        Reads the ledger and returns whether a single job is allocated: a fault is its own then.
    new_faults
        Returns the fatal faults that MPS has logged since the last call.
    times
        How long it waits.
    """

    control: Callable[[], MPSControl]
    health: Health
    canary: CanaryCheck
    exits: ClientExits
    restart: Callable[[], None]
    released: Callable[[], bool]
    has_single_job: Callable[[], Awaitable[bool]]
    new_faults: Callable[[], Sequence[str]]
    times: AgentTimes
    single_user: bool = False
    """Whether another server follows when the clients have exited and another user's waits."""
    state: str = "Starting"
    """State as in the GPUServer's status."""
    clients: frozenset[int] = frozenset()
    """PIDs of the connected clients of jobs."""
    server: int = 0
    """PID of the MPS server; 0 if none is known."""
    restarts: Counter[RestartReason] = field(default_factory=Counter)
    """Requested restarts."""
    _killed: UncleanEnd | None = None
    """The client that was killed last."""
    _killed_at: float | None = None
    _reported: str = ""
    """Message of a fatal fault that is not handled yet."""
    _reported_at: float | None = None
    _ran: int = 0
    """The server that was ACTIVE last. Before a server is, no program can cause a fault of it."""
    _start_error: str = ""
    """The newest fault of a server that has not become ACTIVE."""
    _unclean_at: float | None = None
    """When the last client ended uncleanly; None if none has since MPS started."""
    _replaced: int = 0
    """The server whose restart was requested, until another one runs."""
    _since: float | None = None
    """Start of the current state: unhealthy, or healthy again after a fault."""
    _restarted_at: float | None = None
    _unanswered_checks: int = 0
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    @property
    def is_unsettled(self) -> bool:
        """Whether something is about to be known: the next check should follow soon."""
        return self.canary.running or self.exits.undecided or bool(self._reported)

    def status(self) -> Mapping[str, Any]:
        """Return the field `mps` of the GPUServer's status."""
        status = {
            "state": self.state,
            "clients": len(self.clients),
            "restarts": dict(self.restarts),
            "canary": self.canary.status(),
        }
        if self._killed is not None:
            time = format_time(datetime.fromtimestamp(self._killed.at, UTC))
            status["killedClient"] = {"claim": self._killed.allocation.uid, "time": time}
        return status

    async def check(self, now: float) -> None:
        """Query the daemon and update the problems.

        Parameters
        ----------
        now
            Seconds of a monotonic clock.
        """
        self.read_log()
        await self._handle_fault(now)
        try:
            state = await self._query()
        except MPSBusyError:
            return  # a client is being terminated; if that never ends, it is reported as a wedge
        except MPSGoneError as error:
            self._unanswered_checks = 0
            self._gone(str(error), now)
        except MPSError as error:
            self._unanswered_checks += 1
            self._unanswered(str(error), now)
        else:
            self._unanswered_checks = 0
            await self._answered(state, now)

    def read_log(self) -> bool:
        """Read MPS's logs; return whether there is a fault to handle."""
        for fault in self.new_faults():
            if self._ran == self.server != self._replaced:
                self.report_fault(fault)
            else:
                self._start_error = fault
        return bool(self._reported)

    def report_fault(self, message: str) -> None:
        """Record a fatal fault, which the next check handles."""
        self._reported = self._reported or message

    def report_wedge(self, message: str, now: float) -> None:
        """Restart a wedged MPS at once: no client can go on.

        A wedged server answers commands as if it were healthy, but clients that connect to it hang
        in CUDA's initialisation, and only a restart of MPS helps
        (https://github.com/kai-scheduler/kai-gpu-fractioning, mpsd/internal/drain).
        """
        # A wedge is not a program's fault, so nobody is a suspect.
        self.health.set(Source.MPS, None)
        self._fault("MPSWedged", message)
        self._request_restart("Wedged", now)

    def report_unclean_end(self, end: UncleanEnd, now: float) -> None:
        """Record that a client ended without MPS having terminated it, or with an error."""
        how = "was killed" if end.killed else "failed"
        allocation = end.allocation
        what = f"a program of {allocation.namespace}/{allocation.user} {how} while it used the GPU"
        self._log.info("unclean end of a client", what=what)
        self._unclean_at = now
        if end.killed:
            self._killed, self._killed_at = end, now
        self.canary.require(what)
        # At once: the daemon may be too busy for the next check.
        self.health.set(Source.MPS_CANARY, HealthProblem("MPSChecking", self._waits(now)))

    # Answers of the daemon

    async def _query(self) -> ServerState | None:
        """Return the server's state; None if no server runs."""
        control = self.control()
        if self.server:
            try:
                state, pids = await control.status(self.server)
            except (MPSGoneError, MPSBusyError):
                raise
            except MPSError:
                # The daemon reports a server that has exited as an error.
                if self.server in await control.servers():
                    raise
            else:
                self._count(pids)
                return state
        servers = await control.servers()
        if not servers:
            return None
        before, lost = self.server, self.clients
        state, pids = await control.status(servers[0])
        self.server = servers[0]
        self._count(pids)
        if before and not self.single_user:
            if lost:
                self._fault("MPSServerLost", f"MPS server {before} exited with {len(lost)} clients")
            self.canary.restarted()
        return state

    def _count(self, pids: Sequence[int]) -> None:
        """Count the clients of jobs, and renew the canary if one may have harmed MPS unseen."""
        has_left = self.exits.has_left or bool(self.clients)
        self.clients = frozenset(pids) - self.canary.runner.pids
        if self.exits.ended_unseen or (has_left and not self.clients):
            self.canary.renew()
        self.exits.has_left = self.exits.ended_unseen = False

    async def _answered(self, state: ServerState | None, now: float) -> None:
        if self.server and self.server == self._replaced:
            self._starting("MPSRestarting", "MPS is being restarted")
            self._restart_after(START_WITHIN, now)
            return
        match state:
            case ServerState.ACTIVE:
                self._active(now)
            case ServerState.FAULT:
                self.report_fault("the server is in the state FAULT")
                await self._handle_fault(now)
                self._restart_after(self.times.fault_restart, now, "Fault")
            case None if self.server and not self.single_user:
                self._lost_server(now)
            case ServerState.INITIALIZING | None:
                why = f": {self._start_error}" if self._start_error else " yet"
                self._starting("MPSStarting", f"the MPS server is not ready{why}")
                self._restart_after(START_WITHIN, now)

    def _lost_server(self, now: float) -> None:
        """Handle a server that has exited: with protocol 3 the daemon starts no other one."""
        said = f"MPS server {self.server} has exited"
        if self.clients:
            self._fault("MPSServerLost", f"{said} with {len(self.clients)} clients")
        self.clients = frozenset()
        self._starting("MPSServerLost", said)
        self._restart_after(0.0, now)

    def _active(self, now: float) -> None:
        self._replaced = 0
        self._ran, self._start_error = self.server, ""
        if self._reported:
            return  # a fault, whose cause is about to be known
        self.health.set(Source.MPS_STARTING, None)
        hung = self.canary.step(now, queued=self.single_user and bool(self.clients))
        if hung and (self._unclean_at is not None or self.canary.hung >= _HANGS):
            self.report_wedge(f"a canary client hung: {self.canary.error}", now)
            return
        if self._restart_if_idle(now):
            return
        waits = self._waits(now)
        if waits:
            self.health.set(Source.MPS_CANARY, HealthProblem("MPSChecking", waits))
        if self.health.has(Source.MPS):
            since = self._since = now if self._since is None else self._since
            needed = self.times.fault_shown_for if self.released() else RELEASED_WITHIN
            if waits or now - since < needed:
                return
            self.health.set(Source.MPS, None)
            self._log.info("MPS is healthy again")
        if waits:
            self.state = "Checking"
            return
        self.health.set(Source.MPS_CANARY, None)
        self.state = "Ready"
        self._since = self._restarted_at = None

    def _waits(self, now: float) -> str:
        """Return why the GPU takes no jobs although MPS is ACTIVE; empty if it does."""
        if self.canary.required:
            return f"a canary client checks whether MPS accepts clients: {self.canary.required}"
        unclean = self._unclean_at
        if unclean is not None and not self.clients and now - unclean < RELEASED_WITHIN:
            return "MPS will be restarted when the job whose program ended uncleanly is released"
        return ""

    def _restart_if_idle(self, now: float) -> bool:
        """Restart an MPS without jobs that may be about to fail; return whether it is restarted."""
        if self.clients or not self.released():
            return False
        if self._unclean_at is not None:
            self._request_restart("UncleanEnd", now)
            self._starting("MPSRestarting", "MPS is restarted after a program ended uncleanly")
            return True
        is_refused = self.canary.refused >= _REFUSALS
        return is_refused and self._restart_after(0.0, now, "CanaryRefused")

    def _gone(self, message: str, now: float) -> None:
        if self.clients:
            self._fault("MPSExited", f"the MPS control daemon has exited: {message}")
        elif not self.health.has(Source.MPS):
            said = f"the MPS control daemon has not started its server yet: {message}"
            self._starting("MPSStarting", said)
        self.clients = frozenset()
        self.server = self._replaced = 0
        self._unclean_at = None
        self.canary.restarted()
        self._restart_after(START_WITHIN, now)

    def _unanswered(self, message: str, now: float) -> None:
        if self._unanswered_checks < _UNANSWERED:
            self._starting("MPSUnanswered", message)
            return
        self._fault("MPSHung", f"the MPS control daemon does not answer: {message}")
        self._restart_after(0.0, now, "NotAnswering")

    # Faults

    async def _handle_fault(self, now: float) -> None:
        """Report a fatal fault, with the cause if that is known."""
        if not self._reported:
            return
        self._reported_at = now if self._reported_at is None else self._reported_at
        if self.exits.undecided and now - self._reported_at < FAULT_HELD_FOR:
            self._starting("MPSFault", f"{_FATAL}: {self._reported}")
            return
        message, self._reported, self._reported_at = self._reported, "", None
        if self.health.has(Source.MPS):
            return
        all_lost = not await self.has_single_job()
        killed = self._killed_at is not None and now - self._killed_at < KILL_EXPLAINS
        reason, what = ("MPSClientKilled", _KILLED) if killed else ("MPSFault", _FATAL)
        self._fault(reason, f"{what}: {message}", all_lost=all_lost)

    def _fault(self, reason: str, message: str, *, all_lost: bool = True) -> None:
        """Record a fault: every client is lost, or will be lost when the daemon is restarted."""
        self.state = "Faulted"
        if not self.health.has(Source.MPS):
            self._since = None
            self.health.set(Source.MPS, HealthProblem(reason, message, faulted=all_lost))
            self._log.warning("MPS faulted", reason=reason, message=message, all_lost=all_lost)

    def _starting(self, reason: str, message: str) -> None:
        if self.state != "Faulted":
            self.state = "Starting"
        self.health.set(Source.MPS_STARTING, HealthProblem(reason, message))

    # Restarts

    def _restart_after(
        self, seconds: float, now: float, reason: RestartReason = "NotStarted"
    ) -> bool:
        """Request a restart after a number of unhealthy seconds; repeat it if it did not help."""
        if self._since is None:
            self._since = now
        last = self._restarted_at
        due = now - self._since >= seconds and (last is None or now - last >= START_WITHIN)
        if due:
            self._request_restart(reason, now)
        return due

    def _request_restart(self, reason: RestartReason, now: float) -> None:
        self._log.warning("requesting another MPS daemon", reason=reason)
        self._restarted_at, self._replaced, self._unclean_at = now, self.server, None
        self.restarts[reason] += 1
        self.canary.restarted()
        self.restart()
