"""All jobs: who waits, what is given back, and what their statuses are to say."""

from datetime import timedelta
from typing import Any

import pytest

from partita.informer.state import State
from partita.models import Outcome, Phase, SharedGPUJobStatus
from partita.models.quantities import format_time
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.reasons import Reason, Why
from support.builders import (
    DELETING,
    GIB,
    START,
    a_state,
    allocation,
    at,
    gpus_up,
    job_body,
    node_body,
    partition_body,
    pod_body,
    pod_status,
    profile_body,
    server_body,
    server_pod_body,
    take,
)

UID = "uid-train"
ALLOCATED = {UID: allocation()}
UNSCHEDULABLE = {"reason": "Unschedulable", "message": "0/1 nodes are available"}


def world(*bodies: dict[str, Any]) -> tuple[State, JobReconciler]:
    state = a_state(partition_body(), *bodies)
    jobs = JobReconciler(state)
    jobs.refresh_largest("shared")
    jobs.creations.allocating(UID, 1, START)
    return state, jobs


def status(jobs: JobReconciler, now: float = 0) -> SharedGPUJobStatus:
    wish = jobs.status(UID, at(now))
    assert wish is not None
    return wish[0]


def write(state: State, jobs: JobReconciler, now: float = 0, **spec: Any) -> None:
    """Write the status that is wished for, as the operator would."""
    take(state, job_body(status=status(jobs, now).dump(), **spec))


