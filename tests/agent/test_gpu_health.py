"""What Xids and errors mean, and the way back."""

from __future__ import annotations

import pytest

from partita.agent.errors import GPULostError, NVMLError
from partita.agent.gpu.gpu_health import GPUHealth
from partita.agent.health import RELEASED_WITHIN, Health, HealthProblem, Source
from partita.agent.mps.unlisted_clients import UnlistedClients
from partita.agent.times import AgentTimes
from partita.models.quantities import MEBI

TIMES = AgentTimes()
WELL = None
"""Drivers before 565 do not tell which recovery the GPU needs."""


class WatchedGPU:
    def __init__(self) -> None:
        self.health = Health()
        self.allocated = True
        self.watch = GPUHealth(self.health, lambda: not self.allocated, TIMES)
        self.watch.check(WELL, 0.0)


@pytest.fixture
def gpu() -> WatchedGPU:
    return WatchedGPU()


def test_a_gpu_of_which_nothing_is_wrong_is_ready():
    conditions = Health().conditions()
    assert (conditions.ready, conditions.reason, conditions.fault) == (True, "AgentReporting", None)


def test_a_problem_by_which_work_is_lost_is_reported_before_others():
    health = Health()
    health.set(Source.GPU, HealthProblem("NVMLHangs", "no answer"))
    assert health.conditions().fault is None
    health.set(Source.MPS, HealthProblem("MPSFault", "all is lost", faulted=True))
    conditions = health.conditions()
    assert (conditions.ready, conditions.reason, conditions.message) == (
        False,
        "MPSFault",
        "all is lost",
    )
    assert conditions.fault is not None
    health.set(Source.MPS, None)
    assert health.conditions().reason == "NVMLHangs"
    health.set(Source.GPU, None)
    assert (health.conditions().ready, health.conditions().reason) == (True, "Recovered")


def test_an_unknown_xid_after_one_that_asks_for_a_reset_does_not_hide_it(gpu: WatchedGPU):
    gpu.watch.event(79, 0.0)
    gpu.watch.event(154, 0.0)  # the recovery action has changed: to which, NVML omits
    conditions = gpu.health.conditions()
    assert conditions.fault is not None
    assert conditions.message.startswith("Xid 79")


def test_an_xid_faults_the_gpu_says_which_and_is_forgiven_after_quiet_and_release(gpu: WatchedGPU):
    gpu.watch.event(79, 100.0)
    conditions = gpu.health.conditions()
    assert (conditions.reason, conditions.fault is not None) == ("XidError", True)
    assert "Xid 79" in conditions.message
    assert "reset" in conditions.message
    gpu.watch.check(WELL, 100.0 + TIMES.quiet_after_reset - 1)
    gpu.allocated = False
    gpu.watch.check(WELL, 100.0 + TIMES.quiet_after_reset - 1)
    assert not gpu.health.conditions().ready
    gpu.watch.check(WELL, 100.0 + TIMES.quiet_after_reset)
    assert gpu.health.conditions().ready


def test_a_later_xid_that_is_milder_does_not_shorten_the_wait(gpu: WatchedGPU):
    gpu.allocated = False
    gpu.watch.event(79, 0.0)
    gpu.watch.event(9999, 10.0)
    gpu.watch.check(WELL, TIMES.quiet_after_unknown + 11)
    assert not gpu.health.conditions().ready
    gpu.watch.check(WELL, TIMES.quiet_after_reset + 10)
    assert gpu.health.conditions().ready


def test_jobs_that_were_lost_are_released_first_but_not_waited_for_without_end(gpu: WatchedGPU):
    gpu.watch.event(62, 0.0)
    gpu.watch.check(WELL, TIMES.quiet_after_reset)
    assert not gpu.health.conditions().ready
    gpu.watch.check(WELL, TIMES.quiet_after_reset + RELEASED_WITHIN)
    assert gpu.health.conditions().ready


