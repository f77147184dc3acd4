"""When a status is written: reasons at once, numbers now and then."""

from typing import Any

import pytest

from jobs.job_objects import ALLOCATED, UID, status, wish, world, write
from partita.models import Phase
from partita.scheduling.cycle_result import Explained
from partita.scheduling.reasons import Reason, WaitingReason
from partita.scheduling.waiting_jobs import BEHIND_OWN_JOBS
from support.builders import (
    DELETING,
    START,
    at,
    gpus_up,
    job_body,
    partition_body,
    pod_body,
    pod_status,
    server_body,
    take,
)


class TestStatuses:
    def waits(self) -> None:
        """Let the job wait for a GPU."""
        self.state, self.jobs = world(job_body())
        self.jobs.reconcile(UID, START)

    def told(self, now: float) -> None:
        """Have the status written, and look at the job again."""
        write(self.state, self.jobs)
        self.jobs.reconcile(UID, at(now))

    def explained(
        self, now: float, message: str, position: int = 1, *, generation: int = 1
    ) -> bool:
        """Note why the job waits; tell whether its status is to be updated at once."""
        why = WaitingReason(Reason.INSUFFICIENT_MEMORY, message)
        self.jobs.explain(UID, Explained(why, position, 0, generation, at(now)))
        return UID in self.state.queues.job_statuses.take()

    @pytest.mark.parametrize("later", [15, -15], ids=["later", "after the clock was set back"])
    def test_a_reason_is_told_at_once_and_numbers_only_now_and_then(self, later: int):
        self.waits()
        assert self.explained(0, "8 GiB are free")
        self.told(1)
        assert not self.explained(1, "9 GiB are free")
        assert self.jobs.status(UID, at(1)) is None
        assert self.explained(later, "10 GiB are free")
        assert status(self.jobs, later).message == "10 GiB are free"

    def test_a_job_that_still_waits_behind_those_considered_is_not_told_again(self):
        self.waits()
        for told in (True, False):
            self.jobs.explain(UID, Explained(BEHIND_OWN_JOBS, None, 0, 1, START))
            assert (UID in self.state.queues.job_statuses.take()) is told

    def test_an_operator_that_takes_over_tells_nothing_anew(self):
        self.waits()
        assert self.explained(0, "8 GiB are free", position=3)
        told = status(self.jobs, 0)
        self.state, self.jobs = world(job_body(status=told.dump()))
        self.jobs.reconcile(UID, at(100))
        assert self.jobs.status(UID, at(100)) is None
        assert not self.explained(101, "8 GiB are free", position=3)
        assert self.jobs.status(UID, at(101)) is None

    @pytest.mark.parametrize(("old", "new", "now", "wait"), [(2, 1, 5, 10), (29, 25, 20, 25)])
    def test_a_changed_position_is_written_later_and_less_often_far_from_the_head(
        self, old: int, new: int, now: int, wait: int
    ):
        """Who was before it has started: else the positions would have a gap for ever."""
        self.waits()
        assert self.explained(0, "8 GiB are free", position=old)
        self.told(1)
        assert not self.explained(now, "8 GiB are free", position=new)
        assert self.jobs.status(UID, at(now)) is None
        assert self.state.queues.job_statuses.due_in() == pytest.approx(wait, abs=1)
        assert status(self.jobs, now + wait).queue_position == new

    def test_a_reason_that_passed_before_or_while_it_was_written_does_not_stay(self):
        """A job that has never fitted, for a moment no GPU to fit on, and now has one again."""
        state, jobs = world(*gpus_up(server_body()), job_body(gpuMemory="400Gi"))
        jobs.reconcile(UID, START)
        write(state, jobs, gpuMemory="400Gi")
        assert jobs.reconcile(UID, START)
        assert jobs.status(UID, START) is None
        take(state, server_body(metadata=DELETING))
        jobs.refresh_largest("shared")
        jobs.reconcile(UID, at(1))
        why = WaitingReason(Reason.NO_GPU_READY, "none is ready")
        jobs.explain(UID, Explained(why, 1, 0, 1, at(1)))
        passing = status(jobs, 1)
        assert passing.reason == "NoGPUReady"
        take(state, server_body())
        jobs.refresh_largest("shared")
        jobs.reconcile(UID, at(2))
        assert status(jobs, 2) == state.jobs[UID].status
        assert jobs.status(UID, at(2)) is None
        take(state, job_body(gpuMemory="400Gi", status=passing.dump()))
        jobs.reconcile(UID, at(3))
        assert status(jobs, 3).reason == "NeverFits"

    def test_far_back_in_the_queue_numbers_are_not_renewed(self):
        self.waits()
        assert self.explained(0, "a", position=101)
        assert not self.explained(3600, "b", position=100)

    @pytest.mark.parametrize("position", [1, 101])
    def test_what_a_changed_partition_makes_of_a_message_is_told_at_once(self, position: int):
        self.waits()
        self.explained(0, "quota: 1 job", position)
        write(self.state, self.jobs)
        assert not self.explained(1, "quota: 1 job", position)
        assert self.explained(1, "quota: 2 jobs", position, generation=2)
        assert status(self.jobs, 1).message == "quota: 2 jobs"
        assert not self.explained(2, "quota: 2 jobs", position, generation=2)

    @pytest.mark.parametrize(
        ("spec", "before", "after"),
        [
            ({"gpuMemory": None, "slice": "medium"},
             {"slices": [{"name": "small", "memory": "4Gi"}]},
             {"slices": [{"name": "tiny", "memory": "4Gi"}]}),
            ({"gpuMemory": "30Gi"}, {"slices": [{"name": "small", "memory": "4Gi"}]},
             {"slices": [{"name": "tiny", "memory": "4Gi"}]}),
            ({"gpuMemory": "39Gi"}, {"sharing": {"memoryReservePercent": 10}},
             {"sharing": {"memoryReservePercent": 9}}),
            ({"gpus": 2}, {"sharing": {"mode": "MPS"}}, {"sharing": {"mode": "TimeSlicing"}}),
        ],
    )  # fmt: skip
    def test_a_job_that_can_never_start_follows_its_partition(
        self, spec: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
    ):
        state, jobs = world(*gpus_up(server_body()), job_body(**spec))
        take(state, partition_body(metadata={"generation": 2}, **before))
        jobs.refresh_largest("shared")
        jobs.reconcile(UID, START)
        said = status(jobs).message
        write(state, jobs, **spec)
        take(state, partition_body(metadata={"generation": 3}, **after))
        assert UID in state.queues.jobs.take()
        jobs.refresh_largest("shared")
        jobs.reconcile(UID, at(1))
        shown = status(jobs, 1)
        assert (shown.phase, shown.message == said) == (Phase.QUEUED, False)

    def test_which_partitions_there_are_is_told_anew_when_one_comes_or_goes_not_changes(self):
        state, jobs = world(job_body(partition="typo"))
        jobs.reconcile(UID, START)
        write(state, jobs, partition="typo")
        state.queues.jobs.take()
        take(state, partition_body(metadata={"generation": 2}))
        assert state.queues.jobs.take() == set()  # one has changed
        other = partition_body("other")
        take(state, other)
        assert state.queues.jobs.take() == {UID}
        jobs.reconcile(UID, at(1))
        assert "there is: other, shared" in status(jobs, 1).message
        take(state, other, deleted=True)
        assert state.queues.jobs.take() == {UID}

    def test_urgency(self):
        """An end is written at once; what may soon be out of date is not."""
        state, jobs = world(*gpus_up(server_body()), job_body())
        jobs.reconcile(UID, START)
        assert 0 < wish(jobs)[1] < 2
        take(state, server_body(allocations=ALLOCATED))
        take(state, pod_body())
        jobs.reconcile(UID, START)
        told, wait = wish(jobs)
        assert told.phase is Phase.ASSIGNED
        assert 0 < wait < 2
        take(state, pod_body(status=pod_status("Succeeded", started=START, finished=START)))
        jobs.reconcile(UID, at(1))
        told, wait = wish(jobs, 1)
        assert (told.phase, wait) == (Phase.SUCCEEDED, 0.0)
