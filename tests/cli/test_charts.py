"""The picture of a simulation: its numbers, and that it can be drawn."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies import GPU, create
from partita_research.simulator import Reading, SimulatedAttempt, SimulatedOutcome, simulate
from partita_research.simulator.synthetic import random_tasks

GPUS = [GPU(f"gpu-{n}", "node", 12 << 30, 8, product="TITAN-Xp") for n in range(2)]


@pytest.fixture(scope="module")
def charts():
    """Import the module, and matplotlib with it, only where these tests run."""
    from partita_research.cli import charts

    return charts


@pytest.fixture(scope="module")
def results():
    tasks = random_tasks(1, 12, GPUS[0], interval=20.0)
    return {name: simulate(tasks, GPUS, create(name)) for name in ("sjf", "fifo")}


def texts(figure) -> str:
    axes = figure.axes
    return "\n".join(
        [
            *(text.get_text() for text in figure.texts),
            *(a.get_title(loc=loc) for a in axes for loc in ("left", "right")),
            *(a.get_ylabel() for a in axes),
            *(text.get_text() for a in axes for text in a.texts),
            *(text.get_text() for legend in figure.legends for text in legend.texts),
        ]
    )


times = st.integers(0, 20).map(float)
attempts = st.lists(
    st.builds(
        lambda job, start, length: SimulatedAttempt(
            str(job), ("gpu",), start, start + length, SimulatedOutcome.FINISHED, 1, 1.0
        ),
        st.integers(),
        times,
        st.integers(0, 9).map(float),
    ),
    max_size=12,
)


@given(attempts)
def test_no_two_attempts_that_overlap_share_a_lane(charts, attempts):
    placed = charts.lanes(attempts)
    assert sorted(map(id, attempts)) == sorted(id(attempt) for attempt, _ in placed)
    for (one, lane), (other, its) in combinations(placed, 2):
        together = max(one.start, other.start) < min(one.end, other.end)
        assert not (together and lane == its)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=8), st.integers(1, 7))
def test_means_keep_what_is_under_the_curve(charts, points, count):
    moments = sorted({time for time, _ in points} | {0.0})
    values = [value for value, _ in zip([v for _, v in points] * 9, moments, strict=False)]
    found = charts.means((moments, values), 0.0, 30.0, count)
    bounds = [*moments[1:], 30.0]
    area = sum(v * (until - begin) for v, begin, until in zip(values, moments, bounds, strict=True))
    assert sum(found) * 30.0 / count == pytest.approx(area)
    assert len(found) == count


def test_use_is_in_percent_and_lasts_to_the_end(charts):
    busy, memory = charts.steps([Reading(0.0, 0.5, 3), Reading(4.0, 1.0, 12)], 12, 10.0)
    assert busy == ([0.0, 4.0, 10.0], [50.0, 100.0, 100.0])
    assert memory == ([0.0, 4.0, 10.0], [25.0, 100.0, 100.0])
    assert charts.steps([], 12, 10.0) == (([10.0], [0]), ([10.0], [0]))


def test_a_picture_says_what_it_shows(charts, results):
    said = texts(charts.draw(results, "some jobs"))
    for words in ("some jobs", "sjf", "fifo", "gpu-0", "gpu-1", "jobs that\nwait", "synthetic-1-"):
        assert words in said
    for result in results.values():
        assert f"GPU {result.gpu_utilisation:.0f} %" in said


def test_many_gpus_are_drawn_at_once(charts, results):
    gpus = [GPU(f"gpu-{n}", "node", 12 << 30, 8) for n in range(9)]
    result = simulate(random_tasks(1, 20, gpus[0]), gpus, create("fifo"))
    figure = charts.draw({"fifo": result}, "")
    assert len(figure.axes) == 3
    assert figure.axes[0].images[0].get_array().shape[0] == 9
    assert "9\nGPUs:\nhow busy" in texts(figure)


@pytest.mark.parametrize(
    ("seconds", "unit", "last"),
    [(900, "seconds", "900"), (36_000, "hours", "10"), (1e7, "days", "100")],
)
def test_the_time_axis_is_in_round_units(charts, seconds: float, unit: str, last: str):
    task = random_tasks(2, 1, GPUS[0])[0]
    task = replace(task, truth=replace(task.truth, duration=float(seconds)))
    axes = charts.draw({"sjf": simulate([task], GPUS, create("sjf"))}, "").axes[-1]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert (axes.get_xlabel(), labels[0]) == (unit, "0")
    assert last in labels


def test_the_same_picture_is_the_same_file(charts, results, tmp_path):
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    few = {"sjf": results["sjf"]}
    charts.save(charts.draw(few, "twice"), one)
    charts.save(charts.draw(few, "twice"), other)
    assert one.read_bytes() == other.read_bytes()
    assert ET.parse(one).getroot().tag.endswith("svg")


def test_a_job_that_was_killed_is_marked(charts, results):
    task = random_tasks(2, 1, GPUS[0])[0]
    small = replace(task, job=replace(task.job, memory=1 << 20))
    result = simulate([small], GPUS, create("fifo"))
    assert result.kills > 0
    assert "out of memory" in texts(charts.draw({"fifo": result}, ""))
    assert "out of memory" not in texts(charts.draw(results, ""))


def test_nothing_that_ran_can_be_drawn_too(charts):
    huge = [GPU("gpu-0", "node", 1, 8)]
    result = simulate(random_tasks(1, 3, GPUS[0]), huge, create("fifo"))
    assert result.finished == ()
    charts.draw({"fifo": result}, "nothing fits")
