"""Processes on a GPU that no allocation covers."""

from partita.agent.attribution.allocated_processes import UnknownProcess, UnknownProcessTracker
from partita.agent.times import AgentTimes

UNKNOWN_AFTER = 10.0
POD = "0b0e3f6e-0000-4000-8000-000000000001"
MEMORY = {1: 100, 2: 200, 3: 300}
PODS = {1: POD, 2: None, 3: POD}


def seen(
    *times: float, known: tuple[int, ...] = (3,), read: float | None = 5.0
) -> UnknownProcessTracker:
    found = UnknownProcessTracker(AgentTimes(unknown_after=UNKNOWN_AFTER))
    for at in times:
        found.update(at, MEMORY, PODS, known, read)
    return found


def test_they_are_found_after_a_while_in_pods_and_outside():
    assert seen(0.0, UNKNOWN_AFTER - 0.1).found == ()
    assert seen(0.0, UNKNOWN_AFTER).found == (
        UnknownProcess(1, POD, 100),
        UnknownProcess(2, None, 200),
    )


def test_nothing_is_said_before_the_ledger_was_read_since():
    """Else, with the API server down, a job that has just started would be ended."""
    assert seen(0.0, 100.0, read=None).found == ()
    assert seen(10.0, 100.0, read=10.0).found == ()
    assert seen(10.0, 100.0, read=10.1).found != ()


def test_the_ledger_is_read_again_only_when_a_process_has_to_be_decided_about():
    assert not seen(10.0, 10.1, read=5.0).ledger_outdated
    assert seen(10.0, 100.0, read=5.0).ledger_outdated
    assert not seen(10.0, 100.0, read=11.0).ledger_outdated


def test_one_that_was_away_is_new_again():
    found = seen(0.0)
    found.update(5.0, {}, {}, (), 6.0)
    found.update(6.0, MEMORY, PODS, (3,), 7.0)
    found.update(UNKNOWN_AFTER + 1, MEMORY, PODS, (3,), 9.0)
    assert found.found == ()
