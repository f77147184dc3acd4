"""Jobs with more MPS clients than allocated."""

from partita.agent.allocations import AttemptAllocation
from partita.agent.surplus_clients import ABOVE_FOR, ClientCounter

ONE = AttemptAllocation("u1", "team-a", "one", 1, 8 << 30, clients=2)
OTHER = AttemptAllocation("u2", "team-a", "other", 1, 8 << 30, clients=1)


def test_the_newest_client_above_the_allocation_is_found_after_a_moment():
    clients = ClientCounter()
    assert clients.see(0.0, {30: ONE, 10: ONE, 5: OTHER}) == []
    assert clients.see(1.0, {30: ONE, 10: ONE, 20: ONE, 5: OTHER}) == []
    (found,) = clients.see(1.0 + ABOVE_FOR, {30: ONE, 10: ONE, 20: ONE, 5: OTHER})
    assert (found.pid, found.allocation, found.count) == (20, ONE, 3)


def test_one_that_ends_while_its_successor_starts_is_not_too_many():
    clients = ClientCounter()
    clients.see(0.0, {1: OTHER})
    assert clients.see(0.5, {1: OTHER, 2: OTHER}) == []
    assert clients.see(0.9, {2: OTHER}) == []
    assert clients.see(1.6, {2: OTHER, 3: OTHER}) == []