class TestTheQueue:
    def test_a_new_job_waits_in_its_partition(self):
        _, jobs = world(job_body())
        made = jobs.reconcile(UID, START)
        assert made is not None
        assert made.wants_gpu
        assert list(jobs.waiting["shared"]) == [UID]
        assert status(jobs).reason == "Scheduling"
        assert jobs.attempt_of(UID) == 1

    def test_a_job_that_can_never_start_is_told_so_at_once(self):
        _, jobs = world(*gpus_up(server_body()), job_body(gpuMemory="400Gi"))
        jobs.reconcile(UID, START)
        wish = jobs.status(UID, START)
        assert wish is not None
        assert (wish[0].reason, wish[1]) == ("NeverFits", 0.0)

    def test_a_job_that_goes_leaves_the_queue(self):
        state, jobs = world(job_body())
        jobs.reconcile(UID, START)
        take(state, job_body(), deleted=True)
        assert jobs.reconcile(UID, START) is None
        assert jobs.waiting["shared"] == {}
        assert jobs.status(UID, START) is None

    def test_a_job_that_changes_its_partition_changes_queues(self):
        state, jobs = world(job_body(), partition_body("other"))
        jobs.reconcile(UID, START)
        take(state, job_body(partition="other"))
        jobs.reconcile(UID, START)
        assert (jobs.waiting["shared"], list(jobs.waiting["other"])) == ({}, [UID])
        assert state.queues.partitions.take() >= {"shared", "other"}

    def test_an_unknown_partition_is_waited_for_and_those_there_are_named(self):
        state, jobs = world(job_body(partition="typo"))
        jobs.reconcile(UID, START)
        shown = status(jobs)
        assert (shown.reason, shown.message) == (
            "PartitionNotFound",
            "there is no GPUPartition typo (there is: shared): create it or name another",
        )
        take(state, partition_body("typo"))
        jobs.reconcile(UID, START)
        assert list(jobs.waiting["typo"]) == [UID]

    def test_a_partition_that_is_being_deleted_is_none(self):
        state, jobs = world(job_body())
        take(state, partition_body(metadata=DELETING))
        jobs.reconcile(UID, START)
        assert status(jobs).reason == "PartitionNotFound"

    def test_a_job_that_is_too_large_stays_out_until_a_larger_gpu_comes(self):
        state, jobs = world(job_body(gpuMemory="60Gi"), *gpus_up(server_body()))
        jobs.reconcile(UID, START)
        assert (jobs.waiting["shared"], status(jobs).reason) == ({}, "NeverFits")
        take(state, server_body("shared-1", memory="80Gi"))
        assert jobs.refresh_largest("shared")
        assert not jobs.refresh_largest("shared")
        jobs.reconcile(UID, START)
        assert list(jobs.waiting["shared"]) == [UID]

    def ran_out(self, memory: str, *bodies: dict[str, Any]) -> tuple[State, JobReconciler]:
        attempt = {"number": 1, "outcome": "OutOfMemory", "memory": memory, "message": "no more"}
        job = job_body(status={"phase": "Queued", "attempts": [attempt]})
        return world(job, *gpus_up(server_body()), *bodies)

    def test_a_job_that_ran_out_of_a_whole_gpu_has_failed(self):
        _, jobs = self.ran_out("38092Mi")
        jobs.reconcile(UID, START)
        assert jobs.waiting["shared"] == {}
        shown = status(jobs)
        assert (shown.phase, shown.reason) == (Phase.FAILED, "OutOfMemory")
        assert "shared has no more to give on one GPU: make it use less" in shown.message
        assert shown.message.endswith("attempt 1 ended as OutOfMemory: no more")

    def test_it_waits_where_a_larger_gpu_is_there_or_on_its_way(self):
        _, jobs = self.ran_out("38092Mi", server_body("shared-1", memory="80Gi"))
        jobs.reconcile(UID, START)
        assert list(jobs.waiting["shared"]) == [UID]
        coming = server_body("shared-1", conditions={}, status={"uuid": ""})
        state, jobs = self.ran_out("38092Mi", coming, server_pod_body("shared-1"))
        jobs.reconcile(UID, START)
        shown = status(jobs)
        assert (shown.phase, shown.reason) == (Phase.QUEUED, "NeverFits")
        take(state, server_body("shared-1", memory="24Gi"))
        assert jobs.refresh_largest("shared")
        jobs.reconcile(UID, START)
        assert status(jobs).phase is Phase.FAILED

    def test_a_gpu_that_no_node_has_is_not_waited_for(self):
        coming = server_body("shared-1", conditions={}, status={"uuid": ""})
        _, jobs = self.ran_out("38092Mi", coming, server_pod_body("shared-1", node=""))
        jobs.reconcile(UID, START)
        assert status(jobs).phase is Phase.FAILED

    def test_history_is_looked_up_by_the_jobs_namespace(self):
        spec = {"gpuMemory": None, "application": "resnet"}
        _, jobs = world(job_body(**spec), profile_body(namespace="team-b"))
        jobs.reconcile(UID, START)
        assert jobs.waiting["shared"][UID].alone
        _, jobs = world(job_body(**spec), profile_body())
        jobs.reconcile(UID, START)
        assert not jobs.waiting["shared"][UID].alone


