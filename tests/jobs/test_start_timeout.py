"""A Pod that does not start, or whose node does not answer, does not hold its job for ever."""

from dataclasses import replace

from jobs.job_objects import UNSCHEDULABLE
from jobs.plans import NO_RETRY, NOW, around, attempt, gated, last, with_attempts, written
from partita.jobs.lifecycle import plan_job
from partita.models import Outcome, Phase
from partita.models.quantities import format_time
from support.builders import a_job, a_pod, at, pod_status

PULLING = {
    "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
}
FETCHING = {"name": "fetch", "state": {"running": {"startedAt": format_time(at(2))}}}
TIMES = {"startedAt": format_time(at(2)), "finishedAt": format_time(at(50))}
FETCHED = {"name": "fetch", "state": {"terminated": {"exitCode": 0, **TIMES}}}
DELETED = {"deletionTimestamp": format_time(at(20))}


def unschedulable(**fields):
    condition = {"type": "PodScheduled", "status": "False", **UNSCHEDULABLE}
    return a_pod(node="", status={"conditions": [condition]}, **fields)


class TestStart:
    def test_the_reason_and_the_end_of_its_time_are_told(self):
        made = plan_job(a_job(), around(unschedulable(), allocated=1), NOW)
        assert (made.phase, made.reason, made.wake) == (Phase.ASSIGNED, "Unschedulable", at(601))
        assert made.message == (
            "no node takes the Pod: 0/1 nodes are available. "
            "The attempt ends as NotStarted at 12:10:01 UTC"
        )

    def test_then_the_attempt_ends_and_gives_its_gpu_back_in_this_order(self):
        job, pod = with_attempts(attempt(startTime=None)), unschedulable()
        there = around(pod, allocated=1, start_timeout=60)
        assert last(plan_job(job, there, at(60.9))).outcome is None
        made = plan_job(job, there, at(61))
        assert (last(made).outcome, last(made).reason) == (Outcome.NOT_STARTED, "Unschedulable")
        assert last(made).message == (
            "no container started within 1m: no node takes the Pod: 0/1 nodes are available"
        )
        assert (made.delete_pods, made.release) == ((), False)  # not before it is written down
        job = written(job, made)
        made = plan_job(job, there, at(61))
        assert (made.delete_pods, made.release, made.wants_gpu) == ((pod,), False, False)
        made = plan_job(job, around(allocated=1), at(62))
        assert (made.release, made.wants_gpu) == (True, False)
        made = plan_job(job, around(), at(62))
        assert (made.reason, made.wake) == ("BackOff", at(63))
        assert plan_job(job, around(), at(63)).wants_gpu

    def test_after_its_last_attempt_the_job_has_failed(self):
        ends = [
            attempt(n, Outcome.NOT_STARTED, reason="Unschedulable", message="no CPU")
            for n in (1, 2)
        ]
        job = with_attempts(*ends, retry={"notStarted": {"limit": 1}})
        made = plan_job(job, around(), NOW)
        assert (made.phase, made.reason) == (Phase.FAILED, "NotStarted")
        assert made.message == (
            "its Pod did not start 2 times (retry.notStarted.limit: 1); "
            "attempt 2 ended as NotStarted: no CPU"
        )
        # Other limits do not count: it is no failure of the program.
        more = with_attempts(*ends, retry=NO_RETRY | {"notStarted": {"limit": 2}})
        assert plan_job(more, around(), NOW).wants_gpu

    def test_a_program_that_has_started_has_all_the_time(self):
        pod = a_pod(status=pod_status("Running", started=at(5)))
        made = plan_job(a_job(), around(pod, allocated=1, start_timeout=1), NOW)
        assert (made.phase, last(made).outcome) == (Phase.RUNNING, None)

    def test_so_has_a_running_init_container(self):
        pod = a_pod(status={"initContainerStatuses": [FETCHING]})
        made = plan_job(a_job(), around(pod, allocated=1, start_timeout=1), NOW)
        assert (made.phase, made.reason, made.wake) == (Phase.ASSIGNED, "PodInitializing", None)
        assert last(made).outcome is None

    def test_after_its_init_containers_the_time_counts_anew(self):
        pod = a_pod(status={"initContainerStatuses": [FETCHED], **PULLING})
        there = around(pod, allocated=1, start_timeout=60)
        made = plan_job(a_job(), there, at(109))
        assert (made.wake, last(made).outcome) == (at(110), None)
        made = plan_job(a_job(), there, at(110))
        assert (last(made).outcome, last(made).reason) == (Outcome.NOT_STARTED, "ImagePullBackOff")
        assert plan_job(written(a_job(), made), around(), at(111)).reason == "BackOff"

    def test_a_gated_pod_has_no_longer(self):
        there = around(gated(), allocated=1, start_timeout=60)
        made = plan_job(a_job(), there, at(60))
        assert (made.phase, made.reason, made.wake) == (Phase.ASSIGNED, "", at(61))
        assert last(plan_job(a_job(), there, at(61))).outcome is Outcome.NOT_STARTED


class TestNodes:
    def test_a_node_that_does_not_answer_is_told(self):
        pod = a_pod(status=pod_status("Running", started=at(5)))
        made = plan_job(a_job(), around(pod, allocated=1, node_ready=lambda _: False), NOW)
        assert (made.phase, made.reason) == (Phase.RUNNING, "NodeNotReady")

    def test_a_pod_that_is_to_go_on_such_a_node_is_lost_after_a_while(self):
        pod = a_pod(status=pod_status("Running", started=at(5)), metadata=DELETED)
        job = with_attempts(attempt(), phase=Phase.RUNNING)
        there = around(pod, allocated=1, node_ready=lambda _: False, start_timeout=60)
        made = plan_job(job, there, at(79))
        assert (made.phase, made.reason, made.wake) == (Phase.ASSIGNED, "NodeNotReady", at(80))
        assert "ends as NodeLost at 12:01:20 UTC" in made.message
        made = plan_job(job, there, at(80))
        assert last(made).outcome is Outcome.NODE_LOST
        # Nobody knows whether it still runs: its GPU stays its own, and it is not started again.
        job = written(job, made)
        made = plan_job(job, there, at(10_000))
        assert (made.phase, made.release, made.wants_gpu) == (Phase.QUEUED, False, False)
        assert made.reason == "Ending"
        assert "node.kubernetes.io/out-of-service" in made.message
        # Its Node is deleted: nobody will confirm the deletion any more.
        gone = plan_job(job, replace(there, node_exists=lambda _: False), at(10_000))
        assert (gone.delete_pods, gone.grace, gone.release) == ((pod,), 0, False)
        assert plan_job(job, around(allocated=1), at(10_001)).release

    def test_a_pod_that_goes_on_a_node_that_answers_is_waited_for(self):
        pod = a_pod(status=pod_status("Running", started=at(5)), metadata=DELETED)
        there = around(pod, allocated=1, start_timeout=60)
        made = plan_job(with_attempts(attempt()), there, at(500))
        assert (made.phase, last(made).outcome) == (Phase.RUNNING, None)

    def test_a_pod_that_has_not_started_there_is_not_started(self):
        pod = a_pod(status=PULLING)
        there = around(pod, allocated=1, node_ready=lambda _: False, start_timeout=60)
        made = plan_job(a_job(), there, at(61))
        assert (last(made).outcome, last(made).reason) == (Outcome.NOT_STARTED, "NodeNotReady")
        assert plan_job(written(a_job(), made), there, at(62)).release is False
