"""What a job is predicted to load a GPU with, and for how long."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies import GPU, Job, Profile, Snapshot, Step
from partita_policies.forecast import (
    MAX_PHASES,
    UNKNOWN_DURATION,
    mean_load,
    outlook_of,
    phases_of,
    typical_duration,
)
from support.strategies import GIB

GPU_0 = GPU("g0", "n0", 12 * GIB, 7, product="TITAN Xp", pcie_bandwidth=32 * 10**9)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10), st.floats(0, 100)), min_size=1),
    st.floats(1, 10_000),
)
def test_phases_keep_the_duration_and_the_mean_of_a_profile(steps, seconds) -> None:
    given = Profile("a", seconds, tuple(Step(g, m * GIB, c) for g, m, c in steps))
    phases = phases_of(given, GPU_0)
    assert 1 <= len(phases) <= MAX_PHASES
    assert sum(phase.seconds for phase in phases) == pytest.approx(seconds)
    loads = [phases_of(replace(given, steps=(step,)), GPU_0)[0].load for step in given.steps]
    for i, value in enumerate(mean_load(phases)):
        assert value == pytest.approx(sum(load[i] for load in loads) / len(loads), abs=1e-9)


def test_amounts_below_zero_are_taken_as_zero() -> None:
    wrong = Profile("wrong", 100.0, (Step(-50.0, -9 * GIB, -5.0, -1e9), Step(90.0, -GIB)))
    for phase in phases_of(wrong, GPU_0):
        assert all(amount >= 0 for amount in phase.load)


def test_unknown_durations_are_those_of_the_known_jobs() -> None:
    known = [Job(str(i), str(i), "n", GIB, duration=float(i)) for i in (10, 20, 90)]
    unknown = Job("x", "x", "n", GIB)
    snapshot = Snapshot("p", 0.0, (*known, unknown), (GPU_0,))
    assert typical_duration(snapshot) == 20.0
    assert typical_duration(replace(snapshot, jobs=(unknown,))) == UNKNOWN_DURATION
    assert outlook_of(unknown, GPU_0, 20.0).duration == 20.0
