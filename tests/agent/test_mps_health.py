"""What the control daemon's answers mean, and when another one is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from partita.agent.errors import MPSError, MPSGarbledError, MPSGoneError, MPSUnansweredError
from partita.agent.health import Health
from partita.agent.mps_control import ServerState
from partita.agent.mps_health import (
    RELEASED_WITHIN,
    RESTART_AFTER,
    START_WITHIN,
    TOLD_FOR,
    MPSWatch,
)

ACTIVE, FAULT, INITIALIZING = ServerState.ACTIVE, ServerState.FAULT, ServerState.INITIALIZING


@dataclass
class Control:
    """Answers as a test wants it."""

    server: int = 0
    state: ServerState = ACTIVE
    pids: list[int] = field(default_factory=list)
    error: MPSError | None = None

    async def servers(self) -> list[int]:
        if self.error is not None:
            raise self.error
        return [self.server] if self.server else []

    async def look(self, server: int) -> tuple[ServerState, list[int]]:
        if self.error is not None:
            raise self.error
        if server != self.server:
            raise MPSGarbledError(f"Server {server} not found")
        return self.state, self.pids


class World:
    def __init__(self) -> None:
        self.control = Control()
        self.health = Health()
        self.restarts: list[float] = []
        self.booked = False
        self.single = False
        self.logged: list[str] = []
        self.now = 0.0
        self.watch = MPSWatch(
            self.control,  # type: ignore[arg-type]
            self.health,
            lambda: self.restarts.append(self.now),
            lambda: not self.booked,
            self.alone,
            self.read,
        )

    async def alone(self) -> bool:
        return self.single

    def read(self) -> list[str]:
        read, self.logged = self.logged, []
        return read

    async def look(self, at: float | None = None) -> tuple[str, bool]:
        """State, and whether all clients are lost."""
        self.now = self.now + 1 if at is None else at
        await self.watch.look(self.now)
        return self.watch.state, self.health.faulted

    async def up(self, *pids: int) -> None:
        self.control.server, self.control.pids = 100, list(pids)
        assert await self.look() == ("Ready", False)
        assert self.health.verdict().ready


@pytest.fixture
def world() -> World:
    return World()


async def test_a_daemon_that_comes_up_faults_nobody(world: World):
    world.control.error = MPSGoneError("none yet")
    assert await world.look() == ("Starting", False)
    world.control.error = None
    assert await world.look() == ("Starting", False)  # it has no server yet
    world.control.server, world.control.state = 100, INITIALIZING
    assert await world.look() == ("Starting", False)
    world.control.state = ACTIVE
    assert await world.look() == ("Ready", False)
    assert world.health.verdict().ready
    assert world.restarts == []


async def test_clients_are_counted(world: World):
    await world.up(7, 8)
    assert world.watch.status() == {"state": "Ready", "clients": 2}


async def test_a_fault_takes_all_and_is_over_when_the_jobs_are_released(world: World):
    await world.up(7)
    world.booked = True
    world.control.state = FAULT
    assert await world.look() == ("Faulted", True)
    assert world.health.verdict().reason == "MPSFault"
    world.control.state, world.control.pids = ACTIVE, []
    assert await world.look() == ("Faulted", True)
    world.booked = False
    assert await world.look(world.now + TOLD_FOR) == ("Ready", False)
    assert world.health.verdict().reason == "Recovered"
    assert world.restarts == []


async def test_a_fault_that_is_over_when_mps_is_asked_is_in_its_log(world: World):
    await world.up(7)
    world.booked = True
    world.logged = ["fatal fault"]
    assert await world.look() == ("Faulted", True)
    verdict = world.health.verdict()
    assert verdict.reason == "MPSFault"
    assert "fatal fault" in verdict.message


async def test_a_fault_that_is_told_of_between_two_looks_asks_for_one(world: World):
    await world.up(7)
    assert not world.watch.listen()
    world.logged = ["fatal fault"]
    assert world.watch.listen()
    world.watch.hear("Xid 31")  # of the same one
    assert await world.look() == ("Faulted", True)
    assert "fatal fault" in world.health.verdict().message
    assert not world.watch.listen(), "it is told of once"


@pytest.mark.parametrize("heard", [True, False])
async def test_the_fault_of_a_job_that_had_the_gpu_to_itself_is_its_own(
    world: World,
    heard: bool,  # noqa: FBT001
):
    await world.up(7)
    world.booked = world.single = True
    if heard:
        world.watch.hear("Xid 31")
    else:
        world.control.state = FAULT
    assert await world.look() == ("Faulted", False)
    assert world.health.verdict().reason == "MPSFault", "and nobody is placed there meanwhile"
    world.control.state, world.control.pids = ACTIVE, []
    assert await world.look() == ("Faulted", False)
    world.booked = world.single = False
    assert await world.look(world.now + TOLD_FOR) == ("Ready", False)


async def test_a_daemon_that_is_gone_is_no_jobs_own_failure(world: World):
    await world.up(7)
    world.booked = world.single = True
    world.control.error = MPSGoneError("gone")
    assert await world.look() == ("Faulted", True)


async def test_a_fault_is_told_for_a_while_even_if_nothing_seems_to_be_booked(world: World):
    await world.up(7)
    world.now = 10
    world.watch.hear("Xid 31")
    assert await world.look(10) == ("Faulted", True)
    assert await world.look(10 + TOLD_FOR - 0.1) == ("Faulted", True)
    assert await world.look(10 + TOLD_FOR) == ("Ready", False)


async def test_an_operator_that_never_releases_is_not_waited_for_without_end(world: World):
    await world.up(7)
    world.booked = True
    world.control.state = FAULT
    await world.look(10)
    world.control.state = ACTIVE
    assert await world.look(10 + RELEASED_WITHIN - 1) == ("Faulted", True)
    assert await world.look(10 + RELEASED_WITHIN) == ("Ready", False)


async def test_a_fault_that_lasts_has_the_daemon_restarted_once_and_later_again(world: World):
    await world.up(7)
    world.control.state = FAULT
    await world.look(10)
    await world.look(10 + RESTART_AFTER - 1)
    assert world.restarts == []
    await world.look(10 + RESTART_AFTER)
    await world.look(11 + RESTART_AFTER)
    assert world.restarts == [10 + RESTART_AFTER]
    await world.look(10 + RESTART_AFTER + START_WITHIN)
    assert len(world.restarts) == 2


async def test_a_daemon_that_exits_with_clients_has_lost_them(world: World):
    await world.up(7)
    world.control.error = MPSGoneError("Cannot find MPS control daemon process")
    assert await world.look() == ("Faulted", True)
    assert world.health.verdict().reason == "MPSExited"
    world.control.error, world.control.server, world.control.pids = None, 200, []
    assert await world.look(world.now + TOLD_FOR) == ("Ready", False)


async def test_a_daemon_that_exits_without_clients_has_lost_nobody(world: World):
    await world.up()
    world.control.error = MPSGoneError("none")
    assert await world.look() == ("Starting", False)
    assert not world.health.verdict().ready


async def test_a_server_that_was_replaced_has_lost_its_clients(world: World):
    await world.up(7)
    world.booked = True
    world.control.server, world.control.pids = 200, []
    assert await world.look() == ("Faulted", True)
    assert world.health.verdict().reason == "MPSServerLost"
    world.booked = False
    assert await world.look(world.now + TOLD_FOR) == ("Ready", False)


async def test_a_server_without_clients_may_be_replaced(world: World):
    await world.up()
    world.control.server = 200
    assert await world.look() == ("Ready", False)


@pytest.mark.parametrize("error", [MPSUnansweredError("late"), MPSGarbledError("noise")])
async def test_one_missing_answer_keeps_new_jobs_away_and_a_second_is_a_hung_daemon(
    world: World, error: MPSError
):
    await world.up(7)
    world.control.error = error
    assert await world.look() == ("Starting", False)
    assert not world.health.verdict().ready
    assert world.restarts == []
    assert await world.look() == ("Faulted", True)
    assert world.health.verdict().reason == "MPSHung"
    assert len(world.restarts) == 1
    world.control.error = None
    world.control.server, world.control.pids = 200, []
    assert await world.look(world.now + TOLD_FOR) == ("Ready", False)


async def test_a_single_missing_answer_is_forgiven(world: World):
    await world.up(7)
    world.control.error = MPSUnansweredError("late")
    await world.look()
    world.control.error = None
    assert await world.look() == ("Ready", False)
    world.control.error = MPSUnansweredError("late")
    assert await world.look() == ("Starting", False)


async def test_a_server_that_never_comes_up_is_asked_for_again(world: World):
    world.control.server, world.control.state = 100, INITIALIZING
    await world.look(1)
    await world.look(START_WITHIN)
    assert world.restarts == []
    await world.look(1 + START_WITHIN)
    assert len(world.restarts) == 1
    assert not world.health.faulted
