"""Guarantee and ceiling of a job's memory, and how they grow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models import Attempt, Outcome
from partita.scheduling.memory_request import UNCHANGED_RECLAIMS
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import Reason, WaitingReason
from partita.scheduling.request import request_of_job
from partita.scheduling.resolved_request import resolve
from partita_policies.types import Job
from support.builders import GIB, a_job, a_partition

LARGEST = Largest(memory=32 * GIB, gpus_on_node=1)
SPARE = {"burst": "Spare"}
ASKS = {"gpuMemory": "8Gi", "gpuMemoryLimit": "20Gi"}
SLICES = [
    {"name": "small", "memory": "4Gi", "memoryLimit": "8Gi"},
    {"name": "tall", "memory": "5Gi", "memoryLimit": "16Gi"},
    {"name": "large", "memory": "12Gi"},
]
OOM, RECLAIMED = Outcome.OUT_OF_MEMORY, Outcome.RECLAIMED


def end(
    outcome: Outcome, memory: float = 8, limit: float | None = 20, peak: float | None = None
) -> dict[str, Any]:
    amounts = {"memory": memory, "memory_limit": limit, "peak_memory": peak}
    return {"outcome": outcome} | {k: int(v * GIB) for k, v in amounts.items() if v is not None}


def resolved(
    *ends: dict[str, Any],
    job: dict[str, Any] | None = None,
    largest: Largest = LARGEST,
    sharing: dict[str, Any] | None = None,
    **partition: Any,
) -> Job | WaitingReason:
    attempts = [Attempt(number=number, **values) for number, values in enumerate(ends, start=1)]
    pool = a_partition(sharing=SPARE if sharing is None else sharing, **partition)
    request = request_of_job(a_job(**(ASKS if job is None else job)), attempts)
    return resolve(request, pool, largest=largest)


def amounts(*ends: dict[str, Any], **fields: Any) -> tuple[float, float]:
    """The guarantee and the ceiling, GiB; the ceiling is 0 if it is not above the guarantee."""
    found = resolved(*ends, **fields)
    assert isinstance(found, Job), found
    return found.memory / GIB, found.memory_limit / GIB


class TestRequest:
    def test_a_job_is_guaranteed_one_amount_and_may_use_more_up_to_the_largest_gpu(self):
        assert amounts() == (8, 20)
        assert amounts(job=ASKS | {"gpuMemoryLimit": "8Gi"}) == (8, 0)
        assert amounts(job=ASKS | {"gpuMemoryLimit": "900Gi"}) == (8, 32)
        assert amounts(job=ASKS | {"gpuMemoryLimit": "900Gi"}, largest=Largest()) == (8, 900)

    def test_without_mps_it_is_refused(self):
        assert resolved(sharing={"mode": "TimeSlicing"}) == WaitingReason(
            Reason.INVALID_SPEC,
            "gpuMemoryLimit needs a partition with sharing.mode MPS, and shared has TimeSlicing: "
            "remove gpuMemoryLimit, or use another partition",
        )

    @pytest.mark.parametrize(
        ("job", "expected"),
        [
            ({"gpuMemory": "4Gi"}, (4, 8)),
            ({"gpuMemory": "4Gi", "gpuMemoryLimit": "9Gi"}, (5, 16)),
            ({"gpuMemory": "4Gi", "gpuMemoryLimit": "30Gi"}, (5, 16)),
            ({"gpuMemory": "6Gi"}, (12, 0)),
        ],
    )
    def test_a_slice_brings_its_own_ceiling(
        self, job: dict[str, Any], expected: tuple[float, float]
    ):
        assert amounts(job=job, slices=SLICES) == expected


class TestOutOfMemory:
    def test_at_its_ceiling_the_ceiling_grows(self):
        assert amounts(end(OOM)) == (8, 30)
        assert amounts(end(OOM), end(OOM, limit=30)) == (8, 32)

    def test_at_the_largest_ceiling_the_guarantee_grows(self):
        """The GPU may have been full."""
        before = end(OOM), end(OOM, limit=30)
        assert amounts(*before, end(OOM, limit=32)) == (12, 32)
        assert amounts(*before, end(OOM, limit=32, peak=20)) == (22, 32)

    def test_with_the_whole_gpu_guaranteed_there_is_nothing_larger(self):
        found = resolved(end(OOM, limit=32), end(OOM, memory=32, limit=None))
        assert isinstance(found, WaitingReason)
        assert found.reason is Reason.OUT_OF_MEMORY

    def test_the_guarantee_grows_where_it_could_not_borrow_or_may_not_any_more(self):
        assert amounts(end(OOM, limit=None)) == (12, 20)
        assert amounts(end(OOM), sharing={}) == (30, 0)

    def test_a_slice_with_a_larger_ceiling_is_taken(self):
        job = {"gpuMemory": "4Gi"}
        assert amounts(end(OOM, memory=4, limit=8), job=job, slices=SLICES) == (5, 16)
        again = end(OOM, memory=4, limit=8), end(OOM, memory=5, limit=16)
        assert amounts(*again, job=job, slices=SLICES) == (12, 0)


class TestReclaimed:
    def test_at_first_it_is_queued_again_as_it_was(self):
        found = resolved(*[end(RECLAIMED)] * UNCHANGED_RECLAIMS)
        assert isinstance(found, Job)
        assert (found.memory, found.memory_limit, found.reclaimed) == (8 * GIB, 20 * GIB, True)

    def test_it_is_first_only_after_a_reclaim(self):
        found = resolved(end(RECLAIMED), end(Outcome.FAILED))
        assert isinstance(found, Job)
        assert not found.reclaimed

    def test_again_and_again_its_guarantee_grows_to_what_it_used(self):
        often = [end(RECLAIMED, peak=16)] * (UNCHANGED_RECLAIMS + 1)
        assert amounts(*often) == (pytest.approx(17.6, abs=0.001), 20)

    def test_where_nothing_was_measured_it_grows_step_by_step_up_to_its_ceiling(self):
        often = [end(RECLAIMED)] * (UNCHANGED_RECLAIMS + 1)
        assert amounts(*often) == (12, 20)
        often += [end(RECLAIMED, memory=12), end(RECLAIMED, memory=18)]
        assert amounts(*often) == (20, 0)

    def test_its_guarantee_stays_within_the_quota_of_its_namespace(self):
        often = [end(RECLAIMED, peak=16)] * (UNCHANGED_RECLAIMS + 1)
        quotas = [{"namespace": "team-a", "memory": "10Gi"}]
        assert amounts(*often, quotas=quotas) == (10, 20)
        assert amounts(*often, quotas=[quotas[0] | {"memory": "6Gi"}]) == (8, 20)

    def test_with_slices_it_gets_a_larger_one_while_there_is_one(self):
        often = [end(RECLAIMED, memory=4, limit=8)] * (UNCHANGED_RECLAIMS + 1)
        assert amounts(*often, job={"gpuMemory": "4Gi"}, slices=SLICES) == (12, 0)


ends = st.lists(
    st.builds(
        end,
        st.sampled_from([OOM, RECLAIMED, Outcome.FAILED]),
        st.sampled_from([8, 12, 20, 32]),
        st.sampled_from([None, 20, 32]),
        st.sampled_from([None, 4, 16, 40]),
    ),
    max_size=6,
)


@given(ends, st.sampled_from([{}, SPARE]), st.sampled_from([(), SLICES]))
def test_whatever_happened_the_amounts_fit_a_gpu_and_are_no_less_than_asked(
    happened: list[dict[str, Any]], sharing: dict[str, Any], slices: Any
):
    job = {"gpuMemory": "3Gi", "gpuMemoryLimit": "7Gi"}
    if not sharing:
        slices = [{key: s[key] for key in ("name", "memory")} for s in slices]
    found = resolved(*happened, job=job, sharing=sharing, slices=list(slices))
    if isinstance(found, WaitingReason):
        assert found.reason is Reason.OUT_OF_MEMORY
        return
    assert 3 * GIB <= found.memory <= 32 * GIB
    assert found.memory_limit == 0 or found.memory < found.memory_limit <= 32 * GIB
    assert not (found.memory_limit and not sharing)
