"""What a job asks for, in numbers, or why it can never have it."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from partita.models import ApplicationProfile, Attempt, Outcome
from partita.models.quantities import MEBI
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import Reason, WaitingReason
from partita.scheduling.request import request_of_job
from partita.scheduling.resolved_request import resolve, with_profile
from partita.store.application_profiles import to_profile
from partita_policies.types import Job, Profile
from support.builders import GIB, a_job, a_partition, profile_body

LARGEST = Largest(memory=37 * GIB, gpus_on_node=4)
SLICES = [
    {"name": "small", "memory": "5Gi", "threadPercent": 20},
    {"name": "medium", "memory": "10Gi", "threadPercent": 50},
    {"name": "large", "memory": "20Gi", "threadPercent": 100},
]


def resolved(
    job: dict[str, Any] | None = None,
    partition: dict[str, Any] | None = None,
    *,
    out_of_memory: tuple[int, ...] = (),
    attempts: Sequence[Attempt] = (),
    history: Profile | None = None,
    largest: Largest = LARGEST,
) -> Job | WaitingReason:
    attempts = attempts or [
        Attempt(number=n + 1, memory=gib * GIB, outcome=Outcome.OUT_OF_MEMORY)
        for n, gib in enumerate(out_of_memory)
    ]
    return resolve(
        request_of_job(a_job(**(job or {})), attempts),
        a_partition(**(partition or {})),
        profile=history,
        largest=largest,
    )


def request(*args: Any, **fields: Any) -> Job:
    found = resolved(*args, **fields)
    assert isinstance(found, Job), found
    return found


def refusal(*args: Any, **fields: Any) -> WaitingReason:
    found = resolved(*args, **fields)
    assert isinstance(found, WaitingReason), found
    return found


def history(peak: str = "4Gi", duration: str = "60s") -> Profile:
    found = ApplicationProfile.parse(profile_body(peak=peak, duration=duration))
    (measurement,) = found.spec.measurements
    return to_profile("resnet", measurement)


class TestAmounts:
    def test_a_plain_request_is_taken_as_it_stands(self):
        job = request({"gpuMemory": "8Gi", "threadPercent": 25, "processes": 3, "priority": -2})
        assert (job.id, job.name, job.namespace) == ("uid-train", "team-a/train", "team-a")
        assert (job.memory, job.thread_percent, job.clients) == (8 * GIB, 25, 3)
        assert (job.slots, job.gpus, job.alone, job.priority) == (1, 1, False, -2)
        assert (job.duration, job.profile) == (None, None)

    @pytest.mark.parametrize(
        ("caps", "priority"),
        [
            ({}, 0),
            ({"maxPriority": 5}, 5),
            ({"maxPriority": 9}, 7),
            ({"maxPriority": 5, "quotas": [{"namespace": "team-a", "maxPriority": 6}]}, 6),
            ({"maxPriority": 5, "quotas": [{"namespace": "team-a", "maxPriority": -2}]}, -2),
            ({"maxPriority": 5, "quotas": [{"namespace": "team-a", "jobs": 1}]}, 5),
            ({"maxPriority": 5, "quotas": [{"namespace": "team-b", "maxPriority": 6}]}, 5),
        ],
    )
    def test_a_priority_counts_up_to_the_cap(self, caps: dict[str, Any], priority: int):
        assert request({"priority": 7}, caps).priority == priority

    def test_it_has_whole_mebibytes_a_place_for_every_container_and_by_default_all_threads(self):
        containers = [{"name": name, "image": "i"} for name in ("a", "b")]
        job = request({"gpuMemory": MEBI + 1, "template": {"spec": {"containers": containers}}})
        assert (job.memory, job.slots, job.thread_percent) == (2 * MEBI, 2, 100)

    def test_only_mps_counts_clients(self):
        assert request({"processes": 9}, {"sharing": {"mode": "TimeSlicing"}}).clients == 1

    def test_an_exclusive_job_is_alone(self):
        job = request({"gpus": 4}, {"sharing": {"mode": "Exclusive"}})
        assert (job.alone, job.gpus, job.memory) == (True, 4, 8 * GIB)

    def test_a_job_of_which_nothing_is_known_runs_alone(self):
        job = request({"gpuMemory": None, "application": "resnet"})
        assert (job.alone, job.memory) == (True, 0)

    def test_the_reserve_is_never_allocated(self):
        assert a_partition().spec.allocatable(40 * GIB) == 40 * 1024 * 93 // 100 * MEBI
        spec = {"sharing": {"memoryReservePercent": 0}}
        assert a_partition(**spec).spec.allocatable(40 * GIB + 5) == 40 * GIB


class TestContexts:
    """Where the driver limits containers, it counts the contexts of their processes too."""

    largest = Largest(memory=37 * GIB, gpus_on_node=4, clients=48, context_memory=512 * MEBI)

    def test_each_process_needs_room_for_its_context(self):
        found = request({"gpuMemory": "8Gi", "processes": 3}, largest=self.largest)
        assert (found.memory, found.context_memory) == (8 * GIB + 1536 * MEBI, 1536 * MEBI)

    def test_a_job_that_fills_a_gpu_leaves_no_room_for_it(self):
        said = refusal({"gpuMemory": "37Gi"}, largest=self.largest)
        assert said.reason is Reason.NEVER_FITS
        assert "36.5 GiB allocatable" in said.message
        assert request({"gpuMemory": "37Gi"}, largest=LARGEST).memory == 37 * GIB

    def test_more_contexts_than_any_gpu_has_memory_never_fit(self):
        said = refusal({"gpuMemory": "60Mi", "processes": 60}, largest=Largest(
            memory=20 * GIB, gpus_on_node=1, clients=60, context_memory=512 * MEBI
        ))  # fmt: skip
        assert said.reason is Reason.NEVER_FITS

    def test_growth_ends_where_there_is_no_room_for_contexts(self):
        grown = request({"gpuMemory": "30Gi"}, out_of_memory=(30,), largest=self.largest)
        assert grown.memory - grown.context_memory == 37 * GIB - 512 * MEBI


class TestHistory:
    def test_it_stands_in_for_what_is_not_said(self):
        job = request({"gpuMemory": None, "application": "resnet"}, history=history())
        assert job.memory == -(-4 * GIB * 110 // 100 // MEBI) * MEBI
        assert (job.alone, job.duration) == (False, 60.0)
        assert job.profile is not None
        assert job.profile.peak_memory == 4 * GIB

    def test_what_is_said_goes_before_it(self):
        spec = {"application": "resnet", "expectedDuration": "5m"}
        job = request(spec, history=history())
        assert (job.memory, job.duration) == (8 * GIB, 300.0)

    def test_its_margin_does_not_make_a_job_too_large(self):
        spec = {"gpuMemory": None, "application": "resnet"}
        assert request(spec, history=history("36Gi")).memory == 37 * GIB
        assert refusal(spec, history=history("38Gi")).reason is Reason.NEVER_FITS

    @pytest.mark.parametrize(
        ("spec", "partition"),
        [
            ({}, {}),
            ({"expectedDuration": "90s"}, {}),
            ({"gpuMemory": None, "slice": "small"}, {"slices": SLICES}),
            ({"gpuMemory": "12Gi", "threadPercent": 30}, {"slices": SLICES}),
            ({"gpus": 2}, {"sharing": {"mode": "Exclusive"}}),
        ],
    )
    def test_a_job_that_names_its_memory_gets_a_new_history_without_being_resolved_again(
        self, spec: dict[str, Any], partition: dict[str, Any]
    ):
        spec = {"application": "resnet", **spec}
        for before in (None, history("2Gi", "5s")):
            for now in (None, history("9Gi", "70s")):
                asked = request_of_job(a_job(**spec))
                renewed = with_profile(request(spec, partition, history=before), asked, now)
                assert renewed == request(spec, partition, history=now)


class TestGrowth:
    def test_it_grows_by_its_percentage_each_time(self):
        assert request(out_of_memory=(8,)).memory == 12 * GIB
        assert request(out_of_memory=(8, 12)).memory == 18 * GIB
        spec = {"retry": {"outOfMemory": {"growthPercent": 100}}}
        assert request(spec, out_of_memory=(8,)).memory == 16 * GIB

    def test_what_it_took_above_its_allocation_is_how_much_it_needs(self):
        for peak, memory in ((16, 18023), (8, 12288), (40, 37888)):
            ended = {"outcome": Outcome.OUT_OF_MEMORY, "peak_memory": peak * GIB}
            attempts = [Attempt(number=1, memory=8 * GIB, **ended)]
            assert request(attempts=attempts).memory == memory * MEBI

    @pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SYSTEM_FAILURE])
    def test_other_ends_do_not_make_it_grow(self, outcome: Outcome):
        attempts = [Attempt(number=1, memory=8 * GIB, outcome=outcome)]
        assert request(attempts=attempts).memory == 8 * GIB

    def test_the_largest_gpu_bounds_the_growth(self):
        assert request(out_of_memory=(30,)).memory == 37 * GIB

    def test_what_ran_out_of_the_largest_gpu_has_had_all_that_there_is(self):
        assert refusal(out_of_memory=(8, 37)) == WaitingReason(
            Reason.OUT_OF_MEMORY,
            "it ran out of GPU memory with 37.0 GiB allocated, and shared has no more to give on one "
            "GPU: make it use less (a smaller batch or model), or submit it to a partition with "
            "larger GPUs",
        )

    def test_so_has_what_was_to_be_learnt_on_a_gpu_of_its_own(self):
        assert refusal({"gpuMemory": None}, out_of_memory=(37,)).reason is Reason.OUT_OF_MEMORY
        assert request({"gpuMemory": None}, out_of_memory=(20,)).alone

    def test_a_gpu_that_has_just_come_may_be_larger(self):
        coming = Largest(memory=37 * GIB, gpus_on_node=4, arriving=True)
        assert refusal(out_of_memory=(37,), largest=coming).reason is Reason.NEVER_FITS

    def test_it_grows_though_no_gpu_is_known_yet_or_to_what_the_user_asks_for(self):
        assert request(out_of_memory=(30,), largest=Largest()).memory == 45 * GIB
        assert request({"gpuMemory": "20Gi"}, out_of_memory=(8,)).memory == 20 * GIB


class TestSlices:
    @pytest.mark.parametrize(
        ("spec", "memory", "threads"),
        [
            ({"gpuMemory": "4Gi"}, 5, 20),
            ({"gpuMemory": "5Gi"}, 5, 20),
            ({"gpuMemory": "6Gi"}, 10, 50),
            ({"gpuMemory": "4Gi", "threadPercent": 30}, 10, 50),
            ({"gpuMemory": "4Gi", "threadPercent": 100}, 20, 100),
            ({"gpuMemory": None, "slice": "medium"}, 10, 50),
        ],
    )
    def test_every_job_gets_the_smallest_that_holds_it(
        self, spec: dict[str, Any], memory: int, threads: int
    ):
        job = request(spec, {"slices": SLICES})
        assert (job.memory, job.thread_percent) == (memory * GIB, threads)

    def test_a_named_slice_that_was_too_small_becomes_a_larger_one(self):
        spec = {"gpuMemory": None, "slice": "small"}
        job = request(spec, {"slices": SLICES}, out_of_memory=(5,))
        assert (job.memory, job.thread_percent) == (10 * GIB, 50)

    def test_growth_does_not_leap_over_the_largest_slice(self):
        spec = {
            "gpuMemory": None,
            "slice": "medium",
            "retry": {"outOfMemory": {"growthPercent": 200}},
        }
        assert request(spec, {"slices": SLICES}, out_of_memory=(10,)).memory == 20 * GIB
        none_ready = request(spec, {"slices": SLICES}, out_of_memory=(10,), largest=Largest())
        assert none_ready.memory == 20 * GIB

    def test_a_request_above_all_slices_never_fits(self):
        why = refusal({"gpuMemory": "21Gi", "threadPercent": 60}, {"slices": SLICES})
        assert why == WaitingReason(
            Reason.NEVER_FITS,
            "no slice of shared holds 21.0 GiB and 60 % of the threads: it has "
            "small (5.0 GiB, 20 %), medium (10.0 GiB, 50 %), large (20.0 GiB, 100 %)",
        )
        assert refusal({"gpuMemory": "21Gi"}, {"slices": SLICES}).message.startswith(
            "no slice of shared holds 21.0 GiB: it has"
        )

    def test_an_unknown_slice_names_those_there_are(self):
        spec = {"gpuMemory": None, "slice": "huge"}
        assert refusal(spec, {"slices": SLICES}) == WaitingReason(
            Reason.INVALID_SPEC,
            "slice huge does not exist: partition shared has small, medium, large",
        )
        assert refusal(spec).message == (
            "slice huge does not exist: partition shared has no slices, write gpuMemory instead"
        )

    def test_a_larger_slice_with_too_few_threads_is_none(self):
        slices = [
            {"name": "quick", "memory": "10Gi", "threadPercent": 80},
            {"name": "large", "memory": "30Gi", "threadPercent": 20},
        ]
        why = refusal({"threadPercent": 50}, {"slices": slices}, out_of_memory=(10,))
        assert why.reason is Reason.OUT_OF_MEMORY

    def test_a_slice_need_not_be_whole_mebibytes(self):
        slices = [{"name": "odd", "memory": "5G"}]
        for spec in ({"gpuMemory": None, "slice": "odd"}, {"gpuMemory": "5G"}):
            assert request(spec, {"slices": slices}).memory == 4768 * MEBI

    def test_a_job_to_be_learnt_takes_a_whole_gpu_in_spite_of_them(self):
        assert request({"gpuMemory": None}, {"slices": SLICES}).alone


class TestWhatCanNeverBe:
    def test_more_memory_than_any_gpu_says_which_is_the_largest(self):
        assert refusal({"gpuMemory": "64Gi"}) == WaitingReason(
            Reason.NEVER_FITS,
            "needs 64.0 GiB of GPU memory, but the largest GPU of shared has 37.0 GiB allocatable: "
            "ask for less, or add a larger GPU",
        )

    def test_nobody_is_too_large_while_no_gpu_is_known(self):
        assert request({"gpuMemory": "64Gi"}, largest=Largest()).memory == 64 * GIB

    def test_more_gpus_than_a_node_has(self):
        assert refusal({"gpus": 8}, {"sharing": {"mode": "Exclusive"}}) == WaitingReason(
            Reason.NEVER_FITS,
            "needs 8 GPUs on one node, but shared has at most 4 on a node: ask for fewer",
        )

    def test_several_gpus_need_an_exclusive_partition(self):
        assert refusal({"gpus": 2}) == WaitingReason(
            Reason.INVALID_SPEC,
            "gpus: 2 needs a partition with sharing.mode Exclusive (an MPS client reaches one "
            "GPU), and shared has MPS: write gpus: 1 (in a claim count: 1) or "
            "another partition",
        )

    def test_more_containers_than_places(self):
        containers = [{"name": f"c{n}", "image": "i"} for n in range(3)]
        spec = {"template": {"spec": {"containers": containers}}}
        assert refusal(spec, {"sharing": {"maxJobsPerGPU": 2}}) == WaitingReason(
            Reason.INVALID_SPEC,
            "3 containers take more than the 2 places (sharing.maxJobsPerGPU) of a GPU of "
            "shared: use fewer containers",
        )

    @pytest.mark.parametrize(
        "template",
        [
            {"spec": {"containers": []}},
            {"spec": {"containers": "main"}},
            {"spec": {"containers": [{"name": "main", "env": "A=1"}]}},
        ],
    )
    def test_a_template_from_which_no_pod_can_be_made(self, template: dict[str, Any]):
        why = refusal({"template": template})
        assert why.reason is Reason.INVALID_SPEC
        assert why.message.startswith("template.spec.containers")

    def test_less_than_a_mebibyte_for_each_process(self):
        assert refusal({"gpuMemory": "10Mi", "processes": 48}) == WaitingReason(
            Reason.INVALID_SPEC,
            "gpuMemory 10 MiB is less than 1 MiB for each of 48 processes: ask for more, or use "
            "fewer processes",
        )
        assert request({"gpuMemory": "48Mi", "processes": 48}).clients == 48


class TestStaticSMs:
    SHARING: ClassVar = {"sharing": {"isolation": "StaticSM", "maxJobsPerGPU": 3}}

    def test_a_job_gets_the_share_of_a_partition(self):
        for asked in ({}, {"threadPercent": 20}, {"threadPercent": 33}):
            job = request({"gpuMemory": "8Gi", **asked}, self.SHARING)
            assert job.thread_percent == 33

    def test_a_slice_gets_it_too(self):
        slices = [{"name": "small", "memory": "8Gi"}]
        job = request({"slice": "small"}, {**self.SHARING, "slices": slices})
        assert job.thread_percent == 33

    def test_more_than_the_share_is_refused_with_what_to_write(self):
        why = refusal({"gpuMemory": "8Gi", "threadPercent": 34}, self.SHARING)
        assert why.reason is Reason.INVALID_SPEC
        assert "write 33 or less, or leave it out" in why.message
