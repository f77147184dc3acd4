"""When waiting jobs start: sampled futures, and their correction by what came."""

from dataclasses import replace
from random import Random

import pytest

from partita_policies import GPU, Job, RunningJob, Snapshot, create
from partita_policies.simulator.engine import Simulation
from partita_policies.simulator.tasks import Application, Task
from partita_policies.start_times.calibration import Calibration
from partita_policies.start_times.futures import StartInterval, Unsaid, expected_starts
from partita_policies.start_times.history import PartitionHistory
from partita_policies.types import Step

WHOLE = GPU("gpu", "node", 100, 8)


def job(name: str, duration: float | None = 60.0, **fields) -> Job:
    return Job(name, name, "team", **{"memory": 100, "duration": duration, **fields})


def running(name: str, duration: float | None = 60.0, **fields) -> RunningJob:
    return RunningJob(
        name, **{"memory": 100, "namespace": "team", "started": 0.0, "duration": duration, **fields}
    )


def at(time: float, *waiting: Job, on: tuple[RunningJob, ...] = ()) -> Snapshot:
    return Snapshot("shared", time, waiting, (replace(WHOLE, running=on),))


def learnt(*run_times: float, expected: float | None = 60.0) -> PartitionHistory:
    """Return the history of runs one after the other, observed each second."""
    history, time = PartitionHistory(), 0.0
    for number, seconds in enumerate(run_times):
        run = running(f"run-{number}", expected, started=time)
        for second in range(round(seconds) + 1):
            history.observe(at(time + second, on=(run,)))
        time += seconds
    history.observe(at(time))
    return history


def test_a_job_starts_when_those_before_it_have_ended() -> None:
    snapshot = at(1000.0, job("first"), job("second"), on=(running("now", started=960.0),))
    outlook = expected_starts(snapshot, create("fifo"), learnt(*[60.0] * 5).past())
    assert outlook.starts["first"].middle == pytest.approx(1020, abs=2)
    assert outlook.starts["second"].middle == pytest.approx(1080, abs=3)


def test_an_interval_is_as_wide_as_run_times_differ_and_the_same_each_time() -> None:
    snapshot = at(1000.0, job("next"), on=(running("now", started=1000.0),))
    history = learnt(30.0, 45.0, 60.0, 90.0, 120.0)
    one, again = (
        expected_starts(snapshot, create("fifo"), history.past(), seed=3) for _ in range(2)
    )
    assert one == again
    assert one.starts["next"].earliest == pytest.approx(1030, abs=2)
    assert one.starts["next"].latest == pytest.approx(1120, abs=2)


def test_a_run_that_outlasts_all_others_goes_on() -> None:
    snapshot = at(1000.0, job("next"), on=(running("now", started=0.0),))
    outlook = expected_starts(snapshot, create("fifo"), learnt(*[60.0] * 5).past())
    assert 1000 < outlook.starts["next"].earliest < outlook.starts["next"].latest < 2100


def test_the_runs_of_a_partition_stand_for_applications_never_seen() -> None:
    snapshot = at(1000.0, job("next", None), on=(running("now", None, started=1000.0),))
    assert expected_starts(snapshot, create("fifo"), PartitionHistory().past()).unsaid == {
        "next": Unsaid.RUN_TIMES
    }
    outlook = expected_starts(snapshot, create("fifo"), learnt(*[60.0] * 5, expected=None).past())
    assert outlook.starts["next"].middle == pytest.approx(1060, abs=2)


@pytest.mark.parametrize(
    ("snapshot", "policy", "budget", "why"),
    [
        (at(9.0, job("next"), on=(running("service", lasting=True),)), "fifo", 60.0, Unsaid.NEVER),
        (at(9.0, job("next"), on=(running("now"),)), "fifo", 0.0, Unsaid.TOO_FAR),
        (at(9.0, job("next")), "broken", 60.0, Unsaid.POLICY),
        (replace(at(9.0, job("next")), gpus=()), "fifo", 60.0, Unsaid.NEVER),
    ],
)  # fmt: skip
def test_where_nothing_can_be_said_there_is_a_reason(snapshot, policy, budget, why) -> None:
    chosen = object() if policy == "broken" else create(policy)
    outlook = expected_starts(snapshot, chosen, PartitionHistory().past(), budget=budget)
    assert (outlook.starts, outlook.unsaid) == ({}, {"next": why})


def test_arrivals_of_the_recent_rate_may_come_first() -> None:
    history = learnt(*[60.0] * 5)
    for second in range(301, 400):
        history.observe(at(float(second), job(f"urgent-{second // 10}", 10.0, priority=1)))
    assert history.past().arrivals_per_second == pytest.approx(0.025, abs=0.005)
    snapshot = at(400.0, job("next"), on=(running("now", started=400.0),))
    alone = (
        expected_starts(snapshot, create("fifo"), learnt(*[60.0] * 5).past()).starts["next"].latest
    )
    assert (
        expected_starts(snapshot, create("fifo"), history.past()).starts["next"].latest > alone + 5
    )


def test_a_clock_that_is_set_back_teaches_nothing() -> None:
    history = learnt(60.0)
    history.observe(at(0.0, job("next"), on=(running("now", started=30.0),)))
    assert history.past().progress["now"] == pytest.approx(30, abs=1)


def test_a_simulation_continues_with_work_that_is_done() -> None:
    tasks = [
        Task(job(name), Application(name, 60.0, (Step(10.0, 100),) * 3)) for name in ("a", "b")
    ]
    simulation = Simulation(tasks, [WHOLE], now=500.0)
    simulation.resume([tasks[1].job], [(tasks[0].job, ("gpu",), 460.0, 40.0)])
    first, second = simulation.next_decision(), simulation.next_decision()
    assert (first.time, first.gpus[0].running[0].started, second.time) == (
        500.0,
        460.0,
        pytest.approx(520.0),
    )


@pytest.mark.parametrize("wrong_by", [0.3, 3.0])
def test_intervals_hold_as_often_as_they_say_whatever_the_futures_say(wrong_by) -> None:
    calibration, random, held = Calibration(), Random(1), 0
    for number in range(3000):
        time, wait = float(number), random.uniform(10, 1000)
        sampled = StartInterval(time + 0.9 * wait, time + wait, time + 1.1 * wait)
        stated = calibration.predict(str(number), time, sampled)
        start = time + wait * random.lognormvariate(0.0, wrong_by)
        calibration.started(str(number), start)
        held += number >= 1000 and stated.earliest <= start <= stated.latest
    assert 0.87 <= held / 2000 <= 0.93


def test_only_what_was_predicted_and_has_started_counts() -> None:
    calibration = Calibration()
    calibration.predict("deleted", 0.0, StartInterval(1.0, 2.0, 3.0))
    calibration.keep(())
    assert calibration.started("deleted", 2.0) is None
    assert calibration.accuracy.starts == 0
