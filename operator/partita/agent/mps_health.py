"""Watches the MPS control daemon, tells what its state means, and has it restarted.

Alive is what answers: not that a process is there. A fault is over once all clients have left, a
moment later as a rule, so it is not only asked for: server log and Xids tell of it, too.
After a fault of any kind the GPU stays faulted until the jobs that the fault took have been
released, or placed jobs would be taken for their victims.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from partita.agent.errors import MPSError, MPSGoneError
from partita.agent.health import Health, Source, Trouble
from partita.agent.mps_control import ControlDaemon, ServerState

__all__ = ["RELEASED_WITHIN", "TOLD_FOR", "MPSWatch"]

RESTART_AFTER: Final = 10.0
"""Seconds in FAULT after which the daemon is restarted: it is well again by itself when all
clients have left, but one that ignores the error never leaves
(https://docs.nvidia.com/deploy/mps/latest/, "Error Containment")."""
START_WITHIN: Final = 90.0
"""Seconds in which a daemon must come up; the wrapper itself waits 60 s for a server."""
RELEASED_WITHIN: Final = 30.0
"""Seconds to wait, before the GPU counts as well, for the operator to release what was lost."""
TOLD_FOR: Final = 6.0
"""Seconds for which a fault is told at least. Longer than between two looks at the ledger, which
may not name yet whom it took; and than the operator waits to hear of it
(`partita.reconcile.attempts.HEARSAY`)."""
_UNANSWERED: Final = 2
"""Looks in a row without an answer after which the daemon counts as hung."""
_FATAL: Final = "a program has caused a fatal fault, and every client of the GPU is lost"


@dataclass(slots=True)
class MPSWatch:
    """The control daemon of one GPU as the agent sees it.

    Parameters
    ----------
    control
        The daemon.
    health
        Where it is told what is wrong.
    restart
        Asks the wrapper for another daemon.
    released
        Tells whether no job is allocated any more.
    alone
        Reads the ledger, and tells whether a single job is allocated: a program's fault then took
        nobody else's work, and is that job's own failure.
    faults
        Returns what the server has newly logged of fatal faults.
    """

    control: ControlDaemon
    health: Health
    restart: Callable[[], None]
    released: Callable[[], bool]
    alone: Callable[[], Awaitable[bool]]
    faults: Callable[[], Sequence[str]]
    state: str = "Starting"
    """As in the GPUServer's status."""
    clients: int = 0
    _heard: str = ""
    """A fatal fault that was heard of, and is not looked into yet."""
    _server: int = 0
    _since: float | None = None
    """When it was first seen not to be well."""
    _restarted_at: float | None = None
    _missed: int = 0
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    @property
    def servers(self) -> set[int]:
        """PIDs of the MPS servers."""
        return {self._server} - {0}

    def status(self) -> Mapping[str, Any]:
        """As in the GPUServer's status."""
        return {"state": self.state, "clients": self.clients}

    async def look(self, now: float) -> None:
        """Ask how it is.

        Parameters
        ----------
        now
            Seconds, of a clock that only goes forward.
        """
        self.listen()
        heard, self._heard = self._heard, ""
        if heard:
            await self._suffer(f"{_FATAL}: {heard}")
        try:
            state = await self._ask()
        except MPSGoneError as error:
            self._missed = 0
            self._gone(str(error), now)
        except MPSError as error:
            self._missed += 1
            self._unanswered(str(error), now)
        else:
            self._missed = 0
            await self._answered(state, now)

    def listen(self) -> bool:
        """Read the server's log; tell whether to look at once, for it tells of a fault."""
        for why in self.faults():
            self.hear(why)
        return bool(self._heard)

    def hear(self, why: str) -> None:
        """Hear of a fatal fault, from whomever; the next look looks into it."""
        self._heard = self._heard or why

    async def _ask(self) -> ServerState | None:
        """Return the server's state; None while there is no server."""
        if self._server:
            try:
                state, clients = await self.control.look(self._server)
            except MPSGoneError:
                raise
            except MPSError:
                # A server that is gone is told of as an error: look which one there is.
                if self._server in await self.control.servers():
                    raise
            else:
                self.clients = len(clients)
                return state
        servers = await self.control.servers()
        if not servers:
            return None
        before, lost = self._server, self.clients
        state, clients = await self.control.look(servers[0])
        self._server, self.clients = servers[0], len(clients)
        if before and lost:
            self._fault("MPSServerLost", f"MPS server {before} is gone, with {lost} clients")
        return state

    async def _suffer(self, message: str) -> None:
        """Take a fault that a program brought about."""
        if not self.health.has(Source.MPS):
            self._fault("MPSFault", message, all_lost=not await self.alone())

    async def _answered(self, state: ServerState | None, now: float) -> None:
        match state:
            case ServerState.ACTIVE:
                self._well(now)
            case ServerState.FAULT:
                await self._suffer(_FATAL)
                self._restart_after(RESTART_AFTER, now)
            case ServerState.INITIALIZING | None:
                self._starting("MPSStarting", "the MPS server is not ready yet")
                self._restart_after(START_WITHIN, now)

    def _well(self, now: float) -> None:
        self.health.clear(Source.MPS_STARTING)
        if self.health.has(Source.MPS):
            since = self._since if self._since is not None else now
            self._since = since
            if now - since < (TOLD_FOR if self.released() else RELEASED_WITHIN):
                return
            self.health.clear(Source.MPS)
            self._log.info("MPS is well again")
        self.state = "Ready"
        self._since = self._restarted_at = None

    def _gone(self, message: str, now: float) -> None:
        if self.clients and self.state == "Ready":
            self._fault("MPSExited", f"the MPS control daemon has ended: {message}")
        elif not self.health.has(Source.MPS):
            self._starting("MPSStarting", f"the MPS control daemon is not up: {message}")
        self.clients = self._server = 0
        self._restart_after(START_WITHIN, now)

    def _unanswered(self, message: str, now: float) -> None:
        if self._missed < _UNANSWERED:
            self._starting("MPSUnanswered", message)
            return
        self._fault("MPSHung", f"the MPS control daemon does not answer: {message}")
        self._restart_after(0.0, now)

    def _fault(self, reason: str, message: str, *, all_lost: bool = True) -> None:
        """Every client is lost, or will be when the daemon is restarted."""
        self.state = "Faulted"
        if not self.health.has(Source.MPS):
            self._since = None
            self.health.note(Source.MPS, Trouble(reason, message, faulted=all_lost))
            self._log.warning("MPS faulted", reason=reason, message=message, all_lost=all_lost)

    def _starting(self, reason: str, message: str) -> None:
        if self.state != "Faulted":
            self.state = "Starting"
        self.health.note(Source.MPS_STARTING, Trouble(reason, message))

    def _restart_after(self, seconds: float, now: float) -> None:
        """Ask for another daemon when it has been unwell for so long; again, if that is no help."""
        if self._since is None:
            self._since = now
        last = self._restarted_at
        if now - self._since >= seconds and (last is None or now - last >= START_WITHIN):
            self._restarted_at = now
            self._log.warning("asking for another MPS daemon", unwell_for=now - self._since)
            self.restart()
