"""Which variables a job's containers get, and from what amounts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models.quantities import MEBI
from partita.pods.pytorch_options import limit_allocator
from pods.builders import an_allocation


@given(
    total=st.integers(1, 200 * 1024).map(lambda m: m * MEBI),
    share=st.floats(0, 1),
    processes=st.integers(1, 48),
)
def test_no_process_is_given_more_than_its_share(total, share, processes):
    memory = max(MEBI * processes, int(total * share))
    allocation = an_allocation(memory=memory, total_memory=total)
    limit = allocation.process_memory(processes)
    assert limit % MEBI == 0
    assert MEBI <= limit <= memory // processes
    written = Fraction(str(allocation.process_fraction(processes)))
    assert written * total <= min(limit, total)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "per_process_memory_fraction:0.25"),
        ("backend:native", "backend:native,per_process_memory_fraction:0.25"),
        ("per_process_memory_fraction:0.9", "per_process_memory_fraction:0.25"),
        (" a:[256:1,512:2] , per_process_memory_fraction : 1,b:c,",
         "a:[256:1,512:2],b:c,per_process_memory_fraction:0.25"),
    ],
)  # fmt: skip
def test_the_fraction_joins_the_user_s_allocator_options(options, expected):
    assert limit_allocator(options, 0.25) == expected


@given(st.text())
def test_any_allocator_options_end_in_our_fraction_once(options):
    limited = limit_allocator(options, 0.5)
    assert limited.endswith("per_process_memory_fraction:0.5")
    assert limit_allocator(limited, 0.5) == limited


@pytest.mark.parametrize(
    "changes",
    [
        {"uuids": ()},
        {"attempt": 0},
        {"thread_percent": 0},
        {"memory": 1000},
        {"uuids": ("GPU-1", "GPU-2")},
    ],
)
def test_a_grant_that_cannot_be_carried_out_is_refused(changes):
    with pytest.raises(ValueError):
        an_allocation(**changes)
