"""When a canary is needed, what follows from it, and when MPS is restarted."""

from __future__ import annotations

import pytest

from agent.watched_daemon import JOB, TIMES, WatchedDaemon
from partita.agent.errors import MPSBusyError, MPSGoneError
from partita.agent.health import RELEASED_WITHIN
from partita.agent.mps.canary_check import CanaryOutcome
from partita.agent.mps.client_exits import JobClient
from partita.agent.mps.control import ServerState
from partita.agent.mps.mps_health import FAULT_HELD_FOR, KILL_EXPLAINS

PASSED, REFUSED, HUNG = CanaryOutcome.PASSED, CanaryOutcome.REFUSED, CanaryOutcome.HUNG


@pytest.fixture
def daemon() -> WatchedDaemon:
    return WatchedDaemon()


class TestCanary:
    async def test_none_runs_while_clients_come_and_go(self, daemon: WatchedDaemon):
        await daemon.serves()
        for pids in [[7], [7, 8], [8], [8, 5]]:
            daemon.control.pids = pids
            assert await daemon.check() == ("Ready", False)
        assert daemon.canaries.requests == 1

    async def test_one_runs_after_the_last_client_has_left_and_delays_no_job(
        self, daemon: WatchedDaemon
    ):
        await daemon.up(7)
        daemon.control.pids = []
        daemon.canaries.outcome = None  # it is still running
        for _ in range(3):
            assert await daemon.check() == ("Ready", False)
        assert daemon.canaries.requests == 2
        daemon.canaries.outcome = PASSED
        for _ in range(3):
            assert await daemon.check() == ("Ready", False)
        assert daemon.canaries.requests == 2
        assert daemon.restarts == []

    async def test_a_client_that_came_and_left_between_two_checks_is_checked_after(
        self, daemon: WatchedDaemon
    ):
        await daemon.up()
        daemon.exits.update(1000.0, {7: JobClient(JOB, "")})
        daemon.exits.terminated(7)
        daemon.exits.update(1000.5, {})
        await daemon.check()
        assert daemon.canaries.requests == 2

    async def test_after_an_unclean_end_no_job_is_placed_before_it_has_passed(
        self, daemon: WatchedDaemon
    ):
        await daemon.serves(7, 8)
        daemon.control.pids = [8]
        daemon.ends_uncleanly()
        daemon.canaries.outcome = None
        for _ in range(3):
            assert await daemon.check() == ("Checking", False)
        conditions = daemon.health.conditions()
        assert (conditions.ready, conditions.reason) == (False, "MPSChecking")
        assert "team-a/job was killed" in conditions.message
        killed = {"claim": JOB.uid, "time": "1970-01-01T00:16:40.000000Z"}
        assert daemon.watch.status()["killedClient"] == killed
        daemon.canaries.outcome = PASSED
        assert await daemon.check() == ("Ready", False)
        assert daemon.restarts == []

    async def test_one_that_began_before_the_unclean_end_does_not_suffice(
        self, daemon: WatchedDaemon
    ):
        await daemon.serves(7)
        daemon.control.pids = []
        daemon.canaries.outcome = None
        await daemon.check()
        daemon.control.pids = [8]
        daemon.ends_uncleanly()
        daemon.canaries.outcome = PASSED
        assert await daemon.check() == ("Checking", False)
        await daemon.check()
        assert await daemon.check() == ("Ready", False)
        assert daemon.canaries.requests == 3

    async def test_one_that_hangs_may_be_slow_and_the_next_decides(self, daemon: WatchedDaemon):
        await daemon.serves(7)
        daemon.control.pids = []
        daemon.canaries.outcome = HUNG
        await daemon.check()
        assert await daemon.check() == ("Checking", False)
        assert "hung" in daemon.health.conditions().message
        daemon.canaries.outcome = PASSED
        await daemon.check()
        assert await daemon.check() == ("Ready", False)
        assert daemon.restarts == []

    async def test_two_that_hang_are_a_wedge(self, daemon: WatchedDaemon):
        await daemon.serves(7)
        daemon.control.pids = []
        daemon.canaries.outcome = HUNG
        for _ in range(3):
            assert not (await daemon.check())[1]
        assert await daemon.check() == ("Faulted", True)
        assert daemon.watch.status()["restarts"] == {"Wedged": 1}

    async def test_one_that_hangs_after_an_unclean_end_is_a_wedge(self, daemon: WatchedDaemon):
        await daemon.up(7)
        daemon.allocated = daemon.single = True
        daemon.ends_uncleanly()
        daemon.canaries.outcome = HUNG
        await daemon.check()
        await daemon.faults("MPSWedged")
        assert daemon.restarts == [daemon.now]
        assert daemon.watch.status()["restarts"] == {"Wedged": 1}

    async def test_a_new_mps_that_is_wedged_is_restarted_again(self, daemon: WatchedDaemon):
        await daemon.up(7)
        daemon.watch.report_wedge("it hangs", daemon.now)
        await daemon.check()
        daemon.canaries.outcome = HUNG
        await daemon.restarted()
        await daemon.restarted()
        assert len(daemon.restarts) == 2

    async def test_one_that_hangs_while_a_client_is_terminated_shows_nothing(
        self, daemon: WatchedDaemon
    ):
        """The server refuses new clients meanwhile."""
        await daemon.up(7)
        daemon.ends_uncleanly()
        await daemon.check()
        daemon.terminates = True
        daemon.canaries.outcome = HUNG
        assert await daemon.check() == ("Checking", False)
        assert await daemon.check(daemon.now + 10) == ("Checking", False)
        assert daemon.canaries.requests == 2, "none starts meanwhile"
        daemon.terminates = False
        daemon.canaries.outcome = PASSED
        await daemon.check()
        assert await daemon.check() == ("Ready", False)
        assert daemon.restarts == []

    async def test_one_that_is_refused_is_tried_again(self, daemon: WatchedDaemon):
        await daemon.serves(7)
        daemon.ends_uncleanly()
        daemon.canaries.outcome = REFUSED
        await daemon.check()
        assert await daemon.check() == ("Checking", False)
        daemon.canaries.outcome = PASSED
        await daemon.check(daemon.now + 5)
        assert await daemon.check() == ("Ready", False)

    async def test_an_idle_mps_that_refuses_every_client_is_restarted(self, daemon: WatchedDaemon):
        daemon.canaries.outcome = REFUSED
        daemon.control.server = 100
        for _ in range(3):
            await daemon.check(daemon.now + 5)
            await daemon.check()
        assert daemon.watch.status()["restarts"] == {"CanaryRefused": 1}

    async def test_the_gpu_is_not_ready_before_one_has_ended(self, daemon: WatchedDaemon):
        daemon.canaries.outcome = None
        daemon.control.server = 100
        await daemon.check()
        assert await daemon.check(daemon.now + 60) == ("Checking", False)
        daemon.canaries.outcome = PASSED
        assert await daemon.check() == ("Ready", False)
        assert daemon.canaries.requests == 1


