"""Why a job waits, told in sentences with what is asked for, what is free and of how much."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from partita.scheduling.policy_runner import Answer, WaitingRule
from partita.scheduling.reasons import Reason, WaitingReason, gib, stalled
from partita.scheduling.waiting_reasons import WaitingReasons
from partita_policies import GPU, Job, Profile, RunningJob, Step
from partita_policies.capacity import FreeCapacity
from support.strategies import GIB, snapshots

ONE = GPU("shared-0", "node-1", memory=37 * GIB, max_jobs=4)
SECOND = replace(ONE, id="shared-1")
JOB = Job("job", "team-a/job", "team-a", memory=16 * GIB)
TWO = replace(JOB, alone=True, gpus=2)


def full(gpu: GPU = ONE, *, memory: int = 30, **fields: Any) -> GPU:
    return replace(gpu, running=(RunningJob("other", memory * GIB, **fields),))


def why(
    job: Job,
    *gpus: GPU,
    holds: dict[str, tuple[str, ...]] | None = None,
    wanted: int = 2,
    order: tuple[Job, ...] = (),
    **rule: Any,
) -> WaitingReason:
    answer = Answer((), policy="sjf", rule=WaitingRule(**rule))
    given = {"holds": holds or {}, "answer": answer, "partition": "shared", "wanted": wanted}
    return WaitingReasons(FreeCapacity(gpus), gpus, order=order, **given).why(job)


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (why(JOB, full(), full(SECOND, memory=25)), Reason.INSUFFICIENT_MEMORY,
         "needs 16.0 GiB of GPU memory; the most that is free is 12.0 GiB of 37.0 GiB on shared-1"),
        (why(JOB, full(memory=1, slots=4)), Reason.TOO_MANY_JOBS,
         "1 of 1 GPUs of shared have all their 4 places taken (sharing.maxJobsPerGPU)"),
        (why(replace(JOB, clients=20), full(memory=1, clients=40)), Reason.TOO_MANY_CLIENTS,
         "1 of 1 GPUs of shared have all their 48 MPS clients taken; it needs 20"),
        (why(replace(JOB, alone=True), full(memory=1)), Reason.GPU_NOT_IDLE,
         "needs an idle GPU; 1 of 1 GPUs of shared are in use"),
        (why(TWO, full(memory=1), SECOND), Reason.GPU_NOT_IDLE,
         "needs 2 idle GPUs on one node; 1 of 2 GPUs of shared are in use"),
        (why(JOB, full(memory=1, alone=True)), Reason.GPU_NOT_IDLE,
         "1 of 1 GPUs of shared are each used by a job that must be alone"),
        (why(replace(JOB, products=("NVIDIA L4",)), full(memory=1)), Reason.OTHER_PRODUCT,
         "needs NVIDIA L4; 1 of 1 GPUs of shared are others"),
        (why(JOB), Reason.NO_GPU_READY,
         "none of the 2 GPUs of shared is ready: see `kubectl get gpuservers` and `kubectl describe gpart shared`"),
        (why(JOB, wanted=0), Reason.NO_GPU_READY, "shared has no GPUs: raise spec.gpus"),
        (why(JOB, ONE), Reason.POLICY_WAITS, "it would fit, but policy sjf does not start it yet"),
        (why(JOB, ONE, holds={"somebody": ("shared-0",)}), Reason.GPU_HELD,
         "the GPUs with room are held for other jobs first"),
        (why(JOB, full(), holds={"job": ("shared-0",)}), Reason.GPU_HELD,
         "shared-0 is held for it until enough is released"),
        (why(TWO, ONE, replace(SECOND, node="node-2")), Reason.INSUFFICIENT_MEMORY,
         "needs 2 GPUs on one node at the same time; no node has as many idle"),
        (why(TWO, ONE, SECOND), Reason.POLICY_WAITS,
         "it would fit, but policy sjf does not start it yet"),
    ],
)  # fmt: skip
def test_the_sentence(found: WaitingReason, reason: Reason, message: str):
    assert found == WaitingReason(reason, message)


FIRST = replace(JOB, id="first", name="team-a/first")
THEIRS = replace(JOB, id="theirs", name="secret/theirs", namespace="secret")
PROFILE = Profile("hog", 60.0, (Step(100.0, GIB, 100.0),))
HOG = replace(JOB, application="hog", profile=PROFILE)
BUSY = full(memory=1, application="hog", profile=PROFILE)
BESIDE = "does not start it yet: beside the job on shared-0 it is predicted to take 2.12 times as long as alone"
UNNAMED = "a job or workload of another namespace"


@pytest.mark.parametrize(
    ("job", "gpu", "given", "end"),
    [
        (JOB, ONE, {"reason": "keeps the order", "in_order": True, "order": (FIRST, JOB)},
         "keeps the order: team-a/first is before it"),
        (JOB, ONE, {"reason": "keeps the order", "in_order": True, "order": (THEIRS, JOB)},
         f"keeps the order: {UNNAMED} is before it"),
        (JOB, ONE, {"in_order": True, "order": (JOB, FIRST)}, "does not start it yet"),
        (HOG, BUSY, {}, BESIDE),
        (HOG, BUSY, {"slowdown_budget": 1.5},
         f"{BESIDE}, which is over the policy's slowdown_budget of 1.5"),
        (HOG, BUSY, {"reason": "has a rule"}, "has a rule"),
        (HOG, BUSY, {"kept_for": {"job": "first"}, "order": (HOG, FIRST)},
         "does not start it yet: it keeps the room for team-a/first"),
        (JOB, BUSY, {}, "does not start it yet"),  # it has no profile
        (JOB, ONE, {"holds": {"first": ("shared-0",)}, "order": (FIRST, JOB)},
         "the GPUs with room are held for team-a/first first"),
        (JOB, ONE, {"holds": {"theirs": ("shared-0",)}, "order": (THEIRS, JOB)},
         f"the GPUs with room are held for {UNNAMED} first"),
    ],
)  # fmt: skip
def test_the_cause_of_the_policy_is_told(job: Job, gpu: GPU, given: dict[str, Any], end: str):
    assert why(job, gpu, **given).message.removeprefix("it would fit, but policy sjf ") == end


def test_different_reasons_are_counted():
    no_place = full(replace(ONE, id="shared-2"), memory=1, slots=4)
    gpus = full(), full(SECOND), no_place, replace(ONE, id="shared-3")
    assert why(JOB, *gpus, holds={"other": ("shared-3",)}).message == (
        "needs 16.0 GiB of GPU memory; the most that is free is 7.0 GiB of 37.0 GiB on shared-0 "
        "(and 1 have no place left, 1 are held for other jobs)"
    )


def test_memory_that_is_free_where_no_place_is_is_not_held_up_as_the_most():
    no_place = full(replace(ONE, id="shared-2"), memory=1, slots=4)
    both = full(), full(SECOND), no_place
    assert "the most that is free is 7.0 GiB" in why(JOB, *both).message


@given(snapshots())
def test_there_is_an_answer_for_every_job_and_it_is_the_same_for_its_twins(snapshot):
    given = {"answer": Answer((), "fifo"), "partition": "shared", "wanted": len(snapshot.gpus)}
    holds = {"job-0": [gpu.id for gpu in snapshot.gpus[:1]]}
    reasons = WaitingReasons(FreeCapacity(snapshot.gpus), snapshot.gpus, holds=holds, **given)
    for job in snapshot.jobs:
        found = reasons.why(job)
        assert found.message
        twin = replace(job, id="twin", name="team-a/twin")
        if job.id != "job-0":
            assert reasons.why(twin) == found


def test_amounts_are_written_for_people():
    assert [gib(n) for n in (0, 5 << 20, 1023 << 20, GIB, 37 * GIB + GIB // 4)] == [
        "0 MiB", "5 MiB", "1023 MiB", "1.0 GiB", "37.2 GiB",
    ]  # fmt: skip


def test_only_what_yaml_can_help_is_stalled():
    assert {reason.value for reason in Reason if stalled(reason)} == {
        "PartitionNotFound", "PartitionUnreadable", "NamespaceNotAllowed", "InvalidSpec",
        "NeverFits", "NoPod",
    }  # fmt: skip
