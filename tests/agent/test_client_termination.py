"""When the clients of a Pod that is being ended are terminated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from partita.agent.allocations import AttemptAllocation, Release
from partita.agent.client_termination import ReleaseTimes
from partita.pods.termination import TERMINATE_BEFORE_KILL

SINCE = datetime(2026, 1, 2, tzinfo=UTC)
GRACE = 37.0


def due(*calls: tuple[float, float], grace: float = GRACE) -> float:
    """Return the time after calls at a monotonic and a node's time, both since the mark."""
    release = Release(SINCE, SINCE + timedelta(seconds=grace))
    allocation = AttemptAllocation("uid", "team-a", "train", 1, 1 << 30, release=release)
    times, found = ReleaseTimes(), {}
    for now, clock in calls:
        found = times.update({allocation.key: allocation}, now, SINCE + timedelta(seconds=clock))
    return found[allocation.key] + TERMINATE_BEFORE_KILL


def test_the_last_clients_go_shortly_before_the_pod_is_killed():
    assert due((100.0, 0.0)) == 137.0


@pytest.mark.parametrize("seconds", [1.0, 20.0])
def test_of_two_clocks_the_one_that_leaves_less_time_counts(seconds: float):
    assert due((100.0, -seconds)) == 137.0  # the node's clock is behind
    assert due((100.0, seconds)) == 137.0 - seconds  # it is ahead, or the mark came late
    assert due((100.0, -seconds), (110.0, 10.0 - seconds)) == 137.0


def test_an_agent_that_starts_meanwhile_knows_the_time_from_the_ledger():
    assert due((5.0, 30.0)) == 12.0


def test_what_is_not_being_released_has_no_such_time():
    allocation = AttemptAllocation("uid", "team-a", "train", 1, 1 << 30)
    assert ReleaseTimes().update({allocation.key: allocation}, 0.0, SINCE) == {}
