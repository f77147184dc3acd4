"""The mean of the last minute."""

import pytest

from partita.agent.usage.job_usage import MovingMean


def mean_of(*parts: tuple[int, float], step: float = 0.1) -> float | None:
    """The mean after so many seconds of each value."""
    mean, at = MovingMean(), 1000.0
    for seconds, value in parts:
        for _ in range(round(seconds / step)):
            at += step
            mean.add(at, value)
    return mean.value


def test_nothing_measured_has_no_mean():
    mean = MovingMean()
    mean.add(1.0, None)
    assert mean.value is None


def test_it_is_the_mean_of_the_first_seconds_and_later_mostly_of_the_last_minute():
    assert mean_of((2, 0.0), (2, 100.0)) == pytest.approx(50, abs=4)
    assert mean_of((3600, 0.0), (60, 100.0)) == pytest.approx(86, abs=1)


@pytest.mark.parametrize("step", [0.1, 1.0])
def test_it_does_not_depend_on_how_often_it_is_sampled(step: float):
    assert mean_of((600, 80.0), (30, 20.0), step=step) == pytest.approx(42, abs=1)


def test_a_clock_that_is_set_back_does_no_harm():
    mean = MovingMean()
    for at, value in ((100.0, 30.0), (101.0, 30.0), (50.0, 0.0), (51.0, 0.0)):
        mean.add(at, value)
    assert mean.value is not None
    assert 0 < mean.value < 30
