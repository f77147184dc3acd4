"""With which applications a run shared the GPU, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.agent.usage.job_usage import TracePoint
from partita.agent.usage.neighbours import UNKNOWN, NeighbourTimes, shared_run, undisturbed
from partita.agent.usage.profiles import measurement, merge
from partita.models.profile import ApplicationProfileSpec, Environment, application_hash

A, B = application_hash("team", "a"), application_hash("team", "b")
EMPTY = ApplicationProfileSpec(application="resnet")


def run(duration: float, beside) -> ApplicationProfileSpec:
    return measurement([TracePoint(1 << 20, 50.0)], duration, Environment(product="A100"), beside)


def test_the_time_beside_each_group_is_counted():
    times: NeighbourTimes[str] = NeighbourTimes()
    times.add(1.0, {"x": A})
    times.add(2.0, {"x": A, "y": B})
    times.add(4.0, {"x": A, "y": B, "z": A})
    assert times.pop("x") == {(): 1.0, (B,): 2.0, tuple(sorted((A, B))): 4.0}
    assert times.pop("y") == {(A,): 2.0, (A, A): 4.0}
    assert times.pop("x") == {}


def test_a_run_is_described_by_the_parts_of_its_time():
    found = shared_run({(): 5.0, (A,): 10.0, (A, B): 35.0}, 50.04)
    assert found is not None
    assert (found.duration, found.alone) == (50.04, 0.1)
    assert [(g.part, g.applications) for g in found.beside] == [(0.7, (A, B)), (0.2, (A,))]


def test_jobs_that_cannot_be_named_are_not_described():
    assert shared_run({(UNKNOWN,): 10.0}, 10.0) is None
    assert shared_run({(): 10.0}, 10.0) is None
    assert shared_run({}, 10.0) is None


def test_the_names_of_other_namespaces_do_not_appear():
    assert application_hash("secret", "a") != application_hash("team", "a")
    text = str(run(10.0, {(application_hash("secret", "project"),): 10.0}).dump())
    assert "secret" not in text
    assert "project" not in text


@pytest.mark.parametrize(
    ("times", "expected"),
    [({}, False), ({(): 0.0}, False), ({(): 96.0, (A,): 4.0}, True), ({(): 9.0, (A,): 1.0}, False)],
)
def test_a_run_is_undisturbed_if_it_had_the_gpu_to_itself(times, expected):
    assert undisturbed(times) is expected


def test_undisturbed_runs_have_a_length_of_their_own():
    profile = EMPTY
    for new in (run(10.0, {(): 10.0}), run(30.0, {(A,): 30.0}), run(12.0, {(): 12.0})):
        profile = merge(profile, new)
    (measured,) = profile.measurements
    assert measured.undisturbed is not None
    assert (measured.undisturbed.duration, measured.undisturbed.runs) == (11.0, 2)
    assert [one.duration for one in measured.shared_runs] == [30.0]


def test_runs_of_which_nothing_is_known_are_in_neither():
    (measured,) = merge(merge(EMPTY, run(10.0, None)), run(20.0, {})).measurements
    assert (measured.undisturbed, measured.shared_runs) == (None, ())


@given(st.integers(17, 40))
def test_old_runs_are_forgotten(count):
    profile = EMPTY
    for number in range(count):
        profile = merge(profile, run(10.0 + number, {(A,): 1.0}))
    (measured,) = profile.measurements
    assert [one.duration for one in measured.shared_runs] == [
        10.0 + count - 1 - number for number in range(16)
    ]
