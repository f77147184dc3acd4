"""What bench-load makes of its samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.load.figures import Figure
from bench.load.samples import Sample, figures, read_page
from bench.load.trend import trend

START = Sample(
    time=0.0,
    done=0,
    present=100,
    waiting=5,
    memory=80.0,
    cpu=2.0,
    cycles=10,
    cycle_seconds=0.5,
    writes=50,
    api_cpu=9.0,
    etcd=20.0,
    load=1.0,
)


def measured(samples: list[Sample], since: float) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(samples, since)}


def test_a_line_is_found_with_its_slope_and_without_doubt():
    found = trend([0, 1, 2, 3, 4, 5, 6, 7], [10, 12, 14, 16, 18, 20, 22, 24])
    assert found.slope == pytest.approx(2)
    assert found.margin == pytest.approx(0, abs=1e-9)
    assert (found.first, found.last) == (11, 23)
    assert found.growth == pytest.approx(100 * 12 / 11)


def test_a_slope_that_is_chance_lies_within_its_margin():
    found = trend(range(8), [10, 11, 9, 10, 11, 9, 10, 10.5])
    assert abs(found.slope) < found.margin


def test_no_trend_is_told_from_three_points():
    with pytest.raises(ValueError, match="3 points"):
        trend([0, 1, 2], [1, 2, 3])


def test_a_page_is_summed_up_over_its_labels():
    page = 'partita_queue_jobs{partition="a"} 2.0\npartita_queue_jobs{partition="b"} 3.0\nother 7\n'
    assert read_page(page) == {"partita_queue_jobs": 5, "other": 7}


def test_steady_work_is_flat_and_what_it_costs_is_told_by_job_and_cycle():
    steady = [
        replace(
            START,
            time=5.0 * n,
            done=100 * n,
            cpu=2 + 2.0 * n,
            cycles=10 + 40 * n,
            cycle_seconds=0.5 + 0.2 * n,
            writes=50 + 400 * n,
            api_cpu=9 + 4.0 * n,
        )
        for n in range(200)
    ]
    told = measured(steady, since=100)
    assert told["CPU a job, operator: last quarter"].value == pytest.approx(20)
    assert told["CPU a job, operator by API server: last quarter"].value == pytest.approx(0.5)
    assert told["time per cycle: first quarter"].value == pytest.approx(5)
    assert told["writes a job: last quarter"].value == pytest.approx(4)
    assert all(figure.met is not False for figure in told.values())


def test_a_leak_is_found_and_growth_at_the_start_is_none():
    def run(grows: float) -> dict[str, Figure]:
        counted = (
            replace(START, time=n, done=n, cpu=n, cycles=n, cycle_seconds=n, api_cpu=n)
            for n in range(600)
        )
        warm = (replace(s, memory=80 + min(s.time, 100) / 2 + grows * s.time) for s in counted)
        return measured(list(warm), since=100)

    assert run(0.0)["memory: growth"].met
    leaking = run(0.05)
    assert not leaking["memory: growth"].met
    assert leaking["memory: slope"].value == pytest.approx(180)
    assert leaking["memory: peak"].value == pytest.approx(130 + 599 * 0.05)
