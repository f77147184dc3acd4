from hypothesis import given
from hypothesis import strategies as st

from partita_policies.segment_tree import NONE, SegmentTree

VALUES = st.lists(st.integers(NONE, 8), max_size=20)


@given(VALUES, st.lists(st.tuples(st.integers(0, 19), st.integers(NONE, 8))))
def test_finds_the_first_that_is_high_enough_after_any_changes(values, changes):
    row = SegmentTree(values)
    for index, value in changes:
        if index < len(values):
            values[index] = value
            row.set(index, value)
    assert row.maximum == max(values, default=NONE)
    assert [row[i] for i in range(len(values))] == values
    for least in range(10):
        for start in range(len(values) + 20):
            shared = [i for i, value in enumerate(values) if i >= start and value >= least]
            assert row.first(least, start) == (shared[0] if shared else NONE)
