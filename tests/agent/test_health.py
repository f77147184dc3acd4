"""What Xids, errors and temperatures mean, and the way back."""

from __future__ import annotations

import pytest

from partita.agent.gpu_health import GPUWatch, Vitals
from partita.agent.health import QUIET, Health, Source, Trouble, XidKind, xid_kind
from partita.agent.mps_health import RELEASED_WITHIN
from partita.agent.nvml import GPUEvent

WELL = Vitals(errors=0, temperature=50, shutdown=95)


class WatchedGPU:
    def __init__(self) -> None:
        self.health = Health()
        self.allocated = True
        self.watch = GPUWatch(self.health, lambda: not self.allocated)


@pytest.fixture
def gpu() -> WatchedGPU:
    return WatchedGPU()


def test_a_gpu_of_which_nothing_is_wrong_is_ready():
    verdict = Health().verdict()
    assert (verdict.ready, verdict.reason, verdict.fault) == (True, "AgentReporting", None)


def test_trouble_that_takes_programs_is_told_before_trouble_that_does_not():
    health = Health()
    health.note(Source.GPU, Trouble("NVMLHangs", "no answer"))
    assert health.verdict().fault is None
    health.note(Source.MPS, Trouble("MPSFault", "all is lost", faulted=True))
    verdict = health.verdict()
    assert (verdict.ready, verdict.reason, verdict.message) == (False, "MPSFault", "all is lost")
    assert verdict.fault is not None
    health.clear(Source.MPS)
    assert health.verdict().reason == "NVMLHangs"
    health.clear(Source.GPU)
    assert (health.verdict().ready, health.verdict().reason) == (True, "Recovered")


@pytest.mark.parametrize(
    ("xid", "kind"),
    [(31, "application"), (94, "application"), (79, "reset"), (48, "reset"), (9999, "fault")],
)
def test_an_xid_that_is_in_no_list_is_a_fault(xid: int, kind: str):
    assert xid_kind(xid)[0] == kind


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_a_programs_own_fault_leaves_the_gpu_well(gpu: WatchedGPU, xid: int):
    assert not gpu.watch.event(GPUEvent(xid), 0.0)
    assert gpu.health.verdict().ready


def test_an_xid_faults_the_gpu_says_which_and_is_forgiven_after_quiet_and_release(gpu: WatchedGPU):
    assert gpu.watch.event(GPUEvent(79), 100.0)
    verdict = gpu.health.verdict()
    assert (verdict.reason, verdict.fault is not None) == ("XidError", True)
    assert "Xid 79" in verdict.message
    assert "reset" in verdict.message
    gpu.watch.look(WELL, 100.0 + QUIET[XidKind.RESET] - 1)
    gpu.allocated = False
    gpu.watch.look(WELL, 100.0 + QUIET[XidKind.RESET] - 1)
    assert not gpu.health.verdict().ready
    gpu.watch.look(WELL, 100.0 + QUIET[XidKind.RESET])
    assert gpu.health.verdict().ready


def test_a_later_xid_that_is_milder_does_not_shorten_the_wait(gpu: WatchedGPU):
    gpu.allocated = False
    gpu.watch.event(GPUEvent(79), 0.0)
    gpu.watch.event(GPUEvent(62), 10.0)
    gpu.watch.look(WELL, QUIET[XidKind.FAULT] + 11)
    assert not gpu.health.verdict().ready
    gpu.watch.look(WELL, QUIET[XidKind.RESET] + 10)
    assert gpu.health.verdict().ready


def test_jobs_that_were_lost_are_released_first_but_not_waited_for_without_end(gpu: WatchedGPU):
    gpu.watch.event(GPUEvent(62), 0.0)
    gpu.watch.look(WELL, QUIET[XidKind.FAULT])
    assert not gpu.health.verdict().ready
    gpu.watch.look(WELL, QUIET[XidKind.FAULT] + RELEASED_WITHIN)
    assert gpu.health.verdict().ready


def test_new_memory_errors_fault_and_old_ones_do_not(gpu: WatchedGPU):
    gpu.allocated = False
    gpu.watch.look(Vitals(7, 50, 95), 0.0)
    assert gpu.health.verdict().ready
    gpu.watch.look(Vitals(9, 50, 95), 1.0)
    assert "2 memory errors" in gpu.health.verdict().message
    gpu.watch.look(Vitals(9, 50, 95), 1.0 + QUIET[XidKind.FAULT])
    assert gpu.health.verdict().ready
    gpu.watch.look(Vitals(0, 50, 95), 200.0)  # it was reset
    gpu.watch.look(Vitals(1, 50, 95), 201.0)
    assert gpu.health.faulted


def test_heat_keeps_new_jobs_away_and_leaves_running_ones(gpu: WatchedGPU):
    gpu.watch.look(Vitals(0, 95, 95), 0.0)
    verdict = gpu.health.verdict()
    assert (verdict.ready, verdict.reason, verdict.fault) == (False, "TooHot", None)
    gpu.watch.look(WELL, 5.0)
    assert gpu.health.verdict().ready


def test_what_a_gpu_cannot_tell_is_not_held_against_it(gpu: WatchedGPU):
    gpu.watch.look(Vitals(None, None, None), 0.0)
    gpu.watch.look(Vitals(None, 99, None), 5.0)
    assert gpu.health.verdict().ready


def test_a_lost_gpu_is_back_when_it_answers_and_its_jobs_are_released(gpu: WatchedGPU):
    assert gpu.watch.lost("GPU is lost", 0.0)
    assert not gpu.watch.lost("GPU is lost", 1.0)
    assert gpu.health.verdict().reason == "GPULost"
    gpu.watch.answers()  # a straggler's word: it has to be found anew
    assert gpu.health.faulted
    gpu.watch.found(5.0)
    assert gpu.watch.is_lost
    gpu.allocated = False
    gpu.watch.found(6.0)
    assert not gpu.watch.is_lost
    assert gpu.health.verdict().ready


def test_a_driver_that_does_not_answer_keeps_new_jobs_away(gpu: WatchedGPU):
    assert gpu.watch.silent()
    assert gpu.health.verdict().reason == "NVMLHangs"
    assert not gpu.health.faulted
    gpu.watch.answers()
    assert gpu.health.verdict().ready
