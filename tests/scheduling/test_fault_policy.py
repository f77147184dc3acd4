"""Whom a GPU fault is charged to."""

import pytest

from jobs.plans import NOW, around, attempt, ended, last, with_attempts
from partita.jobs.attempts import Ending
from partita.jobs.lifecycle import plan_job
from partita.models import Attempt, Outcome, Phase
from partita.scheduling.fault_policy import GPUFault, ending_of
from partita.scheduling.node_fit import Largest
from partita.scheduling.request import request_of_job
from partita.scheduling.resolved_request import resolve
from partita_policies.types import Job
from support.builders import GIB, a_partition, a_pod, an_allocation, at, pod_status, seconds

ILLEGAL = "CUDA error: an illegal memory access was encountered"
MPS_FAULT = GPUFault("MPSFault", "a program has caused a fatal fault")
LARGEST = Largest(memory=37 * GIB, gpus_on_node=1)


def suspect(number: int, outcome: Outcome = Outcome.GPU_FAULT) -> dict[str, object]:
    return attempt(number, outcome, faultSuspect=True)


def resolved(*attempts: dict[str, object], mode: str = "MPS", **spec: object) -> Job:
    job = with_attempts(*attempts, **spec)
    partition = a_partition(sharing={"mode": mode})
    found = resolve(request_of_job(job, job.status.attempts), partition, largest=LARGEST)
    assert isinstance(found, Job)
    return found


class TestEnding:
    @pytest.mark.parametrize(
        "fault", [MPS_FAULT, GPUFault("MPSServerLost", ""), GPUFault("MPSHung", "")]
    )
    def test_beside_others_everybody_is_a_suspect_and_alone_it_is_the_jobs_failure(
        self, fault: GPUFault
    ):
        ending = ending_of("shared-0", fault, an_allocation())
        assert (ending.outcome, ending.suspect) == (Outcome.GPU_FAULT, True)
        ending = ending_of("shared-0", fault, an_allocation(alone=True))
        assert (ending.outcome, ending.suspect) == (Outcome.FAILED, False)
        assert "faulted while the job was alone on it" in ending.message
        assert fault.text in ending.message
        ending = ending_of("shared-0", fault, an_allocation(alone=True), started=False)
        assert (ending.outcome, ending.suspect) == (Outcome.GPU_FAULT, True)

    @pytest.mark.parametrize(
        "fault",
        [
            GPUFault("GPULost", "the driver cannot reach it"),
            GPUFault("XidError", "Xid 62: the GPU needs a reset"),
            GPUFault("", "its server Pod is gone"),
            GPUFault("MPSWedged", "a canary client hung"),
            GPUFault("MPSClientKilled", "a program was killed with work on the GPU", "uid-b"),
        ],
    )
    @pytest.mark.parametrize("alone", [False, True])
    def test_what_no_program_causes_is_charged_to_nobody(self, fault: GPUFault, *, alone: bool):
        ending = ending_of("shared-0", fault, an_allocation(alone=alone))
        assert (ending.outcome, ending.suspect) == (Outcome.GPU_FAULT, False)


