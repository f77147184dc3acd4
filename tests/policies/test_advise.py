"""Advice says what the model says, over the whole range of what is not known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_policies import GPU, Profile, Step
from partita_policies.interference import load_of, slowdowns
from partita_policies.types import Sharing
from partita_research.advise import (
    MOST_COLOCATED,
    WORTHWHILE,
    Recommendation,
    Strain,
    Subject,
    advise,
)

GIB = 2**30
CARD = GPU("g", "n", 24 * GIB, 8, product="A10", pcie_bandwidth=64 * 10**9)


def subject(name, gpu, gib=2.0, *, core=0.0, pcie=0.0, product=""):
    steps = (Step(gpu, int(gib * GIB), core, pcie),)
    return Subject(Profile(name, 100.0, steps, product=product), int(gib * GIB))


LIGHT = subject("light", 10.0, core=6.0)
HEAVY = subject("heavy", 98.0, 8.0, core=58.0)
HUGE = subject("huge", 50.0, 20.0, core=30.0)
BLIND = subject("blind", 98.0)


def pair(advice, *names):
    (found,) = [one for one in advice.pairs if one.applications == tuple(sorted(names))]
    return found


def test_light_jobs_belong_together_and_heavy_ones_apart() -> None:
    advice = advise([LIGHT, HEAVY], CARD)
    assert pair(advice, "light", "light").verdict is Recommendation.TOGETHER
    assert pair(advice, "light", "light").certain
    assert pair(advice, "heavy", "heavy").verdict is Recommendation.APART
    copies = {one.name: one for one in advice.copies}
    assert copies["heavy"].at_once == 1
    assert copies["heavy"].speedup == copies["heavy"].slowdown == 1
    assert copies["light"].at_once > 4
    assert copies["light"].fitting == 8


def test_a_pair_of_steady_jobs_gets_exactly_what_the_model_says() -> None:
    found = pair(advise([LIGHT, HEAVY], CARD), "light", "heavy")
    loads = [load_of(one.profile.steps[0], CARD) for one in (HEAVY, LIGHT)]
    expected = slowdowns(loads, Sharing.MPS)
    assert found.applications == ("heavy", "light")
    assert found.slowdowns == pytest.approx(expected)
    assert found.speedup == pytest.approx(sum(1 / much for much in expected))
    sliced = slowdowns(loads, Sharing.TIME_SLICING)
    assert found.time_slicing == pytest.approx(sum(1 / much for much in sliced))


def test_phases_count_and_not_their_mean_alone() -> None:
    """Two that are busy half of the time hinder each other; two that are half busy do not."""
    steps = (Step(100.0, GIB, 60.0), Step(0.0, GIB))
    bursts = Subject(Profile("bursts", 100.0, steps), GIB)
    steady = subject("steady", 50.0, 1.0, core=30.0)
    advice = advise([bursts, steady], CARD)
    assert pair(advice, "bursts", "bursts").speedup < pair(advice, "steady", "steady").speedup - 0.1


def test_what_has_no_room_is_not_advised() -> None:
    advice = advise([HUGE, LIGHT], CARD)
    found = pair(advice, "huge", "huge")
    assert (found.verdict, found.slowdowns) == (Recommendation.NO_ROOM, None)
    assert found.strain is Strain.MEMORY
    assert {one.name: one.fitting for one in advice.copies} == {"huge": 1, "light": 8}
    assert [one.name for one in advise([HUGE], GPU("t", "n", 16 * GIB, 8)).copies] == []


def test_the_number_of_jobs_is_a_limit_too() -> None:
    assert advise([LIGHT], GPU("g", "n", 24 * GIB, 3)).copies[0].at_once == 3
    assert advise([LIGHT], GPU("g", "n", 24 * GIB, 2)).copies[0].fitting == 2
    alone = advise([LIGHT], GPU("g", "n", 24 * GIB, 1))
    assert [one.verdict for one in alone.pairs] == [Recommendation.NO_ROOM]
    assert alone.colocations == ()


def test_without_a_measured_occupancy_it_says_that_it_cannot_know() -> None:
    found = pair(advise([BLIND], CARD), "blind", "blind")
    assert found.verdict is Recommendation.UNKNOWN
    assert not found.certain
    assert found.high > WORTHWHILE
    idle = subject("idle", 10.0)  # hardly busy: any occupancy has room
    assert pair(advise([idle], CARD), "idle", "idle").verdict is Recommendation.TOGETHER


def test_a_verdict_is_certain_only_where_the_cache_cannot_turn_it() -> None:
    small, large = (subject(f"{gib}", 90.0, gib, core=50.0) for gib in (0.1, 11.0))
    advice = advise([small, large], CARD)
    assert pair(advice, "0.1", "0.1").certain
    assert not pair(advice, "11.0", "11.0").certain


def test_it_names_what_strains_the_gpu() -> None:
    link = subject("link", 20.0, 0.2, core=5.0, pcie=50e9)
    threads = subject("threads", 90.0, 0.2, core=55.0)
    cache = subject("cache", 60.0, 10.0, core=20.0)
    advice = advise([link, threads, cache], CARD)
    for name, strain in (("link", Strain.PCIE), ("threads", Strain.SM), ("cache", Strain.CACHE)):
        assert pair(advice, name, name).strain is strain
    nothing = subject("nothing", 1.0, 0.1, core=0.5)
    assert pair(advise([nothing], CARD), "nothing", "nothing").strain is Strain.NOTHING


def test_time_slicing_is_advised_where_it_alone_pays() -> None:
    """Half of the time busy, and then it saturates the memory."""
    steps = (Step(60.0, 11 * GIB, 30.0, bandwidth=100.0),)
    found = pair(advise([Subject(Profile("a", 100.0, steps), 11 * GIB)], CARD), "a", "a")
    assert found.speedup < WORTHWHILE <= found.time_slicing
    assert found.verdict is Recommendation.BY_TURNS


def test_the_best_colocation_beats_its_pairs_and_is_not_larger_than_it_says() -> None:
    advice = advise([LIGHT, HEAVY, subject("middle", 40.0, core=20.0)], CARD)
    best = {name: one for one in advice.colocations for name in one.applications}
    assert set(best) == {"light", "heavy", "middle"}
    for one in advice.colocations:
        assert 2 <= len(one.applications) <= MOST_COLOCATED
        assert one.memory <= CARD.memory
    assert max(one.speedup for one in advice.pairs) <= advice.colocations[0].speedup


@pytest.mark.parametrize(
    ("subjects", "said"),
    [
        ([LIGHT, subject("light", 5.0)], "names that differ"),
        ([Subject(Profile("empty", 10.0, ()), GIB)], "empty: its profile has no steps"),
    ],
)
def test_bad_input_is_told(subjects, said) -> None:
    with pytest.raises(ValueError, match=said):
        advise(subjects, CARD)


def test_nothing_to_advise_on_is_no_error() -> None:
    advice = advise([], CARD)
    assert (advice.copies, advice.pairs, advice.colocations) == ((), (), ())


_subjects = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0.1, 20), st.floats(0, 100)), min_size=1, max_size=3
).map(lambda rows: [subject(f"a{i}", g, gib, core=c) for i, (g, gib, c) in enumerate(rows)])


@settings(max_examples=10)
@given(_subjects)
def test_figures_hang_together(subjects) -> None:
    advice = advise(subjects, CARD)
    assert len(advice.pairs) == len(subjects) * (len(subjects) + 1) // 2
    for group in (*advice.pairs, *advice.colocations):
        if group.verdict is Recommendation.NO_ROOM:
            continue
        assert group.low <= group.speedup <= group.high
        assert all(much >= 1 for much in group.slowdowns)
        assert 0 < group.speedup <= len(group.applications) + 1e-9
        if group.verdict is Recommendation.UNKNOWN:
            assert group.low < WORTHWHILE <= group.high
        else:
            assert (group.verdict is Recommendation.TOGETHER) == (group.speedup >= WORTHWHILE)
    for one in advice.copies:
        assert 1 <= one.at_once <= one.fitting
        assert one.at_once == 1 or one.speedup >= WORTHWHILE
