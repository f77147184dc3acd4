"""What ends the attempt of a job from outside: its GPU, its node, its partition."""

from typing import Any

from partita.models import Outcome
from partita.models.quantities import format_time
from partita.reconcile.gpu_state import drain_deadline
from partita.reconcile.job_reconciler import JobReconciler
from reconcile.jobs import ALLOCATED, UID, status, world, write
from support.builders import (
    DELETING,
    GIB,
    START,
    at,
    job_body,
    node_body,
    partition_body,
    pod_body,
    pod_status,
    server_body,
    server_pod_body,
    take,
)


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
        assert drain_deadline("shared-0", state) == at(5)
        assert drain_deadline("no-such-server", state) is None

    def test_a_gpu_that_is_drained_waits_for_it_for_a_while(self):
        server = server_body(drainSince=format_time(START), allocations=ALLOCATED)
        _, jobs = self.running(server=server)
        assert self.outcome(jobs, 599) is None
        assert self.outcome(jobs, 600) is Outcome.EVICTED
        assert "drained" in status(jobs).attempts[-1].message

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
