from collections import Counter
from collections.abc import Sequence

from hypothesis import given

from partita_policies import GPU, Job, Placement, RunningJob, Snapshot
from partita_policies.fifo import FIFO, FIFOParameters
from partita_policies.recordings import Decision, Recorded
from partita_research.estimates import quantile
from partita_research.replay import Replay, changes_of, same
from support.strategies import snapshots

JOBS = tuple(Job(f"uid-{n}", f"team/{n}", "team", memory=4) for n in "abc")
GPUS = tuple(GPU(f"gpu-{n}", "node", memory=10, max_jobs=2) for n in range(3))
SNAPSHOT = Snapshot("gold", 12.0, JOBS, GPUS)


def placed(**gpus: int | None) -> tuple[Placement, ...]:
    return tuple(Placement(f"uid-{job}", (f"gpu-{n}",)) for job, n in gpus.items())


class Answers:
    """A policy that answers what it is told to."""

    def __init__(self, answer: Sequence[Placement] | Exception) -> None:
        self.answer = answer

    def decide(self, _: Snapshot) -> Sequence[Placement]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def replayed(done, answer) -> Replay:
    replay = Replay("under-test", Answers(answer))
    replay.ask(Recorded("file", 7, SNAPSHOT, Decision("fifo", done)))
    return replay


def said(done, answer, snapshot=SNAPSHOT) -> list[str]:
    return [str(change) for change in changes_of(snapshot, done, answer)]


def test_the_order_of_placements_makes_no_difference():
    replay = replayed(placed(a=0, b=1), placed(b=1, a=0))
    assert (replay.same, replay.different, replay.started) == (1, [], 2)


def test_which_of_two_gpus_that_are_alike_makes_no_difference():
    assert same(SNAPSHOT, placed(a=0, b=0, c=1), placed(a=2, b=2, c=0))
    assert not same(SNAPSHOT, placed(a=0, b=0, c=1), placed(a=2, b=1, c=2))
    held = GPU("gpu-0", "node", 10, 2, running=(RunningJob("other", memory=1),))
    assert not same(Snapshot("gold", 0.0, JOBS, (held, *GPUS[1:])), placed(a=0), placed(a=1))
    far = GPU("gpu-0", "elsewhere", 10, 2)
    assert not same(Snapshot("gold", 0.0, JOBS, (far, *GPUS[1:])), placed(a=0), placed(a=1))


def test_what_becomes_of_each_job_is_told():
    held = GPU("gpu-0", "node", 10, 2, running=(RunningJob("other", memory=1),))
    snapshot = Snapshot("gold", 0.0, JOBS, (held, *GPUS[1:]))
    assert said(placed(a=0), placed(a=1), snapshot) == ["team/a starts on gpu-1 instead of gpu-0"]
    assert said(placed(a=0), ()) == ["team/a waits instead of starting on gpu-0"]
    assert said((), placed(a=0)) == ["team/a starts on gpu-0 instead of waiting"]
    assert said(placed(a=0), placed(a=0, b=0)) == [
        "team/a starts on gpu-0 beside other jobs",
        "team/b starts on gpu-0 instead of waiting",
    ]
    assert replayed(placed(a=0, c=1), placed(a=0, b=0)).changed == Counter(
        others=1, earlier=1, later=1
    )


def test_a_policy_that_raises_or_breaks_a_rule_has_failed():
    assert replayed((), ValueError("no idea")).failures == ["file:7: it raised ValueError: no idea"]
    broken = replayed((), placed(a=0, b=0, c=0))
    assert broken.failures == ["file:7: 'uid-c' cannot have gpu-0 (Memory)"]
    assert (broken.same, broken.started, len(broken.seconds)) == (0, 0, 1)
    assert replayed((), [42]).failures == ["file:7: it answered [42], no placements"]


def test_decision_times_are_summed_up():
    replay = Replay("under-test", Answers(()), seconds=[4.0, 1.0, 3.0, 2.0])
    assert replay.mean_seconds == 2.5
    assert [quantile(replay.seconds, q) for q in (0.0, 0.25, 0.5, 0.99, 1.0)] == [1, 1, 2, 4, 4]
    assert quantile((), 0.5) == 0
    assert Replay("unasked", Answers(())).mean_seconds == 0


@given(snapshots())
def test_a_policy_replayed_on_its_own_decisions_changes_nothing(snapshot):
    policy = FIFO(FIFOParameters())
    replay = Replay("fifo", policy)
    replay.ask(Recorded("file", 1, snapshot, Decision("fifo", tuple(policy.decide(snapshot)))))
    assert (replay.same, replay.different, replay.failures) == (1, [], [])
