from hypothesis import given
from hypothesis import strategies as st

from partita_policies.segment_tree import NONE, SegmentTree

HEIGHTS = st.lists(st.integers(NONE, 8), max_size=20)


@given(HEIGHTS, st.lists(st.tuples(st.integers(0, 19), st.integers(NONE, 8))))
def test_finds_the_first_that_is_high_enough_after_any_changes(heights, changes):
    row = SegmentTree(heights)
    for index, height in changes:
        if index < len(heights):
            heights[index] = height
            row.set(index, height)
    assert row.highest == max(heights, default=NONE)
    assert [row[i] for i in range(len(heights))] == heights
    for least in range(10):
        for start in range(len(heights) + 20):
            high = [i for i, height in enumerate(heights) if i >= start and height >= least]
            assert row.first(least, start) == (high[0] if high else NONE)