class TestEnds:
    def running(self, *, server: dict[str, Any] | None = None, up: bool = True) -> Any:
        there = server or server_body(allocations=ALLOCATED)
        extra = [server_pod_body("shared-0")] if up else []
        pod = pod_body(status=pod_status("Running", started=START))
        return world(node_body(), there, *extra, job_body(), pod)

    def outcome(self, jobs: JobReconciler, now: float = 1) -> Outcome | None:
        made = jobs.reconcile(UID, at(now))
        assert made is not None
        return made.attempts[-1].outcome

    def test_a_running_job_runs(self):
        _, jobs = self.running()
        assert self.outcome(jobs) is None
        assert status(jobs).phase is Phase.RUNNING

    def test_a_fault_of_its_gpu_ends_it(self):
        faulted = server_body(
            conditions={"Ready": "False", "Faulted": "True"}, allocations=ALLOCATED
        )
        _, jobs = self.running(server=faulted)
        assert self.outcome(jobs) is Outcome.GPU_FAULT
        assert status(jobs).attempts[-1].message == "shared-0: Faulted"

    def test_the_loss_of_its_server_pod_ends_it(self):
        _, jobs = self.running(up=False)
        assert self.outcome(jobs) is Outcome.GPU_FAULT
        assert status(jobs).attempts[-1].message == "shared-0: its server Pod is gone"

    def test_a_gpu_that_is_given_back_waits_for_it_for_a_while(self):
        metadata = {"deletionTimestamp": format_time(START)}
        state, jobs = self.running(server=server_body(metadata=metadata, allocations=ALLOCATED))
        assert self.outcome(jobs, 599) is None
        assert jobs.requeue_at(UID, START) == at(600)
        assert self.outcome(jobs, 600) is Outcome.EVICTED
        take(state, partition_body(drainTimeout="5s"))
        assert jobs.drain_deadline("shared-0") == at(5)
        assert jobs.drain_deadline("no-such-server") is None

    def test_a_gpu_that_is_drained_waits_for_it_for_a_while(self):
        server = server_body(drainSince=format_time(START), allocations=ALLOCATED)
        _, jobs = self.running(server=server)
        assert self.outcome(jobs, 599) is None
        assert self.outcome(jobs, 600) is Outcome.EVICTED
        assert "drained" in status(jobs).attempts[-1].message

    def test_preemption_ends_it_once(self):
        state, jobs = self.running()
        jobs.end(UID, Outcome.PREEMPTED, "somebody needs room")
        assert self.outcome(jobs) is Outcome.PREEMPTED
        write(state, jobs, 1)
        take(state, pod_body(), deleted=True)
        made = jobs.reconcile(UID, at(2))
        assert made is not None
        assert (made.release, jobs.releases["shared-0"]) == (True, {UID})
        take(state, server_body())
        made = jobs.reconcile(UID, at(3))
        assert made is not None
        assert (made.wants_gpu, made.next_attempt) == (True, 2)
        jobs.creations.allocating(UID, 2, START)
        take(state, server_body(allocations={UID: allocation(attempt=2)}))
        made = jobs.reconcile(UID, at(4))
        assert made is not None
        assert made.create_pod == 2

    def test_its_peak_is_what_the_agent_saw(self):
        usage = {"jobs": {UID: {"memory": "1Gi", "peakMemory": "3Gi"}}}
        _, jobs = self.running(server=server_body(allocations=ALLOCATED, status={"usage": usage}))
        jobs.end(UID, Outcome.PREEMPTED, "")
        jobs.reconcile(UID, at(1))
        assert status(jobs).attempts[-1].peak_memory == 3 * GIB

    def test_first_use_is_written_with_the_next_write_and_not_for_itself(self):
        state, jobs = self.running()
        jobs.reconcile(UID, at(1))
        write(state, jobs, 1)
        usage = {"jobs": {UID: {"firstUse": format_time(at(3))}}}
        take(state, server_body(allocations=ALLOCATED, status={"usage": usage}))
        jobs.reconcile(UID, at(4))
        assert jobs.status(UID, at(4)) is None
        take(state, pod_body(status=pod_status("Succeeded", started=START, finished=at(5))))
        jobs.reconcile(UID, at(6))
        assert status(jobs, 6).attempts[-1].first_use_time == at(3)

    def test_a_failure_that_a_fault_may_explain_is_judged_a_moment_later(self):
        state, jobs = self.running()
        jobs.reconcile(UID, START)
        write(state, jobs)
        said = "CUDA error: unspecified launch failure"
        over = pod_status("Failed", exit_code=1, message=said, started=START, finished=START)
        take(state, pod_body(status=over))
        assert self.outcome(jobs, 1) is None
        assert (jobs.status(UID, at(1)), jobs.requeue_at(UID, at(1))) == (None, at(3))
        faulted = server_body(
            conditions={"Ready": "False", "Faulted": "True"}, allocations=ALLOCATED
        )
        take(state, faulted)
        assert self.outcome(jobs, 2) is Outcome.GPU_FAULT
        take(state, server_body(allocations=ALLOCATED))
        assert self.outcome(jobs, 3) is Outcome.FAILED  # nobody has written it down

    def test_nothing_starts_on_a_gpu_that_goes_or_in_a_partition_that_is_gone(self):
        up = (node_body(), server_pod_body("shared-0"))
        _, jobs = world(server_body(allocations=ALLOCATED, metadata=DELETING), *up, job_body())
        made = jobs.reconcile(UID, at(1))
        assert made is not None
        assert (made.create_pod, made.release) == (None, True)
        state, jobs = world(server_body(allocations=ALLOCATED), *up, job_body())
        take(state, partition_body(), deleted=True)
        made = jobs.reconcile(UID, at(1))
        assert made is not None
        assert (made.create_pod, made.release) == (None, True)


