"""MPSHealth beside a daemon, canaries and a ledger that answer as a test wants."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from typing_extensions import override

from agent.entries import job_entry
from partita.agent.errors import MPSError, MPSGarbledError
from partita.agent.health import Health
from partita.agent.mps.canary_check import CanaryCheck, CanaryOutcome, CanaryResult
from partita.agent.mps.client_exits import ClientExits, UncleanEnd
from partita.agent.mps.control import ServerState
from partita.agent.mps.mps_health import MPSHealth
from partita.agent.times import AgentTimes

__all__ = ["JOB", "TIMES", "WatchedDaemon"]

TIMES = AgentTimes()
JOB = job_entry("job")


@dataclass
class Control:
    """Answers as a test wants it."""

    server: int = 0
    state: ServerState = ServerState.ACTIVE
    pids: list[int] = field(default_factory=list)
    error: MPSError | None = None

    async def servers(self) -> list[int]:
        if self.error is not None:
            raise self.error
        return [self.server] if self.server else []

    async def status(self, server: int) -> tuple[ServerState, list[int]]:
        if self.error is not None:
            raise self.error
        if server != self.server:
            raise MPSGarbledError(f"Server {server} not found")
        return self.state, self.pids


@dataclass
class Canaries:
    """Canaries that end at once, or when the test says so."""

    outcome: CanaryOutcome | None = CanaryOutcome.PASSED
    requests: int = 0
    pids: frozenset[int] = frozenset({9})

    def run(self) -> Canary:
        self.requests += 1
        return Canary(self)


class Canary(asyncio.Future[CanaryResult]):
    """One that shows what the test says when it is asked."""

    def __init__(self, canaries: Canaries) -> None:
        super().__init__()
        self._canaries = canaries

    @override
    def done(self) -> bool:
        return self._canaries.outcome is not None

    @override
    def result(self) -> CanaryResult:
        assert self._canaries.outcome is not None
        return CanaryResult(self._canaries.outcome, 0.5, "slow")


class WatchedDaemon:
    def __init__(self) -> None:
        self.control = Control()
        self.canaries = Canaries()
        self.exits = ClientExits()
        self.terminates = False
        self.health = Health()
        self.restarts: list[float] = []
        self.allocated = False
        self.single = False
        self.logged: list[str] = []
        self.now = 0.0
        self.watch = MPSHealth(
            control=lambda: self.control,  # type: ignore[arg-type, return-value]
            health=self.health,
            canary=CanaryCheck(self.canaries, lambda: self.terminates),  # type: ignore[arg-type]
            exits=self.exits,
            restart=lambda: self.restarts.append(self.now),
            released=lambda: not self.allocated,
            has_single_job=self.has_single_job,
            new_faults=self.read,
            times=TIMES,
        )

    async def has_single_job(self) -> bool:
        return self.single

    def read(self) -> list[str]:
        read, self.logged = self.logged, []
        return read

    async def check(self, at: float | None = None) -> tuple[str, bool]:
        """State, and whether all clients are lost."""
        self.now = self.now + 1 if at is None else at
        await self.watch.check(self.now)
        return self.watch.state, self.health.faulted

    async def up(self, *pids: int) -> None:
        """MPS runs, and a canary has passed."""
        self.control.server, self.control.pids = 100, list(pids)
        assert await self.check() == ("Checking", False)
        assert not self.health.conditions().ready
        assert await self.check() == ("Ready", False)
        assert self.health.conditions().ready

    async def serves(self, *pids: int) -> None:
        """It has allocations too."""
        await self.up(*pids)
        self.allocated = True

    async def faults(self, reason: str, at: float | None = None) -> None:
        """At the next check, all clients are lost."""
        assert await self.check(at) == ("Faulted", True)
        assert self.health.conditions().reason == reason

    async def restarted(self, server: int = 200) -> None:
        """Another MPS runs, and a canary has passed."""
        self.control.error = None
        self.control.server, self.control.pids = server, []
        await self.check()
        await self.check()

    def ends_uncleanly(self, *, killed: bool = True) -> None:
        self.watch.report_unclean_end(UncleanEnd(JOB, 1000.0, killed), self.now)
