"""All jobs: which ones wait, what is released, and what ends an attempt from outside."""

from typing import Any

import pytest

from jobs.job_objects import (
    ALLOCATED,
    CLAIM,
    UID,
    UNSCHEDULABLE,
    looked,
    status,
    wish,
    world,
    write,
)
from partita.claims.claim_lifecycle import Eviction
from partita.constants import OTHERS_JOB
from partita.jobs.job_reconciler import JobReconciler
from partita.models import Outcome, Phase
from partita.models.quantities import format_time
from partita.scheduling.gpu_state import drain_deadline
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.state import State
from support.builders import (
    DELETING,
    GIB,
    START,
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
from support.claims import claim_entry, job_claim_body


class TestTheQueue:
    def test_a_job_that_goes_leaves_the_queue(self):
        state, jobs = world(job_body())
        jobs.reconcile(UID, START)
        take(state, job_body(), deleted=True)
        assert jobs.reconcile(UID, START) is None
        assert jobs.demand.waiting["shared"] == {}
        assert jobs.status(UID, START) is None

    def test_beside_whom_it_was_placed_is_in_its_status(self):
        others = {"a": claim_entry(), "b": claim_entry(namespace="team-b")}
        server = server_body(allocations={**ALLOCATED, **others})
        _, jobs = world(*gpus_up(server), job_body(), pod_body(node="", gated=True))
        looked(jobs)
        assert status(jobs).assignment.beside == (OTHERS_JOB, "team-a/serve-1")

    def test_a_priority_above_the_cap_counts_as_the_cap(self):
        _, jobs = world(job_body(priority=9))
        jobs.reconcile(UID, START)
        assert status(jobs).effective_priority == jobs.demand.waiting["shared"][UID].priority == 0

    def test_a_job_that_changes_its_partition_changes_queues(self):
        state, jobs = world(job_body(), partition_body("other"))
        jobs.reconcile(UID, START)
        take(state, job_body(partition="other"))
        jobs.reconcile(UID, START)
        assert (jobs.demand.waiting["shared"], list(jobs.demand.waiting["other"])) == ({}, [UID])
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
        assert list(jobs.demand.waiting["typo"]) == [UID]

    def test_a_partition_that_is_being_deleted_is_none(self):
        state, jobs = world(job_body())
        take(state, partition_body(metadata=DELETING))
        jobs.reconcile(UID, START)
        assert status(jobs).reason == "PartitionNotFound"

    def test_a_job_that_is_too_large_stays_out_until_a_larger_gpu_comes(self):
        state, jobs = world(job_body(gpuMemory="60Gi"), *gpus_up(server_body()))
        jobs.reconcile(UID, START)
        told, wait = wish(jobs)
        assert (jobs.demand.waiting["shared"], told.reason, wait) == ({}, "NeverFits", 0.0)
        take(state, server_body("shared-1", memory="80Gi"))
        assert jobs.refresh_largest("shared")
        assert not jobs.refresh_largest("shared")
        jobs.reconcile(UID, START)
        assert list(jobs.demand.waiting["shared"]) == [UID]

    def ran_out(self, memory: str, *bodies: dict[str, Any]) -> tuple[State, JobReconciler]:
        attempt = {"number": 1, "outcome": "OutOfMemory", "memory": memory, "message": "no more"}
        job = job_body(status={"phase": "Queued", "attempts": [attempt]})
        return world(job, *gpus_up(server_body()), *bodies)

    def test_who_ran_out_of_a_whole_gpu_waits_while_a_larger_one_may_come(self):
        _, jobs = self.ran_out("38092Mi", server_body("shared-1", memory="80Gi"))
        jobs.reconcile(UID, START)
        assert list(jobs.demand.waiting["shared"]) == [UID]
        coming = server_body("shared-1", conditions={}, status={"uuid": ""})
        state, jobs = self.ran_out("38092Mi", coming, server_pod_body("shared-1"))
        jobs.reconcile(UID, START)
        shown = status(jobs)
        assert (shown.phase, shown.reason) == (Phase.QUEUED, "NeverFits")
        take(state, server_body("shared-1", memory="24Gi"))
        assert jobs.refresh_largest("shared")
        jobs.reconcile(UID, START)
        shown = status(jobs)
        assert (shown.phase, shown.reason) == (Phase.FAILED, "OutOfMemory")
        assert shown.message.endswith("attempt 1 ended as OutOfMemory: no more")

    def test_a_gpu_that_no_node_has_is_not_waited_for(self):
        coming = server_body("shared-1", conditions={}, status={"uuid": ""})
        _, jobs = self.ran_out("38092Mi", coming, server_pod_body("shared-1", node=""))
        jobs.reconcile(UID, START)
        assert status(jobs).phase is Phase.FAILED

    def test_history_is_looked_up_by_the_jobs_namespace(self):
        spec = {"gpuMemory": None, "application": "resnet"}
        _, jobs = world(job_body(**spec), profile_body(namespace="team-b"))
        jobs.reconcile(UID, START)
        assert jobs.demand.waiting["shared"][UID].alone
        _, jobs = world(job_body(**spec), profile_body())
        jobs.reconcile(UID, START)
        assert not jobs.demand.waiting["shared"][UID].alone


VLLM = (
    "ValueError: Free memory on device cuda:0 (7.6/39.5 GiB) on startup is less than desired GPU "
    "memory utilization (0.9, 35.55 GiB)."
)


def test_a_framework_that_asked_for_more_than_its_slice_is_not_given_more_but_told_what_to_set():
    pod = pod_body(status=pod_status("Failed", exit_code=1, message=VLLM))
    up = gpus_up(server_body(allocations=ALLOCATED))
    _, jobs = world(*up, job_body(), pod, job_claim_body(allocated=True))
    attempt = looked(jobs).attempts[-1]
    assert attempt.outcome is Outcome.FAILED
    assert attempt.message == (
        "vLLM asked for more GPU memory than its slice of 8Gi: set --gpu-memory-utilization 0.187; "
        f"if that is set, ask for more GPU memory: {VLLM}"
    )


class TestPodsThatDoNotStart:
    def world(self, **partition: Any) -> tuple[State, JobReconciler]:
        up = gpus_up(server_body(allocations=ALLOCATED))
        status = {"conditions": [{"type": "PodScheduled", "status": "False", **UNSCHEDULABLE}]}
        pod = pod_body(node="", status=status)
        state, jobs = world(*up, job_body(), pod, job_claim_body(allocated=True))
        take(state, partition_body(**partition))
        return state, jobs

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
        state, jobs = world(*gpus_up(server_body()), job_body())
        jobs.reconcile(UID, START)
        jobs.rejections.note(state.jobs[UID], WaitingReason(reason, "no"), START)
        jobs.reconcile(UID, START)
        return state, jobs

    def test_the_job_waits_for_a_while_and_the_reason_is_told(self):
        _, jobs = self.refused()
        told = status(jobs)
        assert (jobs.demand.waiting["shared"], told.reason) == ({}, "PodForbidden")
        assert told.message == "no; next try at 12:00:02 UTC"
        assert jobs.requeue_at(UID, START) == at(2)
        jobs.reconcile(UID, at(2))
        assert list(jobs.demand.waiting["shared"]) == [UID]
        assert jobs.requeue_at(UID, at(2)) is None

    def test_a_change_of_the_spec_makes_it_try_again(self):
        state, jobs = self.refused(Reason.INVALID_SPEC)
        jobs.reconcile(UID, at(10_000))
        assert jobs.demand.waiting["shared"] == {}
        take(state, job_body(metadata={"generation": 2}))
        jobs.reconcile(UID, START)
        assert list(jobs.demand.waiting["shared"]) == [UID]

    def test_a_status_that_is_never_taken_is_not_waited_for(self):
        done = pod_body(status=pod_status("Succeeded", started=START, finished=START))
        _, jobs = world(*gpus_up(server_body(allocations=ALLOCATED)), job_body(), done)
        assert not looked(jobs, 1).release
        jobs.records[UID].status_refused = True
        assert looked(jobs, 1).release


class TestASlowWebhook:
    """The API server takes long to create the Pod of a job, which waits in processing."""

    def test_jobs_of_its_namespace_without_a_pod_wait_until_it_has_answered(self):
        names = "beside", "created"
        bodies = [job_body(name) for name in names]
        elsewhere = [job_body("afar", namespace="team-b"), job_body("other", partition="other")]
        pod = pod_body("created", node="")
        there = *gpus_up(server_body()), partition_body("other"), job_body(), *bodies, *elsewhere
        state, jobs = world(*there, pod)
        for uid in state.queues.jobs.take():
            jobs.reconcile(uid, START)
        state.queues.jobs.start(UID)
        jobs.placed(UID)
        jobs.delayed(UID, "team-a")
        for uid in state.queues.jobs.take():
            jobs.reconcile(uid, START)
        assert jobs.demand.waiting["shared"].keys() == {"uid-created", "uid-afar"}
        shown = jobs.status("uid-beside", START)
        assert shown is not None
        assert "an admission webhook is slow" in shown[0].message
        jobs.reconcile("uid-other", START)
        assert jobs.demand.waiting["other"].keys() == {"uid-other"}
        state.queues.jobs.done(UID)
        for _ in range(2):
            for uid in state.queues.jobs.take():
                jobs.reconcile(uid, START)
        assert jobs.demand.waiting["shared"].keys() == jobs.records.keys() - {"uid-other"}


class TestAKilledClient:
    """A program was killed with work in flight, and the GPU has faulted."""

    @staticmethod
    def outcome(claim: str, pod: dict[str, Any]) -> Outcome | None:
        fault = {"type": "Faulted", "status": "True", "reason": "MPSClientKilled"}
        killed = {"claim": claim, "time": "2026-01-01T00:00:00Z"}
        told = {"conditions": [fault], "mps": {"killedClient": killed}}
        server = server_body(allocations=ALLOCATED, status=told)
        _, jobs = world(*gpus_up(server), job_body(), pod_body(status=pod))
        jobs.reconcile(UID, START)
        return looked(jobs, 5).attempts[-1].outcome

    def test_the_jobs_beside_it_are_queued_again(self):
        assert self.outcome("claim-b", pod_status("Running")) is Outcome.GPU_FAULT
        failed = pod_status("Failed", exit_code=1, started=START, finished=at(1))
        assert self.outcome("claim-b", failed) is Outcome.GPU_FAULT

    def test_the_job_itself_is_judged_by_its_pod_and_lost_if_it_still_runs(self):
        killed = pod_status("Failed", exit_code=137, started=START, finished=at(1))
        assert self.outcome(CLAIM, killed) is Outcome.FAILED
        assert self.outcome(CLAIM, pod_status("Running")) is Outcome.GPU_FAULT


class TestEnds:
    """What ends an attempt: its GPU, its node, its partition."""

    def running(self, *, server: dict[str, Any] | None = None, up: bool = True) -> Any:
        there = server or server_body(allocations=ALLOCATED)
        extra = [server_pod_body("shared-0")] if up else []
        pod = pod_body(status=pod_status("Running", started=START))
        return world(node_body(), there, *extra, job_body(), pod)

    def outcome(self, jobs: JobReconciler, now: float = 1) -> Outcome | None:
        return looked(jobs, now).attempts[-1].outcome

    def test_the_loss_of_its_server_pod_ends_it(self):
        _, jobs = self.running(up=False)
        assert self.outcome(jobs) is Outcome.GPU_FAULT
        assert status(jobs).attempts[-1].message == "shared-0: its server Pod is gone"

    def test_a_gpu_that_is_given_back_waits_for_it_for_a_while(self):
        state, jobs = self.running(server=server_body(metadata=DELETING, allocations=ALLOCATED))
        assert self.outcome(jobs, 599) is None
        assert jobs.requeue_at(UID, START) == at(600)
        assert self.outcome(jobs, 600) is Outcome.EVICTED
        take(state, partition_body(drainTimeout="5s"))
        assert drain_deadline("shared-0", state) == at(5)
        assert drain_deadline("no-such-server", state) is None

    def test_a_gpu_that_is_drained_waits_for_it_for_a_while(self):
        server = server_body(drainSince=format_time(START), allocations=ALLOCATED)
        _, jobs = self.running(server=server)
        assert self.outcome(jobs, 599) is None
        assert self.outcome(jobs, 600) is Outcome.EVICTED
        assert "drained" in status(jobs).attempts[-1].message
        assert jobs.requeue_at(UID, at(600)) is None

    @pytest.mark.parametrize(("claim", "peak"), [(CLAIM, 3 * GIB), ("claim-earlier", None)])
    def test_its_peak_is_what_the_agent_saw_of_its_own_claim(self, claim: str, peak: int | None):
        usage = {"jobs": {claim: {"memory": "1Gi", "peakMemory": "3Gi"}}}
        _, jobs = self.running(server=server_body(allocations=ALLOCATED, status={"usage": usage}))
        jobs.end(UID, Eviction("Preempted", ""))
        jobs.reconcile(UID, at(1))
        assert status(jobs).attempts[-1].peak_memory == peak

    def test_first_use_is_written_with_the_next_write_and_not_for_itself(self):
        state, jobs = self.running()
        jobs.reconcile(UID, at(1))
        write(state, jobs, 1)
        usage = {"jobs": {CLAIM: {"firstUse": format_time(at(3))}}}
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

    def test_a_fault_before_it_starts_is_not_charged_to_a_job_that_is_alone(self):
        fault = {"type": "Faulted", "status": "True", "reason": "MPSFault"}
        alone = {CLAIM: ALLOCATED[CLAIM] | {"alone": True}}
        server = server_body(allocations=alone, status={"conditions": [fault]})
        for said, outcome in (
            (pod_status(), Outcome.GPU_FAULT),
            (pod_status("Running", started=START), Outcome.FAILED),
        ):
            _, jobs = world(*gpus_up(server), job_body(), pod_body(status=said))
            assert self.outcome(jobs) is outcome

    def test_nothing_starts_on_a_gpu_that_goes_or_in_a_partition_that_is_gone(self):
        waits = job_body(), pod_body(gated=True), job_claim_body()
        going = server_body(allocations=ALLOCATED, metadata=DELETING)
        _, jobs = world(*gpus_up(going), *waits)
        assert self.outcome(jobs) is Outcome.EVICTED
        state, jobs = world(*gpus_up(server_body(allocations=ALLOCATED)), *waits)
        assert self.outcome(jobs) is None
        take(state, partition_body(), deleted=True)
        assert self.outcome(jobs) is Outcome.EVICTED