class TestOneUserAtATime:
    """Drivers whose MPS has no server for the clients of all users."""

    async def test_no_canary_waits_behind_the_clients_of_another_user(self, daemon: WatchedDaemon):
        await daemon.up()
        daemon.watch.single_user = daemon.allocated = True
        daemon.exits.ended_unseen = True
        daemon.control.pids = [7]
        await daemon.check()
        assert daemon.canaries.requests == 1
        daemon.control.pids, daemon.canaries.outcome = [], None
        await daemon.check()
        assert daemon.canaries.requests == 2
        daemon.control.pids, daemon.canaries.outcome = [8], HUNG
        assert await daemon.check() == ("Checking", False)
        assert daemon.restarts == []

    async def test_a_server_that_another_users_replaces_has_lost_no_client(
        self, daemon: WatchedDaemon
    ):
        await daemon.up(7)
        daemon.watch.single_user = daemon.allocated = True
        daemon.control.server = 0
        assert await daemon.check() == ("Starting", False)
        daemon.control.server, daemon.control.state = 150, ServerState.INITIALIZING
        assert await daemon.check() == ("Starting", False)
        daemon.logged = ["Server encountered a fatal exception. Shutting down"]
        assert await daemon.check() == ("Starting", False)
        daemon.control.state = ServerState.ACTIVE
        daemon.control.server, daemon.control.pids = 200, [8]
        assert await daemon.check() == ("Ready", False)
        assert daemon.restarts == []


