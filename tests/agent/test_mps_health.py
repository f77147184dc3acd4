"""What the control daemon's answers mean, and when another one is asked for."""

from __future__ import annotations

import pytest

from agent.watched_daemon import TIMES, WatchedDaemon
from partita.agent.errors import MPSError, MPSGarbledError, MPSGoneError, MPSUnansweredError
from partita.agent.health import RELEASED_WITHIN
from partita.agent.mps.control import ServerState
from partita.agent.mps.mps_health import START_WITHIN

ACTIVE, FAULT, INITIALIZING = ServerState.ACTIVE, ServerState.FAULT, ServerState.INITIALIZING


@pytest.fixture
def daemon() -> WatchedDaemon:
    return WatchedDaemon()


async def test_a_daemon_that_starts_is_no_fault(daemon: WatchedDaemon):
    daemon.control.error = MPSGoneError("none yet")
    assert await daemon.check() == ("Starting", False)
    daemon.control.error = None
    assert await daemon.check() == ("Starting", False)  # it has no server yet
    daemon.control.server, daemon.control.state = 100, INITIALIZING
    assert await daemon.check() == ("Starting", False)
    daemon.control.state = ACTIVE
    assert await daemon.check() == ("Checking", False)
    assert await daemon.check() == ("Ready", False)
    assert daemon.health.conditions().ready
    assert daemon.restarts == []


async def test_a_server_that_does_not_start_is_no_programs_fault(daemon: WatchedDaemon):
    """k8s-device-plugin#685."""
    daemon.logged = ["Server encountered a fatal exception. Shutting down"]
    assert await daemon.check() == ("Starting", False)
    conditions = daemon.health.conditions()
    assert conditions.reason == "MPSStarting"
    assert "Server encountered a fatal exception" in conditions.message


async def test_clients_are_counted(daemon: WatchedDaemon):
    await daemon.up(7, 8)
    assert daemon.watch.status()["clients"] == 2
    daemon.control.pids = [7, 8, 9]  # 9 is the canary
    await daemon.check()
    assert daemon.watch.status()["clients"] == 2


async def test_a_fault_loses_all_clients_and_ends_when_the_jobs_are_released(daemon: WatchedDaemon):
    await daemon.serves(7)
    daemon.control.state = FAULT
    await daemon.faults("MPSFault")
    daemon.control.state, daemon.control.pids = ACTIVE, []
    assert await daemon.check() == ("Faulted", True)
    daemon.allocated = False
    assert await daemon.check(daemon.now + TIMES.fault_shown_for) == ("Ready", False)
    assert daemon.health.conditions().reason == "Recovered"
    assert daemon.restarts == []


async def test_a_fault_that_is_reported_between_two_checks_requests_one(daemon: WatchedDaemon):
    await daemon.up(7)
    assert not daemon.watch.read_log()
    daemon.logged = ["fatal fault"]
    assert daemon.watch.read_log()
    daemon.watch.report_fault("Xid 31")  # of the same one
    assert await daemon.check() == ("Faulted", True)
    assert "fatal fault" in daemon.health.conditions().message
    assert not daemon.watch.read_log(), "it is told of once"


@pytest.mark.parametrize("reported", [True, False])
async def test_the_fault_of_a_job_that_had_the_gpu_to_itself_is_its_own(
    daemon: WatchedDaemon,
    reported: bool,  # noqa: FBT001
):
    await daemon.up(7)
    daemon.allocated = daemon.single = True
    if reported:
        daemon.watch.report_fault("Xid 31")
    else:
        daemon.control.state = FAULT
    assert await daemon.check() == ("Faulted", False)
    assert daemon.health.conditions().reason == "MPSFault", "and nobody is placed there meanwhile"
    daemon.control.state, daemon.control.pids = ACTIVE, []
    assert await daemon.check() == ("Faulted", False)
    daemon.allocated = daemon.single = False
    assert await daemon.check(daemon.now + TIMES.fault_shown_for) == ("Ready", False)


async def test_a_fault_is_shown_for_a_while_even_without_allocations(daemon: WatchedDaemon):
    await daemon.up(7)
    daemon.now = 10
    daemon.watch.report_fault("Xid 31")
    assert await daemon.check(10) == ("Faulted", True)
    assert await daemon.check(10 + TIMES.fault_shown_for - 0.1) == ("Faulted", True)
    assert await daemon.check(10 + TIMES.fault_shown_for) == ("Ready", False)


