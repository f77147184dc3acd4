"""The model of how jobs that share a GPU slow each other down."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_policies import GPU, Sharing, Step
from partita_policies.interference import (
    CACHE_BOUND,
    SM_OF_BUSY,
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
    memory=st.floats(0, 140),
    cache=_shares,
    limit=st.floats(0.05, 1),
    bandwidth=_shares,
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
    assert load_of(Step(gpu=50, memory=1 << 30), card) == Load(
        0.5, 0.5 * SM_OF_BUSY, 0, 1, TYPICAL_CACHE
    )
    assert load_of(Step(gpu=80, memory=0, core=30, pcie=5e9), card, cache=0.1) == Load(
        0.8, 0.5, 0.5, 0, 0.1
    )
    unknown = GPU("gpu", "node", 1 << 34, 8)
    assert load_of(Step(gpu=80, memory=0, pcie=5e9), unknown).pcie == 0


@_all
@given(_shares, _shares, _shares)
def test_large_jobs_are_still_worth_sharing_a_gpu(busy, sm, bandwidth):
    """The cache costs jobs that fill an H200 no more than it could cost small ones."""
    job = Load(busy, sm, 0, 40, TYPICAL_CACHE, bandwidth=bandwidth)
    assert sum(1 / each for each in slowdowns([job, job], Sharing.MPS)) > 0.6


def test_a_lost_cache_is_not_lost_again():
    sensitive = Load(1, 0.1, 0, 70, 1)
    assert slowdowns([sensitive] * 2, Sharing.MPS) == pytest.approx([1 + CACHE_BOUND] * 2)


def test_jobs_that_need_few_threads_wait_for_the_memory():
    decode = Load(1, 0.3, 0, 10, 0, bandwidth=0.9)
    assert slowdowns([decode] * 2, Sharing.MPS) == pytest.approx([1.8, 1.8])


def test_the_clusters_own_co_runs_correct_the_prediction():
    job = Load(0.5, 0.5, 0, 1, 0)
    factors = [1, 1.3, 0.5, 1]
    assert slowdowns([job] * 2, Sharing.MPS, factors) == pytest.approx([1.3, 1])


def test_more_jobs_than_a_gpu_takes_are_refused():
    with pytest.raises(ValueError, match="129 jobs on a GPU: at most 128"):
        slowdowns([Load(0, 0, 0, 0, 0)] * 129, Sharing.MPS)
