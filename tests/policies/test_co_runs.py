"""What runs beside other jobs say about predictions."""

from math import exp, inf, log, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies import CoRun, Profile, Sharing
from partita_policies.co_runs import (
    MOST,
    PRIOR_RUNS,
    SPREAD,
    ObservedRun,
    co_runs,
    factor,
    margin,
    pair_factors,
    spread,
)
from partita_policies.interference import Load, slowdowns

amounts = st.one_of(st.floats(), st.floats(0.01, 100))
parts = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), amounts), max_size=4)
any_runs = st.lists(st.builds(ObservedRun, amounts, amounts, parts.map(tuple)), max_size=8)


def beside(observed: float, *names: str, predicted: float = 1.0, part: float = 1.0) -> ObservedRun:
    return ObservedRun(observed, predicted, tuple((name, part) for name in names))


def knows(*found: CoRun, application: str = "x") -> Profile:
    return Profile(application, 10.0, (), co_runs=found)


def test_runs_beside_one_application_are_averaged():
    (found,) = co_runs([beside(1.2), beside(1.5, "a"), beside(1.8, "a", predicted=1.5)])
    assert found.application == "a"
    assert found.ratio == pytest.approx((1.5 * 1.2) ** 0.5)
    assert found.samples == 2


def test_a_slower_run_beside_two_is_attributed_to_both():
    first, second = co_runs([beside(1.44, "a", "b")])
    assert first.ratio == second.ratio == pytest.approx(1.2)
    assert first.samples == second.samples == 0.5
    # Both together explain the run.
    assert first.ratio * second.ratio == pytest.approx(1.44)
    (found,) = co_runs([beside(1.44, "a", "a")])
    assert found.ratio == pytest.approx(1.2)


def test_a_short_time_beside_another_job_counts_little_and_a_very_short_one_nothing():
    (half,) = co_runs([beside(1.1, "a", part=0.5)])
    assert half.samples == 0.5
    assert half.ratio == pytest.approx(1.21)  # the other half of the run was alone
    assert co_runs([beside(1.1, "a", part=0.05)]) == ()


@pytest.mark.parametrize("wrong", [0.0, -1.0, nan, inf, -inf])
def test_nonsense_says_nothing(wrong):
    assert co_runs([beside(wrong, "a"), beside(1.0, "a", predicted=wrong)]) == ()
    assert co_runs([beside(1.5, "a", part=wrong)]) == ()
    assert factor(knows(CoRun("a", wrong, 5.0)), "a") == 1
    assert factor(knows(CoRun("a", 1.5, wrong)), "a") == 1


@given(any_runs, st.randoms())
def test_the_order_of_runs_does_not_matter(found, random):
    shuffled = random.sample(found, len(found))
    there, again = co_runs(found), co_runs(shuffled)
    assert [one.application for one in there] == [one.application for one in again]
    for one, other in zip(there, again, strict=True):
        assert (one.ratio, one.samples) == pytest.approx((other.ratio, other.samples))


@given(any_runs)
def test_evidence_is_bounded_whatever_was_seen(found):
    profile = knows(*co_runs(found))
    for other in ("", "a", "b", "c"):
        assert 1 / MOST <= factor(profile, other) <= MOST
        assert 0 < spread(profile, other) <= SPREAD


@given(st.floats(1 / MOST, MOST), st.floats(0.1, 1e3), st.floats(0.1, 1e3))
def test_more_evidence_counts_for_more(ratio, few, more):
    few, more = sorted((few, more))
    weak, strong = knows(CoRun("a", ratio, few)), knows(CoRun("a", ratio, more))
    assert abs(log(factor(weak, "a"))) <= abs(log(factor(strong, "a"))) + 1e-12
    assert abs(log(factor(strong, "a"))) <= abs(log(ratio)) + 1e-12
    assert spread(strong, "a") <= spread(weak, "a")


def test_as_many_runs_as_the_prediction_is_worth_move_it_half_way():
    profile = knows(CoRun("a", 1.5, PRIOR_RUNS))
    assert factor(profile, "a") == pytest.approx(exp(log(1.5) / 2))


def test_without_evidence_the_prediction_stands_and_is_uncertain():
    assert factor(None, "a") == factor(knows(), "a") == factor(knows(CoRun("b", 1.5, 9)), "a") == 1
    assert spread(None, "a") == spread(knows(), "a") == SPREAD
    assert pair_factors([knows(), None]) is None


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 100))
def test_a_margin_is_for_what_is_unknown_of_jobs_that_are_busy_together(busy, other, samples):
    known = knows(CoRun("a", 1.5, samples))
    assert 1 <= margin(known, "a", busy, other) <= margin(None, "a", busy, other) <= 1 + SPREAD
    assert margin(None, "a", 0.0, other) == 1
    assert margin(None, "a", 1.0, 1.0) == 1 + SPREAD


def test_each_job_is_corrected_by_its_own_profile():
    slowed = knows(CoRun("y", 1.5, 1e6))
    other = knows(application="y")
    factors = pair_factors([slowed, other, None])
    assert factors is not None
    assert factors == pytest.approx([1, 1.5, 1, 1, 1, 1, 1, 1, 1], abs=1e-5)
    loads = [Load(0.3, 0.3, 0.0, 1.0, 0.0)] * 3
    assert slowdowns(loads, Sharing.MPS) == [1.0, 1.0, 1.0]
    assert slowdowns(loads, Sharing.MPS, factors) == pytest.approx([1.5, 1.0, 1.0], abs=1e-5)
