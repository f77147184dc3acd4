"""The order in which a queue of several tenants is served."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.fair_queue import FairQueue


def drained(queue: FairQueue) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def test_tenants_take_turns_and_each_is_served_in_its_order():
    queue = FairQueue()
    for key in ("a1", "a2", "a3", "b1", "b2"):
        queue.add(key, key[0])
    assert drained(queue) == ["a1", "b1", "a2", "b2", "a3"]


def test_a_lower_rank_comes_first_and_a_key_may_get_one():
    queue = FairQueue()
    queue.add("later", "a", 1)
    queue.add("now", "b", 0)
    queue.add("raised", "a", 1)
    queue.add("raised", "a", 0)
    queue.add("now", "b", 1)
    assert drained(queue) == ["now", "raised", "later"]
    with pytest.raises(IndexError):
        queue.pop()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 9))))
def test_every_key_comes_once_unless_it_was_discarded(added: list[tuple[str, int, int]]):
    queue = FairQueue()
    for tenant, rank, number in added:
        queue.add(f"{tenant}{number}", tenant, rank)
    keys = {f"{tenant}{number}" for tenant, _, number in added}
    gone = {key for key in keys if key.endswith("3")}
    for key in gone:
        queue.discard(key)
    assert sorted(drained(queue)) == sorted(keys - gone)