class TestGone:
    def test_its_booking_is_given_back_once_its_pod_is_gone(self):
        state, jobs = world(*gpus_up(server_body(allocations=ALLOCATED)), pod_body())
        assert jobs.reconcile(UID, START) is None
        assert jobs.releases["shared-0"] == set()
        take(state, pod_body(), deleted=True)
        jobs.reconcile(UID, START)
        assert jobs.releases["shared-0"] == {UID}


class TestPodsThatDoNotStart:
    def world(self, **partition: Any) -> tuple[State, JobReconciler]:
        up = gpus_up(server_body(allocations=ALLOCATED))
        status = {"conditions": [{"type": "PodScheduled", "status": "False", **UNSCHEDULABLE}]}
        state, jobs = world(*up, job_body(), pod_body(node="", status=status))
        take(state, partition_body(**partition))
        return state, jobs

    def test_it_has_the_time_that_its_partition_gives(self):
        _, jobs = self.world(podStartTimeout="30s")
        jobs.reconcile(UID, START)
        assert jobs.requeue_at(UID, START) == at(30)
        jobs.reconcile(UID, at(30))
        assert status(jobs, 30).attempts[-1].outcome is Outcome.NOT_STARTED

    def test_or_its_own(self):
        state, jobs = self.world(podStartTimeout="30s")
        take(state, job_body(podStartTimeout="45s"))
        jobs.reconcile(UID, START)
        assert jobs.requeue_at(UID, START) == at(45)

    def test_what_kubernetes_says_anew_is_told_at_once(self):
        state, jobs = self.world()
        jobs.reconcile(UID, START)
        write(state, jobs)
        waiting = {"reason": "ErrImagePull", "message": "no such image"}
        containers = [{"name": "main", "state": {"waiting": waiting}}]
        take(state, pod_body(status={"containerStatuses": containers}))
        jobs.reconcile(UID, at(1))
        assert status(jobs, 1).reason == "ErrImagePull"
        waiting["message"] = "the registry does not answer"
        take(state, pod_body(status={"containerStatuses": containers}))
        jobs.reconcile(UID, at(2))
        assert "the registry does not answer" in status(jobs, 2).message


class TestRefusals:
    def refused(self, reason: Reason = Reason.POD_FORBIDDEN) -> tuple[State, JobReconciler]:
        up = (node_body(), server_pod_body("shared-0"))
        state, jobs = world(server_body(allocations=ALLOCATED), *up, job_body())
        jobs.reconcile(UID, START)
        jobs.refuse(state.jobs[UID], Why(reason, "no"), START)
        return state, jobs

    def test_the_booking_is_given_back_and_the_reason_told(self):
        state, jobs = self.refused()
        made = jobs.reconcile(UID, START)
        assert made is not None
        assert made.release
        take(state, server_body())
        jobs.reconcile(UID, START)
        told = status(jobs)
        assert (jobs.waiting["shared"], told.reason) == ({}, "PodForbidden")
        assert told.message == "no; next try at 12:00:02 UTC"

    def test_the_booking_is_given_back_however_late_that_is_seen(self):
        _, jobs = self.refused()
        made = jobs.reconcile(UID, at(30))
        assert made is not None
        assert (made.release, made.create_pod) == (True, None)

    def test_a_change_of_the_spec_makes_it_try_again(self):
        state, jobs = self.refused(Reason.INVALID_SPEC)
        take(state, server_body())
        jobs.reconcile(UID, at(10_000))
        assert jobs.waiting["shared"] == {}
        take(state, job_body(metadata={"generation": 2}))
        jobs.reconcile(UID, START)
        assert list(jobs.waiting["shared"]) == [UID]

    def test_so_does_time(self):
        state, jobs = self.refused()
        take(state, server_body())
        jobs.reconcile(UID, START)
        assert jobs.requeue_at(UID, START) == at(2)
        jobs.reconcile(UID, at(2))
        assert list(jobs.waiting["shared"]) == [UID]
        assert jobs.requeue_at(UID, at(2)) is None

    def test_a_name_that_is_taken_is_passed_over(self):
        up = (node_body(), server_pod_body("shared-0"))
        state, jobs = world(server_body(allocations=ALLOCATED), *up, job_body())
        jobs.reconcile(UID, START)
        jobs.name_taken(UID, 1)
        made = jobs.reconcile(UID, START)
        assert made is not None
        assert made.release
        take(state, server_body())
        jobs.reconcile(UID, START)
        assert jobs.attempt_of(UID) == 2

    def test_a_status_that_is_never_taken_is_not_waited_for(self):
        done = pod_body(status=pod_status("Succeeded", started=START, finished=START))
        _, jobs = world(*gpus_up(server_body(allocations=ALLOCATED)), job_body(), done)
        made = jobs.reconcile(UID, at(1))
        assert made is not None
        assert not made.release
        jobs.status_refused(UID)
        made = jobs.reconcile(UID, at(1))
        assert made is not None
        assert made.release


