"""What Xids, errors and temperatures mean, and the way back."""

from __future__ import annotations

import pytest

from partita.agent.gpu_health import GPUWatch, Vitals
from partita.agent.health import QUIET, Health, Source, Trouble, XidKind, xid_kind
from partita.agent.mps_health import RELEASED_WITHIN
from partita.agent.nvml import GPUEvent

WELL = Vitals(errors=0, temperature=50, shutdown=95)


class World:
    def __init__(self) -> None:
        self.health = Health()
        self.booked = True
        self.watch = GPUWatch(self.health, lambda: not self.booked)


@pytest.fixture
def world() -> World:
    return World()


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
def test_a_programs_own_fault_leaves_the_gpu_well(world: World, xid: int):
    assert not world.watch.event(GPUEvent(xid), 0.0)
    assert world.health.verdict().ready


def test_an_xid_faults_the_gpu_says_which_and_is_forgiven_after_quiet_and_release(world: World):
    assert world.watch.event(GPUEvent(79), 100.0)
    verdict = world.health.verdict()
    assert (verdict.reason, verdict.fault is not None) == ("XidError", True)
    assert "Xid 79" in verdict.message
    assert "reset" in verdict.message
    world.watch.look(WELL, 100.0 + QUIET[XidKind.RESET] - 1)
    world.booked = False
    world.watch.look(WELL, 100.0 + QUIET[XidKind.RESET] - 1)
    assert not world.health.verdict().ready
    world.watch.look(WELL, 100.0 + QUIET[XidKind.RESET])
    assert world.health.verdict().ready


def test_a_later_xid_that_is_milder_does_not_shorten_the_wait(world: World):
    world.booked = False
    world.watch.event(GPUEvent(79), 0.0)
    world.watch.event(GPUEvent(62), 10.0)
    world.watch.look(WELL, QUIET[XidKind.FAULT] + 11)
    assert not world.health.verdict().ready
    world.watch.look(WELL, QUIET[XidKind.RESET] + 10)
    assert world.health.verdict().ready


def test_jobs_that_were_lost_are_released_first_but_not_waited_for_without_end(world: World):
    world.watch.event(GPUEvent(62), 0.0)
    world.watch.look(WELL, QUIET[XidKind.FAULT])
    assert not world.health.verdict().ready
    world.watch.look(WELL, QUIET[XidKind.FAULT] + RELEASED_WITHIN)
    assert world.health.verdict().ready


def test_new_memory_errors_fault_and_old_ones_do_not(world: World):
    world.booked = False
    world.watch.look(Vitals(7, 50, 95), 0.0)
    assert world.health.verdict().ready
    world.watch.look(Vitals(9, 50, 95), 1.0)
    assert "2 memory errors" in world.health.verdict().message
    world.watch.look(Vitals(9, 50, 95), 1.0 + QUIET[XidKind.FAULT])
    assert world.health.verdict().ready
    world.watch.look(Vitals(0, 50, 95), 200.0)  # it was reset
    world.watch.look(Vitals(1, 50, 95), 201.0)
    assert world.health.faulted


def test_heat_keeps_new_jobs_away_and_leaves_running_ones(world: World):
    world.watch.look(Vitals(0, 95, 95), 0.0)
    verdict = world.health.verdict()
    assert (verdict.ready, verdict.reason, verdict.fault) == (False, "TooHot", None)
    world.watch.look(WELL, 5.0)
    assert world.health.verdict().ready


def test_what_a_gpu_cannot_tell_is_not_held_against_it(world: World):
    world.watch.look(Vitals(None, None, None), 0.0)
    world.watch.look(Vitals(None, 99, None), 5.0)
    assert world.health.verdict().ready


def test_a_lost_gpu_is_back_when_it_answers_and_its_jobs_are_released(world: World):
    assert world.watch.lost("GPU is lost", 0.0)
    assert not world.watch.lost("GPU is lost", 1.0)
    assert world.health.verdict().reason == "GPULost"
    world.watch.answers()  # a straggler's word: it has to be found anew
    assert world.health.faulted
    world.watch.found(5.0)
    assert world.watch.is_lost
    world.booked = False
    world.watch.found(6.0)
    assert not world.watch.is_lost
    assert world.health.verdict().ready


def test_a_driver_that_does_not_answer_keeps_new_jobs_away(world: World):
    assert world.watch.silent()
    assert world.health.verdict().reason == "NVMLHangs"
    assert not world.health.faulted
    world.watch.answers()
    assert world.health.verdict().ready