class TestPlan:
    def test_a_suspect_waits_for_a_backoff_and_is_not_charged(self):
        fault = Ending(Outcome.GPU_FAULT, "shared-0: MPSFault", suspect=True)
        job = with_attempts(attempt(), retry={"limit": 0})
        pod = a_pod(status=pod_status("Running"))
        made = plan_job(job, around(pod, allocated=1, ending=fault), NOW)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.GPU_FAULT)
        assert last(made).fault_suspect

    def test_the_first_fault_holds_nobody(self):
        assert plan_job(with_attempts(suspect(1)), around(), at(51)).wants_gpu

    @pytest.mark.parametrize(("faults", "wait"), [(2, 2), (3, 4)])
    def test_the_backoff_doubles_with_each_fault(self, faults: int, wait: int):
        job = with_attempts(*(suspect(n + 1) for n in range(faults)))
        made = plan_job(job, around(), at(51))
        assert (made.reason, made.wake) == ("BackOff", at(50) + seconds(wait))

    def test_a_victim_of_failed_hardware_is_not_held(self):
        job = with_attempts(attempt(1, Outcome.GPU_FAULT, faultSuspect=False))
        assert plan_job(job, around(), at(51)).wants_gpu

    def test_faults_while_alone_reach_the_retry_limit(self):
        fault = ending_of("shared-0", MPS_FAULT, an_allocation(alone=True))
        job = with_attempts(
            suspect(1), suspect(2), attempt(3, Outcome.FAILED), attempt(4), retry={"limit": 1}
        )
        pod = a_pod(attempt=4, status=pod_status("Running"))
        made = plan_job(job, around(pod, allocated=4, ending=fault), NOW)
        assert (made.phase, made.reason) == (Phase.FAILED, "RetryLimitExceeded")
        assert "faulted while the job was alone on it" in made.message

    def test_a_fault_that_ended_the_pod_first_is_remembered_too(self):
        fault = Ending(Outcome.GPU_FAULT, "shared-0: MPSFault", suspect=True)
        pod = a_pod(status=ended(1, "CUDA error: an illegal memory access"))
        made = plan_job(with_attempts(attempt()), around(pod, allocated=1, ending=fault), NOW)
        assert (last(made).outcome, last(made).fault_suspect) == (Outcome.GPU_FAULT, True)

    def test_suspicions_are_kept_however_many_attempts_follow(self):
        idle = (attempt(n, Outcome.PREEMPTED) for n in range(3, 40))
        made = plan_job(with_attempts(suspect(1), suspect(2), *idle), around(), NOW)
        assert [a.number for a in made.attempts if a.fault_suspect] == [1, 2]


class TestKilledNeighbour:
    """Its programs end with cudaErrorIllegalAddress because a co-located client was killed."""

    @staticmethod
    def judged(message: str = ILLEGAL, *, killed: int | None = 58) -> Attempt:
        job = with_attempts(attempt(), retry={"limit": 0})
        pod = a_pod(status=ended(1, message))  # at 60 s
        beside = None if killed is None else at(killed)
        there = around(pod, allocated=1, ended_since={1: at(60)}, killed_beside=beside)
        return last(plan_job(job, there, NOW))

    @pytest.mark.parametrize("killed", [52, 60, 61])
    def test_its_attempt_is_charged_to_nobody(self, killed: int):
        found = self.judged(killed=killed)
        assert (found.outcome, found.fault_suspect) == (Outcome.GPU_FAULT, None)
        assert "a co-located program was killed" in found.message
        assert ILLEGAL in found.message

    @pytest.mark.parametrize("killed", [None, 40, 70])
    def test_without_a_kill_at_that_time_the_error_is_its_own(self, killed: int | None):
        assert self.judged(killed=killed).outcome is Outcome.FAILED

    def test_another_error_is_its_own(self):
        assert self.judged("ValueError: no such file").outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("message", "hardware", "outcome"),
    [
        ("CUDA error: uncorrectable ECC error encountered", "ECCError: Xid 94", Outcome.GPU_FAULT),
        ("CUDA error: uncorrectable ECC error encountered", "", Outcome.FAILED),
        ("ValueError: no such file", "ECCError: Xid 94", Outcome.FAILED),
    ],
)
def test_an_error_of_the_hardware_is_not_charged_to_the_job_that_met_it(
    message: str, hardware: str, outcome: Outcome
):
    job = with_attempts(attempt(), retry={"limit": 0})
    there = around(a_pod(status=ended(1, message)), allocated=1, hardware=hardware)
    found = last(plan_job(job, there, NOW))
    assert hardware in found.message or outcome is Outcome.FAILED
    assert (found.outcome, found.fault_suspect) == (outcome, None)


class TestRequest:
    def test_a_job_runs_alone_after_two_faults_beside_others(self):
        assert not resolved(suspect(1)).alone
        found = resolved(suspect(1), attempt(2, Outcome.PREEMPTED), suspect(3))
        assert (found.alone, found.alone_by_faults, found.memory) == (True, True, 8 * GIB)

    def test_failed_hardware_makes_nobody_run_alone(self):
        faults = [attempt(n, Outcome.GPU_FAULT, faultSuspect=False) for n in range(1, 5)]
        assert not resolved(*faults).alone

    def test_a_job_that_is_alone_anyway_still_allocates_whole_gpus(self):
        found = resolved(suspect(1), suspect(2), mode="Exclusive")
        assert (found.alone, found.alone_by_faults) == (True, False)

    def test_its_place_in_the_queue_is_the_old_one(self):
        first = resolved()
        assert resolved(suspect(1), suspect(2)).submitted == first.submitted
