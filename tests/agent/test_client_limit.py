"""Jobs with more MPS clients than allocated."""

from agent.entries import job_entry
from partita.agent.limits.violations import EXCESS_FOR, ClientLimit

ONE = job_entry("one", clients=2)
OTHER = job_entry("other", clients=1)


def test_the_newest_client_above_the_allocation_is_found_after_a_moment():
    clients = ClientLimit()
    assert clients.violations(0.0, {30: ONE, 10: ONE, 5: OTHER}) == []
    assert clients.violations(1.0, {30: ONE, 10: ONE, 20: ONE, 5: OTHER}) == []
    (found,) = clients.violations(1.0 + EXCESS_FOR, {30: ONE, 10: ONE, 20: ONE, 5: OTHER})
    assert (found.pid, found.key, found.clients) == (20, ONE.key, 3)
    assert found.used == "attempt 1 used 3 MPS clients with 2 allocated"


def test_one_that_ends_while_its_successor_starts_is_not_too_many():
    clients = ClientLimit()
    clients.violations(0.0, {1: OTHER})
    assert clients.violations(0.5, {1: OTHER, 2: OTHER}) == []
    assert clients.violations(0.9, {2: OTHER}) == []
    assert clients.violations(1.6, {2: OTHER, 3: OTHER}) == []
