"""Processes on a GPU that no allocation covers."""

from types import SimpleNamespace
from typing import Any, cast

from partita.agent.attribution.allocated_processes import AllocatedProcesses, UnknownProcess
from partita.agent.times import AgentTimes

UNKNOWN_AFTER = 10.0
POD = "0b0e3f6e-0000-4000-8000-000000000001"
MEMORY = {1: 100, 2: 200, 3: 300}
PODS = {1: POD, 2: None, 3: "of-a-job"}


def seen(*times: float, read: float | None = 5.0) -> AllocatedProcesses:
    ledger = SimpleNamespace(complete_at=read, by_pod=lambda: {"of-a-job": "entry"})
    pods, sharers = SimpleNamespace(of=lambda _: PODS), SimpleNamespace(read={POD})
    own = AgentTimes(unknown_after=UNKNOWN_AFTER)
    found = AllocatedProcesses(*cast("Any", (ledger, pods, sharers, "server-pod", own)))
    for at in times:
        found.attribute(at, MEMORY)
    return found


def test_they_are_found_after_a_while_in_pods_and_outside():
    assert seen(0.0, UNKNOWN_AFTER - 0.1).unknown == ()
    assert seen(0.0, UNKNOWN_AFTER).unknown == (
        UnknownProcess(1, POD, 100),
        UnknownProcess(2, None, 200),
    )


def test_nothing_is_said_before_the_ledger_was_read_since():
    """Else, with the API server down, a job that has just started would be ended."""
    assert seen(0.0, 100.0, read=None).unknown == ()
    assert seen(10.0, 100.0, read=10.0).unknown == ()
    assert seen(10.0, 100.0, read=10.1).unknown != ()


def test_the_ledger_is_read_again_only_when_a_process_has_to_be_decided_about():
    assert not seen(10.0, 10.1, read=5.0).read_now.is_set()
    assert seen(10.0, 100.0, read=5.0).read_now.is_set()
    assert not seen(10.0, 100.0, read=11.0).read_now.is_set()


def test_one_that_was_away_is_new_again():
    found = seen(0.0)
    found.attribute(5.0, {})
    for at in (6.0, UNKNOWN_AFTER + 1):
        found.attribute(at, MEMORY)
    assert found.unknown == ()
    assert not found.read_now.is_set()