class TestStatuses:
    def explained(
        self, now: float, message: str, position: int = 1, *, generation: int = 1
    ) -> bool:
        """Note why the job waits; tell whether its status is to be updated at once."""
        why = Why(Reason.INSUFFICIENT_MEMORY, message)
        self.jobs.explain(UID, why, at(now), generation=generation, position=position)
        return UID in self.state.queues.job_statuses.take()

    def test_a_reason_is_told_at_once_and_numbers_only_now_and_then(self):
        self.state, self.jobs = world(job_body())
        self.jobs.reconcile(UID, START)
        assert self.explained(0, "8 GiB are free")
        write(self.state, self.jobs)
        self.jobs.reconcile(UID, at(1))
        assert not self.explained(1, "9 GiB are free")
        assert self.jobs.status(UID, at(1)) is None
        assert self.explained(15, "10 GiB are free")
        assert status(self.jobs, 15).message == "10 GiB are free"

    def test_a_changed_position_is_written_once_the_status_may_be_renewed(self):
        """The one before it has started: else the positions would have a gap for ever."""
        self.state, self.jobs = world(job_body())
        self.jobs.reconcile(UID, START)
        assert self.explained(0, "8 GiB are free", position=2)
        write(self.state, self.jobs)
        self.jobs.reconcile(UID, at(1))
        assert self.explained(5, "8 GiB are free", position=1)
        assert self.jobs.status(UID, at(5)) is None
        assert self.state.queues.job_statuses.due_in() == pytest.approx(10, abs=1)
        assert status(self.jobs, 15).queue_position == 1

    @staticmethod
    def a_wish_taken_back() -> tuple[State, JobReconciler, SharedGPUJobStatus]:
        """A job that has never fitted, for a moment no GPU to fit on, and now has one again."""
        state, jobs = world(*gpus_up(server_body()), job_body(gpuMemory="400Gi"))
        jobs.reconcile(UID, START)
        write(state, jobs, gpuMemory="400Gi")
        assert jobs.reconcile(UID, START)
        assert jobs.status(UID, START) is None
        take(state, server_body(metadata=DELETING))
        jobs.refresh_largest("shared")
        jobs.reconcile(UID, at(1))
        why = Why(Reason.NO_GPU_READY, "none is ready")
        jobs.explain(UID, why, at(1), generation=1, position=1)
        passing = status(jobs, 1)
        assert passing.reason == "NoGPUReady"
        take(state, server_body())
        jobs.refresh_largest("shared")
        jobs.reconcile(UID, at(2))
        return state, jobs, passing

    def test_a_reason_that_passed_before_it_was_written_is_taken_back(self):
        state, jobs, _ = self.a_wish_taken_back()
        assert status(jobs, 2) == state.jobs[UID].status
        assert jobs.status(UID, at(2)) is None

    def test_a_reason_that_passed_while_it_was_written_does_not_stay(self):
        state, jobs, passing = self.a_wish_taken_back()
        jobs.status(UID, at(2))
        take(state, job_body(gpuMemory="400Gi", status=passing.dump()))
        jobs.reconcile(UID, at(3))
        assert status(jobs, 3).reason == "NeverFits"

    def test_far_back_in_the_queue_numbers_are_not_renewed(self):
        self.state, self.jobs = world(job_body())
        self.jobs.reconcile(UID, START)
        assert self.explained(0, "a", position=101)
        assert not self.explained(3600, "b", position=100)

    @pytest.mark.parametrize("position", [1, 101])
    def test_what_a_changed_partition_makes_of_a_message_is_told_at_once(self, position: int):
        self.state, self.jobs = world(job_body())
        self.jobs.reconcile(UID, START)
        self.explained(0, "quota: 1 job", position)
        write(self.state, self.jobs)
        assert not self.explained(1, "quota: 1 job", position)
        assert self.explained(1, "quota: 2 jobs", position, generation=2)
        assert status(self.jobs, 1).message == "quota: 2 jobs"
        assert not self.explained(2, "quota: 2 jobs", position, generation=2)

    @pytest.mark.parametrize(
        ("spec", "before", "after"),
        [
            (
                {"gpuMemory": None, "slice": "medium"},
                {"slices": [{"name": "small", "memory": "4Gi"}]},
                {"slices": [{"name": "tiny", "memory": "4Gi"}]},
            ),
            (
                {"gpuMemory": "30Gi"},
                {"slices": [{"name": "small", "memory": "4Gi"}]},
                {"slices": [{"name": "tiny", "memory": "4Gi"}]},
            ),
            (
                {"gpuMemory": "39Gi"},
                {"sharing": {"memoryReservePercent": 10}},
                {"sharing": {"memoryReservePercent": 9}},
            ),
            (
                {"gpus": 2},
                {"sharing": {"mode": "MPS"}},
                {"sharing": {"mode": "TimeSlicing"}},
            ),
        ],
    )
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

    def test_the_partitions_that_there_are_are_told_anew_when_one_comes_or_goes(self):
        state, jobs = world(job_body(partition="typo"))
        jobs.reconcile(UID, START)
        write(state, jobs, partition="typo")
        state.queues.jobs.take()
        other = partition_body("other")
        take(state, other)
        assert state.queues.jobs.take() == {UID}
        jobs.reconcile(UID, at(1))
        assert "there is: other, shared" in status(jobs, 1).message
        take(state, other, deleted=True)
        assert state.queues.jobs.take() == {UID}

    def test_a_change_of_one_partition_leaves_those_of_others_alone(self):
        state, jobs = world(job_body(partition="typo"))
        jobs.reconcile(UID, START)
        state.queues.jobs.take()
        take(state, partition_body(metadata={"generation": 2}))
        assert state.queues.jobs.take() == set()

    def test_urgency(self):
        """An end is written at once; what may soon be out of date is not."""
        state, jobs = world(*gpus_up(server_body()), job_body())
        jobs.reconcile(UID, START)
        wish = jobs.status(UID, START)
        assert wish is not None
        assert 0 < wish[1] < 2
        take(state, server_body(allocations=ALLOCATED))
        take(state, pod_body())
        jobs.reconcile(UID, START)
        wish = jobs.status(UID, START)
        assert wish is not None
        assert wish[0].phase is Phase.ASSIGNED
        assert 0 < wish[1] < 2
        take(state, pod_body(status=pod_status("Succeeded", started=START, finished=START)))
        jobs.reconcile(UID, START + timedelta(seconds=1))
        wish = jobs.status(UID, START + timedelta(seconds=1))
        assert wish is not None
        assert (wish[0].phase, wish[1]) == (Phase.SUCCEEDED, 0.0)