def test_a_gpu_takes_no_jobs_while_the_driver_asks_for_a_recovery(gpu: WatchedGPU):
    gpu.allocated = False
    gpu.watch.event(95, 0.0)
    long_after = TIMES.quiet_after_reset + 1
    gpu.watch.check(1, long_after)
    conditions = gpu.health.conditions()
    assert (conditions.ready, conditions.reason) == (False, "RecoveryNeeded")
    assert "reset the GPU" in conditions.message
    gpu.watch.check(WELL, 2 * long_after)
    assert not gpu.health.conditions().ready, "NVML has failed: what it said last holds"
    gpu.watch.check(0, 2 * long_after)
    assert gpu.health.conditions().ready


@pytest.mark.parametrize("allocated", [True, False])
@pytest.mark.parametrize("xid", [95, 9999])
def test_a_driver_that_asks_for_no_recovery_is_believed_once_it_has_had_time_to_ask(
    gpu: WatchedGPU, xid: int, *, allocated: bool
):
    gpu.allocated = allocated
    gpu.watch.event(xid, 0.0)
    gpu.watch.check(0, 1.0)
    assert not gpu.health.conditions().ready
    gpu.watch.check(0, RELEASED_WITHIN)
    assert gpu.health.conditions().ready


def test_a_contained_error_keeps_no_jobs_away(gpu: WatchedGPU):
    gpu.watch.event(94, 101.0)
    conditions = gpu.health.conditions()
    assert (conditions.ready, conditions.reason) == (True, "ECCError")
    assert "one program" in conditions.message
    assert gpu.health.serves_containers


def test_a_fault_is_explained_by_failing_hardware_at_the_same_time(gpu: WatchedGPU):
    gpu.watch.event(94, 0.0)
    gpu.health.set(Source.MPS, HealthProblem("MPSFault", "all is lost", faulted=True))
    conditions = gpu.health.conditions()
    assert (conditions.ready, conditions.reason) == (False, "ECCError")
    assert conditions.fault is not None
    assert conditions.fault.reason == "MPSFault"


def test_what_was_heard_of_a_lost_gpu_before_does_not_bring_it_back(gpu: WatchedGPU):
    gpu.watch.sampling_error = GPULostError("it is lost")
    gpu.watch.answered(None, 1.0)
    assert gpu.health.conditions().reason == "GPULost"
    assert gpu.health.faulted


def test_a_driver_that_fails_or_does_not_answer_keeps_new_jobs_away(gpu: WatchedGPU):
    late = TIMES.samples_within + 1
    gpu.watch.answered(None, late)
    assert gpu.health.conditions().reason == "NVMLHangs"
    gpu.watch.sampling_error = NVMLError("IRQ")
    gpu.watch.answered(None, late)
    assert gpu.health.conditions().message == "IRQ"
    assert not gpu.health.faulted
    gpu.watch.sampled(late)
    gpu.watch.answered(None, late)
    assert gpu.health.conditions().ready


def test_a_client_that_nvml_does_not_list_matters_if_memory_came_with_it():
    health = Health()
    clients = UnlistedClients(health, TIMES)
    later = TIMES.samples_within
    clients.check(frozenset({1}), {1: MEBI}, 600 * MEBI, 0.0)
    clients.check(frozenset({1, 2}), {1: MEBI}, 600 * MEBI, 1.0)  # it only counted the GPUs
    clients.check(frozenset({1, 2}), {1: MEBI}, 600 * MEBI, 1.0 + later)
    assert health.conditions().ready
    clients.check(frozenset({1, 2, 3}), {1: MEBI, 3: 0}, 1600 * MEBI, 2.0 + later)
    assert health.conditions().reason == "ClientsNotListed"
    clients.check(
        frozenset({3}), {1: MEBI, 3: 0}, 1600 * MEBI, 3.0 + later
    )  # it may be about to be listed
    assert health.conditions().ready
    clients.check(frozenset({3}), {1: MEBI, 3: 0}, 1600 * MEBI, 2.0 + 2 * later)
    conditions = health.conditions()
    assert (conditions.ready, conditions.fault) == (False, None)
    assert "(PID 3), and 1000Mi of no process" in conditions.message
