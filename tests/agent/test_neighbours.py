"""With which applications a run shared the GPU, and for how long."""

import json

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
    times.add(-9.0, {"x": A, "y": B})  # the clock was set back
    times.add(2.0, {"x": A, "y": B})
    times.add(4.0, {"x": A, "y": B, "z": A})
    assert times.pop("x") == {(): 1.0, (B,): 2.0, tuple(sorted((A, B))): 4.0}
    assert times.pop("y") == {(A,): 2.0, (A, A): 4.0}
    assert times.pop("x") == {}


def test_a_run_beside_ever_new_jobs_takes_no_more_memory():
    times: NeighbourTimes[str] = NeighbourTimes()
    for number in range(500):
        times.add(1.0, {"x": A, "y": f"{number:016x}"})
        times.pop("y")
    times.add(1.0, {"x": A})
    found = times.pop("x")
    assert len(found) <= 66
    assert sum(found.values()) == 501
    assert found[()] == 1.0


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


ALONE, SHARED = {(): 1.0}, {(A,): 1.0}


@pytest.mark.parametrize(
    ("runs", "duration", "use", "undisturbed"),
    [
        ([(10, 90, ALONE), (30, 30, SHARED), (12, 88, ALONE)], 11, 89, 2),
        ([(30, 30, SHARED), (10, 90, ALONE), (40, 20, SHARED)], 10, 90, 1),
        ([(30, 30, SHARED), (40, 20, SHARED)], 35, 25, 0),
    ],
)
def test_duration_and_use_are_those_of_undisturbed_runs_if_there_are_any(
    runs, duration, use, undisturbed
):
    profile = EMPTY
    for seconds, percent, beside in runs:
        usage = [TracePoint(int(seconds) << 20, percent, percent)]
        profile = merge(profile, measurement(usage, seconds, Environment(), beside))
    (measured,) = profile.measurements
    (step,) = measured.steps
    assert (measured.duration, measured.undisturbed) == (duration, undisturbed)
    assert (step.gpu_utilization, step.sm_occupancy) == (use, use)
    assert (measured.runs, len(measured.shared_runs)) == (len(runs), len(runs) - undisturbed)
    # Memory is that of all runs: it does not depend on other jobs.
    assert step.gpu_memory >= runs[-1][0] << 20


def test_runs_of_which_nothing_is_known_are_in_neither():
    (measured,) = merge(merge(EMPTY, run(10.0, None)), run(20.0, {})).measurements
    assert (measured.undisturbed, measured.shared_runs) == (0, ())


@given(st.integers(17, 40))
def test_old_runs_are_forgotten(count):
    profile = EMPTY
    for number in range(count):
        profile = merge(profile, run(10.0 + number, {(A,): 1.0}))
    (measured,) = profile.measurements
    assert [one.duration for one in measured.shared_runs] == [
        10.0 + count - 1 - number for number in range(12)
    ]


def test_the_largest_profile_fits_into_an_object():
    """Of etcd, which takes 1.5 MiB: https://etcd.io/docs/latest/dev-guide/limit/."""
    crowd = [tuple(f"{number:015x}{group:x}" for number in range(16)) for group in range(8)]
    profile = EMPTY
    for _ in range(16):
        usage = [TracePoint(1 << 35, 33.33, 33.33, 123456789.0)] * 64
        new = measurement(usage, 1234.567, Environment(node="n" * 63), dict.fromkeys(crowd, 1.0))
        profile = merge(profile, new)
    (measured,) = profile.measurements
    assert (len(measured.shared_runs), len(measured.shared_runs[0].beside)) == (12, 8)
    most_products = 32
    assert most_products * len(json.dumps(measured.dump(), separators=(",", ":"))) < 1.5 * 2**20
