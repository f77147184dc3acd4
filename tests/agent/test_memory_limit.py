"""Which process is terminated when a job exceeds its memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.entries import job_entry
from partita.agent.allocations import LedgerEntry
from partita.agent.limits.job_limits import LimitedUse
from partita.agent.limits.violations import (
    LARGEST_CONTEXT,
    SETTLED_AFTER,
    SMALLEST_CONTEXT,
    ContextSize,
    memory_violations,
)
from support.builders import an_allocation

MIB = 1 << 20


def allocation(name: str = "train", memory: int = 1000) -> LedgerEntry:
    return job_entry(name, memory=memory * MIB)


def test_a_process_above_it_goes_and_its_neighbour_does_not():
    mine, other = allocation(), allocation("other", 500)
    (found,) = memory_violations({1: 2000 * MIB, 2: 400 * MIB}, {1: mine, 2: other}, 300 * MIB)
    assert (found.pid, found.key) == (1, mine.key)
    assert found.used == "attempt 1 used 2000Mi of GPU memory with 1000Mi allocated"


def test_a_job_with_a_ceiling_may_use_that_much():
    entry = an_allocation(memory=1000 * MIB, memoryLimit="3000Mi")
    mine = LedgerEntry.of("claim-train", entry)
    assert memory_violations({1: 3200 * MIB}, {1: mine}, 300 * MIB) == []
    assert len(memory_violations({1: 3400 * MIB}, {1: mine}, 300 * MIB)) == 1


def test_each_process_may_have_a_context():
    mine = allocation()
    memory = {1: 800 * MIB, 2: 800 * MIB}
    assert memory_violations(memory, dict.fromkeys(memory, mine), 300 * MIB) == []
    assert len(memory_violations(memory, dict.fromkeys(memory, mine), 299 * MIB)) == 1


def test_a_job_that_the_driver_limits_goes_only_if_the_driver_counts_too_much():
    mine = allocation()
    limit = LimitedUse(used=1600 * MIB, limit=1600 * MIB)
    memory = {1: 900 * MIB, 2: 700 * MIB}
    jobs = dict.fromkeys(memory, mine)
    assert memory_violations(memory, jobs, 0, {mine.key: limit}) == []
    above = LimitedUse(used=1601 * MIB, limit=1600 * MIB)
    (found,) = memory_violations(memory, jobs, 0, {mine.key: above})
    assert (found.pid, found.terminate) == (1, True)


def test_memory_that_the_driver_does_not_limit_is_only_reported():
    mine = allocation()
    limit = LimitedUse(used=500 * MIB, limit=1600 * MIB)
    (found,) = memory_violations({1: 2000 * MIB}, {1: mine}, 0, {mine.key: limit})
    assert (found.pid, found.terminate) == (1, False)


def test_processes_of_no_job_are_left_alone():
    assert memory_violations({1: 9000 * MIB}, {}, 0) == []


def test_the_context_is_the_smallest_memory_of_a_settled_process():
    contexts = ContextSize()
    assert contexts.bytes == LARGEST_CONTEXT
    contexts.add(0.0, {1: 20 * MIB})  # it is still being made
    assert contexts.bytes == LARGEST_CONTEXT
    contexts.add(SETTLED_AFTER, {1: 300 * MIB, 2: 10 * MIB})
    assert contexts.bytes == 300 * MIB
    contexts.add(SETTLED_AFTER + 1, {1: 5000 * MIB})
    assert contexts.bytes == 300 * MIB
    contexts.add(SETTLED_AFTER + 2, {1: 5 * MIB})  # it is being freed
    assert contexts.bytes == SMALLEST_CONTEXT


def test_a_process_with_nothing_yet_tells_nothing_of_contexts():
    contexts = ContextSize()
    contexts.add(0.0, {1: 0})
    contexts.add(10.0, {1: 0})
    assert contexts.bytes == LARGEST_CONTEXT


@given(
    st.dictionaries(st.integers(1, 20), st.integers(0, 5000), max_size=10),
    st.integers(1, 4000),
    st.integers(0, 600),
)
def test_ending_one_after_the_other_comes_to_an_end_within_the_allocation(
    sizes, allocated, context
):
    memory = {pid: size * MIB for pid, size in sizes.items()}
    mine = allocation(memory=allocated)
    while found := memory_violations(memory, dict.fromkeys(memory, mine), context * MIB):
        (one,) = found
        assert memory[one.pid] == max(memory.values())
        del memory[one.pid]
    assert sum(memory.values()) <= (allocated + context * len(memory)) * MIB
