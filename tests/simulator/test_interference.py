"""The model of how jobs that share a GPU slow each other down."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_policies import GPU, Sharing, Step
from partita_policies.interference import (
    SWITCH_OVERHEAD,
    TYPICAL_CACHE,
    Load,
    load_of,
    slowdowns,
    stretches,
)

_shares = st.floats(0, 1)
_loads = st.builds(
    Load,
    busy=_shares,
    sm=_shares,
    pcie=_shares,
    memory=st.floats(0, 40),
    cache=_shares,
    limit=st.floats(0.05, 1),
)
_queues = st.lists(_loads, min_size=1, max_size=6)
_all = settings(deadline=None)


@_all
@given(st.lists(st.floats(0, 1.2), max_size=8))
def test_a_resource_is_shared_out_whole_and_not_more(demands):
    stretched = stretches(demands)
    used = sum(demand / stretch for demand, stretch in zip(demands, stretched, strict=True))
    assert used == pytest.approx(min(1, sum(demands)), abs=1e-6)
    assert all(stretch >= 1 for stretch in stretched)


@_all
@given(_queues, st.sampled_from(Sharing))
def test_nobody_is_faster_than_alone(loads, sharing):
    assert all(slowdown >= 1 for slowdown in slowdowns(loads, sharing))


@_all
@given(_queues, _loads)
def test_one_more_neighbour_makes_nobody_faster(loads, another):
    for sharing in Sharing:
        before = slowdowns(loads, sharing)
        after = slowdowns([*loads, another], sharing)
        assert all(new >= old - 1e-6 for old, new in zip(before, after, strict=False))


@_all
@given(st.lists(_loads, min_size=2, max_size=5), st.randoms())
def test_the_order_of_the_jobs_does_not_matter(loads, random):
    order = list(range(len(loads)))
    random.shuffle(order)
    straight = slowdowns(loads, Sharing.MPS)
    shuffled = slowdowns([loads[index] for index in order], Sharing.MPS)
    assert shuffled == pytest.approx([straight[index] for index in order])


def test_a_thread_limit_slows_only_who_asks_for_more():
    full, half = Load(1, 1, 0, 1, 0, 0.5), Load(0.4, 0.4, 0, 1, 0, 0.5)
    assert slowdowns([full], Sharing.MPS) == [2]
    assert slowdowns([half], Sharing.MPS) == [1]
    assert slowdowns([full, half], Sharing.MPS) == pytest.approx([2, 1])


def test_taking_turns_costs_the_switches_and_leaves_the_cache_alone():
    load = Load(1, 1, 0, 8, 1)
    assert slowdowns([load, load], Sharing.TIME_SLICING) == pytest.approx([2 * SWITCH_OVERHEAD] * 2)
    assert slowdowns([load, load], Sharing.MPS)[0] > 2 * SWITCH_OVERHEAD


def test_what_was_not_measured_follows_the_gpu_and_unknown_links_are_free():
    card = GPU("gpu", "node", 1 << 34, 8, pcie_bandwidth=10**10)
    assert load_of(Step(gpu=50, memory=1 << 30), card) == Load(0.5, 0.5, 0, 1, TYPICAL_CACHE)
    assert load_of(Step(gpu=80, memory=0, core=30, pcie=5e9), card, cache=0.1) == Load(
        0.8, 0.5, 0.5, 0, 0.1
    )
    unknown = GPU("gpu", "node", 1 << 34, 8)
    assert load_of(Step(gpu=80, memory=0, pcie=5e9), unknown).pcie == 0
