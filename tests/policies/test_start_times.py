"""When waiting jobs start: sampled futures, and their correction by what came."""

from dataclasses import replace
from random import Random

import pytest

from partita_policies import GPU, Job, RunningJob, Snapshot, create
from partita_policies.start_times import futures
from partita_policies.start_times.calibration import Calibration
from partita_policies.start_times.futures import FARTHEST, Futures, Outlook, StartInterval, Unsaid
from partita_policies.start_times.history import PartitionHistory

WHOLE = GPU("gpu", "node", 100, 8)


def job(name: str, duration: float | None = 60.0, **fields) -> Job:
    return Job(name, name, "team", 100, duration=duration, **fields)


def running(name: str, duration: float | None = 60.0, **fields) -> RunningJob:
    fields = {"namespace": "team", "started": 0.0, "thread_percent": 25, **fields}
    return RunningJob(name, 100, duration=duration, **fields)


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


class Decisions:
    """A budget of so many decisions for a future, in place of CPU time."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def over(self) -> bool:
        self.left -= 1
        return self.left <= 0


def starts(snapshot: Snapshot, history: PartitionHistory, policy: str = "fifo", **given) -> Outlook:
    chosen = object() if policy == "broken" else create(policy)
    return Futures(snapshot, chosen, history.past(), **given).complete()


def test_a_job_starts_when_those_before_it_have_ended() -> None:
    snapshot = at(1000.0, job("first"), job("second"), on=(running("now", started=960.0),))
    outlook = starts(snapshot, learnt(*[60.0] * 5))
    middles = [outlook.starts[name].middle for name in ("first", "second")]
    assert middles == pytest.approx([1020, 1080], abs=3)
    assert [outlook.awaited(name) for name in ("first", "second")] == ["now", "first"]


def test_a_changed_job_is_tried_in_the_futures_of_the_unchanged_one() -> None:
    busy = replace(running("now", started=960.0), memory=50)
    changed = [job("same"), job("urgent", priority=1), replace(job("small"), memory=50)]
    queue = at(1000.0, job("first"), job("next"), on=(busy,))
    for given, sampled in (({}, futures.FUTURES_OF_ONE), ({"enough": 0.0}, futures.FEW_FUTURES)):
        outlook = starts(queue, learnt(*[60.0] * 5), only="next", changed=changed, **given)
        middles = [one.middle for one in outlook.starts.values()]
        assert middles == pytest.approx([1080, 1080, 1020, 1000], abs=3)
        sooner = [outlook.is_sooner("next", one.id) for one in changed]
        assert (sooner, len(outlook.sampled)) == ([False, True, True], sampled)


def test_the_place_of_a_job_in_the_queue_changes_no_run_time() -> None:
    old, new = job("old"), job("new", 600.0, submitted=9.0)
    queues = [(*jobs, job("last", submitted=5.0)) for jobs in ((old, new), (new, old))]
    found = [starts(at(10.0, *queue), learnt(30, 45, 60, 90, 120)).starts for queue in queues]
    assert found[0]["last"] == found[1]["last"]


def test_an_interval_is_as_wide_as_run_times_differ_and_the_same_each_time() -> None:
    snapshot = at(1000.0, job("next"), on=(running("now", started=1000.0),))
    one, again = (starts(snapshot, learnt(30, 45, 60, 90, 120), seed=3) for _ in range(2))
    assert one == again
    found = one.starts["next"]
    assert [found.earliest, found.latest] == pytest.approx([1030, 1120], abs=2)


def test_a_run_that_outlasts_all_others_goes_on() -> None:
    snapshot = at(1000.0, job("next"), on=(running("now", started=0.0),))
    outlook = starts(snapshot, learnt(*[60.0] * 5))
    assert 1000 < outlook.starts["next"].earliest < outlook.starts["next"].latest < 2100


def test_the_runs_of_a_partition_stand_for_applications_never_seen() -> None:
    snapshot = at(1000.0, job("next", None), on=(running("now", None, started=1000.0),))
    assert starts(snapshot, PartitionHistory()).unsaid == {"next": Unsaid.RUN_TIMES}
    outlook = starts(snapshot, learnt(*[60.0] * 5, expected=None))
    assert outlook.starts["next"].middle == pytest.approx(1060, abs=2)


@pytest.mark.parametrize(
    ("snapshot", "policy", "budget", "why"),
    [
        (at(9.0, job("next"), on=(running("service", lasting=True),)), "fifo", 60.0, Unsaid.NEVER),
        (at(9.0, job("next"), on=(running("now", 4e10),)), "fifo", 60.0, Unsaid.NEVER),
        (at(9.0, job("next"), on=(running("now"),)), "fifo", 0.0, Unsaid.TOO_FAR),
        (at(9.0, *map(job, map(str, range(1000))), job("next")), "fifo", 60.0, Unsaid.TOO_FAR),
        (at(9.0, job("next")), "broken", 60.0, Unsaid.POLICY),
        (replace(at(9.0, job("next")), gpus=()), "fifo", 60.0, Unsaid.NO_GPU),
    ],
)  # fmt: skip
def test_where_nothing_can_be_said_there_is_a_reason(snapshot, policy, budget, why) -> None:
    given = {"budget": budget, "only": "next", "changed": [job("changed")]}
    outlook = starts(snapshot, PartitionHistory(), policy, **given)
    assert (outlook.starts, outlook.unsaid) == ({}, {"next": why, "changed": why})


SERVICE = replace(job("next", lasting=True), memory=50)


@pytest.mark.parametrize(
    "waiting",
    [[SERVICE], [job("of a clock set back", submitted=50)], [job(str(n)) for n in range(10_000)]],
)
def test_whatever_waits_has_an_interval_or_a_reason(
    waiting: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(futures, "_Budget", lambda _: Decisions(9))
    snapshot = at(9.0, *waiting, on=(running("now", started=waiting[0].submitted),))
    outlook = starts(snapshot, learnt(*[60.0] * 5))
    assert outlook.starts
    assert sorted([*outlook.starts, *outlook.unsaid]) == sorted(one.id for one in snapshot.jobs)


def test_what_is_not_reached_starts_no_earlier_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futures, "_Budget", lambda _: Decisions(1))
    outlook = starts(at(9.0, job("next"), on=(running("now"),)), PartitionHistory())
    assert (outlook.unsaid, outlook.not_before) == ({"next": Unsaid.TOO_FAR}, {"next": 9.0})


def test_arrivals_of_the_recent_rate_may_come_first() -> None:
    history = learnt(*[60.0] * 5)
    for second in range(301, 400):
        history.observe(at(float(second), job(f"urgent-{second // 10}", 10.0, priority=1)))
    assert history.past().arrivals_per_second == pytest.approx(0.025, abs=0.005)
    snapshot = at(400.0, job("next"), on=(running("now", started=400.0),))
    alone = starts(snapshot, learnt(*[60.0] * 5)).starts["next"].latest
    assert starts(snapshot, history).starts["next"].latest > alone + 5


def test_a_clock_that_is_set_back_teaches_nothing() -> None:
    history = learnt(60.0)
    history.observe(at(0.0, on=(running("now", started=30.0),)))
    assert history.past().progress["now"] == pytest.approx(30, abs=1)


@pytest.mark.parametrize("wrong_by", [0.01, 0.3, 3.0])
def test_intervals_hold_as_often_as_they_say_whatever_the_futures_say(wrong_by) -> None:
    random, held = Random(1), list[bool]()
    for number in range(6000):
        if number % 100 == 0:
            calibration = Calibration()
        time, wait = float(number), random.uniform(10, 1000)
        sampled = StartInterval(time + 0.9 * wait, time + wait, time + 1.1 * wait)
        stated = calibration.predict(str(number), time, sampled)
        start = time + wait * random.lognormvariate(0.0, wrong_by)
        calibration.started(str(number), start)
        if number % 100 >= 10:
            held.append(stated.earliest <= start <= stated.latest)
    assert 0.87 <= sum(held) / len(held) <= 0.93
    far = StartInterval(*[FARTHEST - 1] * 3)
    assert calibration.corrected(0.0, far).latest <= FARTHEST