class TestWedge:
    async def test_all_clients_are_lost_until_a_new_mps_has_passed_a_canary(
        self, daemon: WatchedDaemon
    ):
        await daemon.serves(7)
        daemon.watch.report_wedge("terminate_client 7 did not return", daemon.now)
        assert daemon.restarts == [daemon.now], "at once"
        await daemon.faults("MPSWedged")
        daemon.allocated = False
        for _ in range(3):  # the old server is not taken for the new one
            assert await daemon.check(daemon.now + TIMES.fault_shown_for) == ("Faulted", True)
        assert daemon.canaries.requests == 1
        daemon.canaries.outcome = None
        await daemon.restarted()
        assert await daemon.check(daemon.now + TIMES.fault_shown_for) == ("Faulted", True)
        daemon.canaries.outcome = PASSED
        assert await daemon.check() == ("Ready", False)

    async def test_after_a_fault_it_makes_nobody_a_suspect(self, daemon: WatchedDaemon):
        await daemon.up(7)
        daemon.watch.report_fault("Xid 31")
        await daemon.check()
        daemon.watch.report_wedge("the canary hung", daemon.now)
        await daemon.faults("MPSWedged")

    async def test_a_termination_that_takes_long_is_no_hung_daemon(self, daemon: WatchedDaemon):
        await daemon.up(7)
        daemon.control.error = MPSBusyError("another command")
        for _ in range(5):
            assert await daemon.check() == ("Ready", False)
        assert daemon.restarts == []


class TestRestartWhenIdle:
    async def test_the_last_client_after_an_unclean_end_has_mps_restarted(
        self, daemon: WatchedDaemon
    ):
        await daemon.serves(7, 8)
        daemon.ends_uncleanly()
        daemon.control.pids = [8]
        await daemon.check()
        assert await daemon.check() == ("Ready", False)
        daemon.control.pids = []
        assert await daemon.check() == ("Checking", False)
        daemon.allocated = False
        assert await daemon.check() == ("Starting", False)
        assert daemon.watch.status()["restarts"] == {"UncleanEnd": 1}
        await daemon.restarted()
        assert daemon.watch.state == "Ready"
        assert len(daemon.restarts) == 1

    async def test_it_waits_for_the_release_so_that_a_jobs_next_program_is_not_lost(
        self, daemon: WatchedDaemon
    ):
        await daemon.serves(7)
        daemon.ends_uncleanly(killed=False)
        daemon.control.pids = []
        for _ in range(3):
            assert await daemon.check() == ("Checking", False)
        daemon.control.pids = [8]
        assert await daemon.check() == ("Ready", False)
        daemon.control.pids = []
        assert await daemon.check(daemon.now + RELEASED_WITHIN) == ("Ready", False)
        assert daemon.restarts == []

    async def test_a_daemon_that_was_replaced_has_no_unclean_end(self, daemon: WatchedDaemon):
        await daemon.serves()
        daemon.ends_uncleanly()
        daemon.control.error = MPSGoneError("gone")
        await daemon.check()
        daemon.allocated = False
        await daemon.restarted()
        assert daemon.watch.state == "Ready"
        assert daemon.restarts == []


class TestFaultOfAKilledClient:
    async def faults_after_an_end(self, daemon: WatchedDaemon) -> None:
        await daemon.serves(7, 8)
        daemon.exits.update(1000.0, {7: JobClient(JOB, "")})
        daemon.exits.update(1000.5, {})
        daemon.watch.report_fault("Xid 31")

    async def test_it_makes_nobody_a_suspect(self, daemon: WatchedDaemon):
        await daemon.serves(7, 8)
        daemon.ends_uncleanly()
        daemon.watch.report_fault("Xid 31")
        await daemon.faults("MPSClientKilled")

    async def test_a_fault_waits_until_it_is_known_how_the_client_ended(
        self, daemon: WatchedDaemon
    ):
        await self.faults_after_an_end(daemon)
        await daemon.check(daemon.now + 0.1)
        assert not daemon.health.faulted
        assert not daemon.health.conditions().ready
        daemon.ends_uncleanly()
        await daemon.exits.decide(1001.0, gone)
        await daemon.faults("MPSClientKilled", at=daemon.now + 0.1)

    async def test_it_waits_only_for_a_moment(self, daemon: WatchedDaemon):
        await self.faults_after_an_end(daemon)
        await daemon.check()
        await daemon.faults("MPSFault", at=daemon.now + FAULT_HELD_FOR)

    @pytest.mark.parametrize("killed", [True, False])
    async def test_another_programs_fault_is_not_explained_by_it(
        self,
        daemon: WatchedDaemon,
        killed: bool,  # noqa: FBT001
    ):
        await daemon.serves(7, 8)
        daemon.ends_uncleanly(killed=killed)
        daemon.watch.report_fault("Xid 31")
        await daemon.check(daemon.now + (KILL_EXPLAINS if killed else 0.1))
        assert daemon.health.conditions().reason == "MPSFault"


async def gone(_: object) -> None:
    """The Pod does not exist any more."""