async def test_an_operator_that_never_releases_is_not_waited_for_without_end(daemon: WatchedDaemon):
    await daemon.serves(7)
    daemon.control.state = FAULT
    await daemon.check(10)
    daemon.control.state = ACTIVE
    assert await daemon.check(10 + RELEASED_WITHIN - 1) == ("Faulted", True)
    assert await daemon.check(10 + RELEASED_WITHIN) == ("Ready", False)


async def test_a_fault_that_lasts_has_the_daemon_restarted_once_and_later_again(
    daemon: WatchedDaemon,
):
    await daemon.up(7)
    daemon.control.state = FAULT
    await daemon.check(10)
    await daemon.check(10 + TIMES.fault_restart - 1)
    assert daemon.restarts == []
    await daemon.check(10 + TIMES.fault_restart)
    await daemon.check(11 + TIMES.fault_restart)
    assert daemon.restarts == [10 + TIMES.fault_restart]
    await daemon.check(10 + TIMES.fault_restart + START_WITHIN)
    assert len(daemon.restarts) == 2


async def test_a_daemon_that_exits_with_clients_has_lost_them_even_that_of_a_single_job(
    daemon: WatchedDaemon,
):
    await daemon.up(7)
    daemon.allocated = daemon.single = True
    daemon.control.error = MPSUnansweredError("no answer")
    assert await daemon.check() == ("Starting", False)
    daemon.control.error = MPSGoneError("Cannot find MPS control daemon process")
    await daemon.faults("MPSExited")
    daemon.allocated = False
    await daemon.restarted()
    assert await daemon.check(daemon.now + TIMES.fault_shown_for) == ("Ready", False)


async def test_a_daemon_that_exits_without_clients_is_no_fault(daemon: WatchedDaemon):
    await daemon.up()
    daemon.control.error = MPSGoneError("none")
    assert await daemon.check() == ("Starting", False)
    assert not daemon.health.conditions().ready


async def test_a_server_that_was_replaced_has_lost_its_clients(daemon: WatchedDaemon):
    await daemon.serves(7)
    daemon.control.server, daemon.control.pids = 200, []
    await daemon.faults("MPSServerLost")
    daemon.allocated = False
    assert await daemon.check(daemon.now + TIMES.fault_shown_for) == ("Ready", False)


async def test_a_server_that_vanishes_has_lost_its_clients_and_mps_is_restarted(
    daemon: WatchedDaemon,
):
    """With protocol 3 the daemon starts no other one."""
    await daemon.serves(7)
    daemon.control.server = 0
    await daemon.faults("MPSServerLost")
    assert daemon.restarts == [daemon.now]


async def test_a_server_without_clients_may_be_replaced(daemon: WatchedDaemon):
    await daemon.up()
    daemon.control.server = 200
    assert await daemon.check() == ("Checking", False)
    assert await daemon.check() == ("Ready", False)


@pytest.mark.parametrize("error", [MPSUnansweredError("late"), MPSGarbledError("noise")])
async def test_one_missing_answer_keeps_new_jobs_away_and_a_second_is_a_hung_daemon(
    daemon: WatchedDaemon, error: MPSError
):
    await daemon.up(7)
    daemon.control.error = error
    assert await daemon.check() == ("Starting", False)
    assert not daemon.health.conditions().ready
    assert daemon.restarts == []
    await daemon.faults("MPSHung")
    assert len(daemon.restarts) == 1
    await daemon.restarted()
    assert await daemon.check(daemon.now + TIMES.fault_shown_for) == ("Ready", False)


async def test_a_single_missing_answer_is_forgiven(daemon: WatchedDaemon):
    await daemon.up(7)
    daemon.control.error = MPSUnansweredError("late")
    await daemon.check()
    daemon.control.error = None
    assert await daemon.check() == ("Ready", False)
    daemon.control.error = MPSUnansweredError("late")
    assert await daemon.check() == ("Starting", False)


async def test_a_server_that_never_comes_up_is_asked_for_again(daemon: WatchedDaemon):
    daemon.control.server, daemon.control.state = 100, INITIALIZING
    await daemon.check(1)
    await daemon.check(START_WITHIN)
    assert daemon.restarts == []
    await daemon.check(1 + START_WITHIN)
    assert len(daemon.restarts) == 1
    assert not daemon.health.faulted
