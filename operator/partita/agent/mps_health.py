"""Monitors the MPS control daemon of one GPU, and requests a restart when it is needed.

The daemon is healthy if it answers; a running process is not enough. A fault ends when all clients
have exited, usually within a moment, so a periodic check can miss it. The server's log and Xids
report faults, too. After any fault the GPU stays faulted until the jobs that the fault terminated
have been released. Otherwise jobs that are placed later would count as lost, too.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from partita.agent.errors import MPSError, MPSGoneError
from partita.agent.health import Health, HealthProblem, Source
from partita.agent.mps_control import MPSControl, ServerState

__all__ = ["FAULT_SHOWN_FOR", "RELEASED_WITHIN", "MPSHealth"]

RESTART_AFTER: Final = 10.0
"""Seconds in FAULT after which the daemon is restarted. A server recovers when all clients have
exited, but a client that ignores the error never exits
(https://docs.nvidia.com/deploy/mps/latest/, "Error Containment")."""
START_WITHIN: Final = 90.0
"""Seconds in which a daemon must start; `partita agent mps` waits 60 s for a server."""
RELEASED_WITHIN: Final = 30.0
"""Seconds to wait for the operator to release lost jobs before the GPU counts as healthy."""
FAULT_SHOWN_FOR: Final = 6.0
"""Minimum number of seconds for which a fault is reported. It is longer than the operator waits for
the report (`partita.reconcile.attempts.JUDGEMENT_DELAY`)."""
_UNANSWERED: Final = 2
"""Consecutive checks without an answer after which the daemon counts as hung."""
_FATAL: Final = "a program caused a fatal fault, and every client of the GPU is lost"


@dataclass(slots=True)
class MPSHealth:
    """The health of the control daemon of one GPU.

    Parameters
    ----------
    control
        Client of the daemon.
    health
        Receives the problems.
    restart
        Requests a restart of the daemon.
    released
        Returns whether the GPU has no allocation any more.
    has_single_job
        Reads the ledger and returns whether a single job is allocated. In this case a program's
        fault is a failure of that job alone.
    new_faults
        Returns the fatal faults that the server has logged since the last call.
    """

    control: MPSControl
    health: Health
    restart: Callable[[], None]
    released: Callable[[], bool]
    has_single_job: Callable[[], Awaitable[bool]]
    new_faults: Callable[[], Sequence[str]]
    state: str = "Starting"
    """State as in the GPUServer's status."""
    clients: int = 0
    _reported: str = ""
    """Message of a fatal fault that is not handled yet."""
    _wedge: str = ""
    """Message of a wedge that is not handled yet."""
    _server: int = 0
    _since: float | None = None
    """Start of the current state: unhealthy, or healthy again after a fault."""
    _restarted_at: float | None = None
    _unanswered_checks: int = 0
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    @property
    def servers(self) -> set[int]:
        """PIDs of the MPS servers."""
        return {self._server} - {0}

    def status(self) -> Mapping[str, Any]:
        """Return the field `mps` of the GPUServer's status."""
        return {"state": self.state, "clients": self.clients}

    async def check(self, now: float) -> None:
        """Query the daemon and update the problems.

        Parameters
        ----------
        now
            Seconds of a monotonic clock.
        """
        self.read_log()
        if self._wedge:
            self._wedged(self._wedge, now)
            self._wedge = ""
            return
        reported, self._reported = self._reported, ""
        if reported:
            await self._client_fault(f"{_FATAL}: {reported}")
        try:
            state = await self._query()
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
        """Read the server's log; return whether there is a fault to handle."""
        for fault in self.new_faults():
            self.report_fault(fault)
        return bool(self._reported)

    def report_fault(self, message: str) -> None:
        """Record a fatal fault, which the next check handles."""
        self._reported = self._reported or message

    def report_wedge(self, message: str) -> None:
        """Record that MPS is wedged, which the next check handles.

        A wedged server answers commands as if it were healthy, but clients that connect to it hang
        in CUDA's initialisation, and only a restart of MPS helps
        (https://github.com/kai-scheduler/kai-gpu-fractioning, mpsd/internal/drain).

        Parameters
        ----------
        message
            What was observed.
        """
        self._wedge = self._wedge or message

    async def _query(self) -> ServerState | None:
        """Return the server's state; None if no server runs."""
        if self._server:
            try:
                state, clients = await self.control.status(self._server)
            except MPSGoneError:
                raise
            except MPSError:
                # The daemon reports a server that has exited as an error.
                if self._server in await self.control.servers():
                    raise
            else:
                self.clients = len(clients)
                return state
        servers = await self.control.servers()
        if not servers:
            return None
        before, lost = self._server, self.clients
        state, clients = await self.control.status(servers[0])
        self._server, self.clients = servers[0], len(clients)
        if before and lost:
            self._fault("MPSServerLost", f"MPS server {before} exited with {lost} clients")
        return state

    def _wedged(self, message: str, now: float) -> None:
        """Restart MPS at once: no client can go on."""
        self.health.clear(Source.MPS)  # a wedge is not a program's fault, so nobody is a suspect
        self._fault("MPSWedged", message)
        self._restart_after(0.0, now)

    async def _client_fault(self, message: str) -> None:
        """Handle a fault that a program caused."""
        if not self.health.has(Source.MPS):
            self._fault("MPSFault", message, all_lost=not await self.has_single_job())

    async def _answered(self, state: ServerState | None, now: float) -> None:
        match state:
            case ServerState.ACTIVE:
                self._active(now)
            case ServerState.FAULT:
                await self._client_fault(_FATAL)
                self._restart_after(RESTART_AFTER, now)
            case ServerState.INITIALIZING | None:
                self._starting("MPSStarting", "the MPS server is not ready yet")
                self._restart_after(START_WITHIN, now)

    def _active(self, now: float) -> None:
        self.health.clear(Source.MPS_STARTING)
        if self.health.has(Source.MPS):
            since = self._since if self._since is not None else now
            self._since = since
            if now - since < (FAULT_SHOWN_FOR if self.released() else RELEASED_WITHIN):
                return
            self.health.clear(Source.MPS)
            self._log.info("MPS is healthy again")
        self.state = "Ready"
        self._since = self._restarted_at = None

    def _gone(self, message: str, now: float) -> None:
        if self.clients and self.state == "Ready":
            self._fault("MPSExited", f"the MPS control daemon has exited: {message}")
        elif not self.health.has(Source.MPS):
            self._starting("MPSStarting", f"the MPS control daemon does not run: {message}")
        self.clients = self._server = 0
        self._restart_after(START_WITHIN, now)

    def _unanswered(self, message: str, now: float) -> None:
        if self._unanswered_checks < _UNANSWERED:
            self._starting("MPSUnanswered", message)
            return
        self._fault("MPSHung", f"the MPS control daemon does not answer: {message}")
        self._restart_after(0.0, now)

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

    def _restart_after(self, seconds: float, now: float) -> None:
        """Request a restart after a number of unhealthy seconds; repeat it if it did not help."""
        if self._since is None:
            self._since = now
        last = self._restarted_at
        if now - self._since >= seconds and (last is None or now - last >= START_WITHIN):
            self._restarted_at = now
            self._log.warning("requesting another MPS daemon", unhealthy_for=now - self._since)
            self.restart()
