"""No answer of a policy, and no sequence of events, breaks an invariant of the ledger."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.models.partition import Quota
from partita.scheduling.guard import Guard, GuardResult
from partita.scheduling.ledger import Held
from partita.scheduling.quotas import over_share
from partita_policies import GPU, Job, Placement, RunningJob, Snapshot
from partita_policies.amounts import GPUAmounts, capacity_of
from support.strategies import GIB, placements, snapshots, within_limits

GPU_ONE = GPU("gpu-1", "node-1", memory=40 * GIB, max_jobs=4)
GPU_TWO = replace(GPU_ONE, id="gpu-2")
SMALL = Job("small", "team-a/small", "team-a", memory=8 * GIB)
LARGE = Job("large", "team-a/large", "team-a", memory=30 * GIB)


def snapshot(*jobs: Job, gpus: tuple[GPU, ...] = (GPU_ONE,)) -> Snapshot:
    return Snapshot("shared", 0.0, jobs, gpus)


def guard(
    *jobs: Job,
    gpus: tuple[GPU, ...] = (GPU_ONE,),
    quotas: Mapping[str, Quota] | None = None,
    held: Mapping[str, Held] | None = None,
) -> Guard:
    return Guard(gpus, {job.id: job for job in jobs}, quotas=quotas or {}, held=held or {})


def place(job: str, *gpus: str) -> Placement:
    return Placement(job, gpus)


def test_guarantees_are_allocated_and_counted_by_quotas_and_ceilings_are_not():
    several = [replace(SMALL, id=f"burst-{n}", memory_limit=40 * GIB) for n in range(3)]
    allowed = {"team-a": Quota(namespace="team-a", memory=16 * GIB)}
    checked = guard(*several, quotas=allowed)
    verdict = checked.check([place(job.id, "gpu-1") for job in several], snapshot(*several))
    assert [job.id for job, _ in verdict.accepted] == ["burst-0", "burst-1"]
    assert "16.0 GiB of namespace team-a are allocated" in checked.refusal("burst-2", ("gpu-1",))
    assert checked.held["team-a"].amounts.memory == 16 * GIB
    (gpu,) = checked.remaining()
    assert [(b.memory, b.memory_limit) for b in gpu.running] == [(8 * GIB, 40 * GIB)] * 2


quotas = st.dictionaries(
    st.sampled_from(["red", "green", "blue"]),
    st.builds(
        lambda jobs, memory: Quota(namespace="any", jobs=jobs, memory=memory and memory * GIB),
        st.none() | st.integers(0, 3),
        st.none() | st.integers(1, 40),
    ),
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_answer_breaks_an_invariant(data):
    offered = data.draw(snapshots())
    proposed = data.draw(placements(offered))
    allowed = data.draw(quotas)
    held = {"red": Held(GPUAmounts(8 * GIB), 1)}
    waiting = {job.id: job for job in offered.jobs if data.draw(st.integers(0, 9))}
    there = tuple(gpu for gpu in offered.gpus if data.draw(st.integers(0, 9)))
    checked = Guard(there, waiting, quotas=allowed, held=held)
    verdict = checked.check(proposed, offered)
    after = {gpu.id: gpu for gpu in checked.remaining()}
    for gpu in after.values():
        assert within_limits(gpu, gpu.running)
        assert len({running_job.job for running_job in gpu.running}) == len(gpu.running)
    for job, where in verdict.accepted:
        assert waiting[job.id] is job
        assert len(set(where)) == len(where) == job.gpus
        assert len({after[gpu].node for gpu in where}) == 1
    for namespace, quota in allowed.items():
        mine = [(job, where) for job, where in verdict.accepted if job.namespace == namespace]
        before = held.get(namespace, Held())
        memory = sum(
            sum(after[g].memory for g in where) if job.alone else job.memory * len(where)
            for job, where in mine
        )
        assert not mine or quota.jobs is None or before.jobs + len(mine) <= quota.jobs
        assert not mine or quota.memory is None or before.amounts.memory + memory <= quota.memory
    known = {job.id for job in offered.jobs}
    for placement in proposed:
        if placement.job not in known:
            assert f"there is no job {placement.job}" in verdict.broken


@settings(max_examples=60, deadline=None)
@given(snapshots(), st.data())
def test_an_answer_that_is_right_for_the_snapshot_is_never_called_broken(offered, data):
    honest = Guard(offered.gpus, {j.id: j for j in offered.jobs}, quotas={}, held={})
    right = [
        Placement(job.id, where)
        for job, where in honest.check(data.draw(placements(offered)), offered).accepted
    ]
    # Meanwhile everything has changed: jobs gone, GPUs gone, GPUs full.
    there = tuple(
        replace(gpu, memory=data.draw(st.sampled_from([0, gpu.memory])))
        for gpu in offered.gpus
        if data.draw(st.booleans())
    )
    waiting = {job.id: job for job in offered.jobs if data.draw(st.booleans())}
    late = Guard(there, waiting, quotas={}, held={})
    verdict = late.check(right, offered)
    assert verdict.broken == []


class TestWhatIsBroken:
    @pytest.mark.parametrize(
        ("placement", "why"),
        [
            (place("nobody", "gpu-1"), "there is no job nobody"),
            (place("small", "gpu-9"), "there is no GPU gpu-9"),
            (place("small", "gpu-1", "gpu-1"), "team-a/small cannot have gpu-1, gpu-1: Count"),
            (place("small"), "team-a/small cannot have no GPU: Count"),
        ],
    )
    def test_an_unknown_thing_is_named(self, placement: Placement, why: str):
        verdict = guard(SMALL).check([placement], snapshot(SMALL))
        assert verdict.broken == [why]
        assert verdict.accepted == []

    def test_a_job_placed_twice_starts_once(self):
        twice = [place("small", "gpu-1"), place("small", "gpu-1")]
        verdict = guard(SMALL).check(twice, snapshot(SMALL))
        assert verdict.accepted == [(SMALL, ("gpu-1",))]
        assert verdict.broken[0] == "team-a/small cannot have gpu-1: Allocated"

    def test_a_gpu_that_was_not_offered_is_none_that_it_may_name(self):
        checked = guard(SMALL, gpus=(GPU_ONE, GPU_TWO))
        verdict = checked.check([place("small", "gpu-2")], snapshot(SMALL))
        assert verdict.broken[0] == "there is no GPU gpu-2"

    def test_a_long_list_of_gpus_is_cut_in_the_message(self):
        nonsense = place("small", *["gpu-1"] * 500)
        verdict = guard(SMALL).check([nonsense], snapshot(SMALL))
        assert len(verdict.broken[0]) < 100


class TestWhatIsMerelyRefused:
    def test_a_job_that_waits_no_longer(self):
        assert guard().check([place("small", "gpu-1")], snapshot(SMALL)) == GuardResult()
        assert guard().refusal("small", ("gpu-1",)) == "the job waits no longer"

    def test_a_gpu_that_went_while_the_policy_thought(self):
        checked = guard(SMALL, gpus=())
        assert checked.check([place("small", "gpu-1")], snapshot(SMALL)) == GuardResult()
        said = checked.refusal("small", ("gpu-1",))
        assert said == "team-a/small cannot have gpu-1 any more: Unknown"

    def test_a_job_that_asks_for_more_by_now(self):
        grown = replace(SMALL, memory=39 * GIB)
        busy = replace(GPU_ONE, running=(RunningJob("other", 8 * GIB),))
        checked, offered = guard(grown, gpus=(busy,)), snapshot(SMALL, gpus=(busy,))
        assert checked.check([place("small", "gpu-1")], offered) == GuardResult()
        said = checked.refusal("small", ("gpu-1",))
        assert said == "team-a/small cannot have gpu-1 any more: Memory"


class TestQuotas:
    def test_of_memory_is_also_one_of_mps_clients(self):
        small = Quota(namespace="team-a", memory=GIB, jobs=2)
        hungry = replace(SMALL, memory=64 << 20, clients=47)
        total = capacity_of((GPU_ONE, GPU_TWO))
        assert over_share(hungry, small, Held(), total) == (
            "0 of 2 MPS clients of namespace team-a are allocated already, and this needs 47: an "
            "administrator may set quotas[].processes"
        )
        modest = replace(hungry, clients=1)
        assert over_share(modest, small, Held(GPUAmounts(0, 1, 1), 1), total) == ""
        assert over_share(modest, small, Held(GPUAmounts(0, 2, 2), 2), total)
        allowed = small.model_copy(update={"processes": 47})
        assert over_share(hungry, allowed, Held(), total) == ""
        assert over_share(hungry, allowed, Held(GPUAmounts(0, 1, 1), 1), total)

    def test_of_memory_is_also_one_of_places_unless_it_names_jobs(self):
        total = GPUAmounts(40 * GIB, 16, 48)
        quota = Quota(namespace="team-a", memory=10 * GIB)
        assert over_share(SMALL, quota, Held(GPUAmounts(0, 3, 3), 3), total) == ""
        assert "4 of 4 places of namespace team-a" in over_share(
            SMALL, quota, Held(GPUAmounts(0, 4, 4), 4), total
        )
        named = quota.model_copy(update={"jobs": 9})
        assert over_share(SMALL, named, Held(GPUAmounts(0, 4, 4), 4), total) == ""

    def test_a_job_that_is_alone_counts_with_the_whole_gpu(self):
        quota = {"team-a": Quota(namespace="team-a", memory=39 * GIB)}
        checked = guard(replace(SMALL, alone=True), quotas=quota)
        many = replace(SMALL, alone=True, gpus=10**12)  # as a claim may ask for
        assert checked.least_taken(many) == capacity_of([GPU_ONE]).times(10**12)
        assert "this needs 40.0 GiB" in checked.refusal("small", ("gpu-1",))


class TestContexts:
    """Memory for CUDA contexts is taken from the GPU, but not charged."""

    job = replace(SMALL, memory=9 * GIB, context_memory=GIB)

    def test_a_quota_is_charged_without_them(self):
        checked = guard(self.job, quotas={"team-a": Quota(namespace="team-a", memory=8 * GIB)})
        verdict = checked.check([place("small", "gpu-1")], snapshot(self.job))
        assert len(verdict.accepted) == 1
        assert checked.held["team-a"].amounts.memory == 8 * GIB
        assert checked.capacity["gpu-1"].memory == 31 * GIB

    def test_the_next_snapshot_has_them(self):
        checked = guard(self.job)
        checked.check([place("small", "gpu-1")], snapshot(self.job))
        (gpu,) = checked.remaining()
        assert [running.memory for running in gpu.running] == [9 * GIB]

    def test_a_job_that_is_alone_is_charged_for_the_rest_of_its_gpu(self):
        alone = replace(self.job, memory=GIB, alone=True)
        checked = guard(alone)
        checked.accept(alone, ("gpu-1",))
        assert checked.held["team-a"].amounts.memory == 39 * GIB
