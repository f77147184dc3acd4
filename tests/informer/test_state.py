"""The cache holds what the API server said last, in whatever order it is told."""

import random
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.informer.state import State
from partita.models import Phase
from support.builders import (
    GIB,
    a_state,
    allocation,
    has_keys,
    job_body,
    namespace_body,
    node_body,
    owner,
    partition_body,
    pod_body,
    pod_status,
    profile_body,
    server_body,
    server_pod_body,
    take,
)


def versioned(body: dict[str, Any], version: int, uid: str | None = None) -> dict[str, Any]:
    body["metadata"] |= {"resourceVersion": str(version)}
    if uid:
        body["metadata"]["uid"] = uid
    return body


def added(state: State) -> tuple[set[str], set[str]]:
    jobs = state.queues.jobs.take()
    return jobs, state.queues.partitions.take()


class TestVersions:
    def test_an_older_version_never_replaces_a_newer_one(self):
        state = a_state(versioned(job_body(priority=2), 20), versioned(job_body(priority=1), 10))
        assert state.jobs["uid-train"].spec.priority == 2

    def test_the_same_version_again_is_no_news(self):
        body = versioned(job_body(), 10)
        state = a_state(body)
        added(state)
        take(state, body)
        assert added(state) == (set(), set())
        assert not has_keys(state)

    def test_a_late_answer_does_not_revive_what_was_deleted(self):
        bodies = [
            versioned(body, 10)
            for body in (
                job_body(), server_body(), partition_body(), pod_body(), node_body(),
                namespace_body("team-a"), profile_body(), server_pod_body("shared-0"),
            )
        ]  # fmt: skip
        state = a_state(*bodies)
        for body in bodies:
            take(state, versioned(body, 11), deleted=True)
            take(state, versioned(body, 10))
        everything = (
            state.jobs, state.servers, state.partitions, state.pods, state.nodes,
            state.namespaces, state.profiles,
        )  # fmt: skip
        assert not any(everything)

    def test_nothing_is_kept_of_what_is_gone_but_a_bounded_number_of_uids(self):
        state = a_state()
        empty = {name for name, value in vars(state).items() if not value}
        bodies = (
            node_body(), namespace_body("team-a"), partition_body(), profile_body(),
            server_body(allocations={"uid-train": allocation()}), server_pod_body("shared-0"),
            job_body(), pod_body(), job_body("lost", partition="made-up"),
        )  # fmt: skip
        for body in bodies:
            take(state, body)
        take(state, job_body("lost", partition="another"))
        for body in reversed(bodies):
            take(state, body, deleted=True)
        assert {name for name, value in vars(state).items() if not value} == empty - {"_gone"}

    @pytest.mark.parametrize("make", [server_body, partition_body, node_body])
    def test_the_end_of_a_namesake_does_not_end_its_successor(self, make):
        state = a_state(versioned(make(), 10, "first"), versioned(make(), 20, "second"))
        take(state, versioned(make(), 15, "first"), deleted=True)
        kept = {**state.servers, **state.partitions, **state.nodes}
        assert len(kept) == 1

    def test_the_end_of_an_earlier_server_pod_does_not_end_its_successor(self):
        state = a_state(
            server_body("shared-0"),
            versioned(server_pod_body("shared-0"), 10, "first"),
            versioned(server_pod_body("shared-0"), 20, "second"),
        )
        take(state, versioned(server_pod_body("shared-0"), 30, "first"), deleted=True)
        assert list(state.pods) == ["second"]

    def test_what_cannot_be_read_is_named_and_what_was_known_stays(self):
        state = a_state(versioned(job_body(), 10))
        take(state, versioned(job_body(gpuMemory="lots"), 20))
        assert state.jobs["uid-train"].spec.gpu_memory == 8 * GIB
        assert state.jobs["uid-train"].metadata.resource_version == "20"
        (found,) = state.unreadable.of("sharedgpujobs")
        assert (found.key, found.field) == ("team-a/train", "spec.gpuMemory")
        assert "write an amount such as 4Gi" in found.problem
        assert not state.unknown("uid-train")
        take(state, versioned(job_body(), 30))
        assert list(state.unreadable) == []

    def test_of_what_cannot_be_read_the_status_counts_as_far_as_it_can(self):
        state = a_state(versioned(job_body(), 10))
        status = {"phase": "Running"}
        take(state, versioned(job_body(gpuMemory="lots", status=status), 20))
        assert state.jobs["uid-train"].status.phase is Phase.RUNNING

    def test_what_was_never_read_is_not_absent(self):
        state = a_state(partition_body(quotas=[{"namespace": "a", "memory": "8Ei"}]))
        assert "shared" not in state.partitions
        assert state.unknown("uid-shared")
        assert state.unknown_of("shared") == (
            "GPUPartition shared cannot be read (spec.quotas[0].memory: '8Ei' is too large: "
            "write an amount below 8Ei, such as 4Gi): correct it"
        )
        assert [one.field for one in state.unreadable] == ["spec.quotas[].memory"]
        assert state.unknown_of("other") == ""
        take(state, versioned(partition_body(), 9))
        assert (state.unknown_of("shared"), list(state.unreadable)) == ("", [])

    def test_what_was_never_read_and_is_gone_is_forgotten(self):
        state = a_state(server_body(partition="shared", memory="8Ei"))
        assert "GPUServer shared-0 cannot be read" in state.unknown_of("shared")
        assert state.forget_missing("gpuservers", {"uid-shared-0"}, 10**9) == 0
        assert state.forget_missing("gpuservers", set(), 10**9) == 1
        assert state.unknown_of("shared") == ""


class TestIndexes:
    def test_allocations_are_found_by_job(self):
        both = {"uid-train": allocation(), "uid-other": allocation("other")}
        state = a_state(
            server_body("shared-1", allocations=both),
            server_body("shared-0", allocations={"uid-train": allocation()}),
        )
        assert list(state.allocated("uid-train")) == ["shared-0", "shared-1"]
        assert set(state.allocated_jobs()) == {"uid-train", "uid-other"}
        take(state, server_body("shared-1"))
        assert list(state.allocated("uid-train")) == ["shared-0"]
        take(state, server_body("shared-0"), deleted=True)
        assert (state.allocated("uid-train"), set(state.allocated_jobs())) == ({}, set())

    def test_a_job_that_changes_its_partition_is_found_in_the_new_one(self):
        state = a_state(job_body(), job_body(partition="other"))
        assert [job.metadata.name for job in state.jobs_of("other")] == ["train"]
        assert list(state.jobs_of("shared")) == []

    def test_pods_are_sorted_by_attempt(self):
        state = a_state(job_body(), pod_body(attempt=10), pod_body(attempt=2))
        assert [pod.attempt for pod in state.pods_of("uid-train")] == [2, 10]


def orphan(name: str, namespace: str) -> dict[str, Any]:
    """Return a Pod that requests a device of ours, and has no owner."""
    uid = "orphan" if (name, namespace) == ("train-1", "team-a") else f"{namespace}-{name}"
    body = pod_body(namespace=namespace, metadata={"name": name, "uid": uid})
    body["metadata"]["ownerReferences"] = []
    limits = {"gpu.partita.dev/8a56a4bc": "1"}
    body["spec"]["containers"] = [{"name": "main", "resources": {"limits": limits}}]
    return body


class TestIdentity:
    """A Pod counts if what its tenant cannot change says so."""

    @pytest.mark.parametrize(
        "metadata",
        [
            {"ownerReferences": []},
            {"ownerReferences": [owner("SharedGPUJob", "train") | {"controller": False}]},
            {"ownerReferences": [owner("SharedGPUJob", "train") | {"apiVersion": "batch/v1"}]},
            {"ownerReferences": [owner("GPUPartition", "train")]},
            {"ownerReferences": [owner("SharedGPUJob", "train", "uid-other")]},
            {"namespace": "team-b"},
            {"name": "train"},
            {"name": "train-0"},
            {"name": "train-01"},
            {"name": "train-first"},
            {"name": "other-1"},
            {"name": "train-\u0661"},
        ],
        ids=str,
    )
    def test_what_does_not_belong_to_a_job_is_passed_over(self, metadata: dict[str, Any]):
        state = a_state(job_body(), server_body(allocations={"uid-train": allocation()}))
        state.apply_pod(pod_body(metadata=metadata))
        assert state.pods_of("uid-train") == []

    def test_without_the_job_its_allocation_says_where_its_pods_are(self):
        state = a_state(server_body(allocations={"uid-train": allocation()}))
        state.apply_pod(pod_body(namespace="team-b", metadata={"uid": "forged"}))
        state.apply_pod(pod_body())
        assert [pod.uid for pod in state.pods_of("uid-train")] == ["pod-train-1"]

    def test_only_the_recorded_pod_counts(self):
        told = {"number": 1, "pod": "train-1", "podUID": "pod-train-1"}
        state = a_state(job_body(status={"phase": "Running", "attempts": [told]}))
        state.apply_pod(pod_body(metadata={"uid": "forged"}))
        assert state.pods_of("uid-train") == []
        state.apply_pod(pod_body())
        assert [pod.uid for pod in state.pods_of("uid-train")] == ["pod-train-1"]

    def test_a_pod_that_is_known_stays_what_it_is(self):
        state = a_state(job_body(), pod_body())
        stripped = pod_body(
            status=pod_status("Succeeded"), metadata={"ownerReferences": [], "labels": {}}
        )
        state.apply_pod(stripped)
        (pod,) = state.pods_of("uid-train")
        assert pod.outcome.finished
        state.apply_pod(stripped, deleted=True)
        assert state.pods == {}

    def test_a_pod_that_lost_its_annotations_is_gone_once_it_is_deleted(self):
        labels = {"partita.dev/component": "job", "partita.dev/attempt": "1"}
        annotations = {"partita.dev/job-uid": "uid-train"}
        state = a_state(
            server_body(allocations={"uid-train": allocation()}),
            pod_body(metadata={"labels": labels, "annotations": annotations}),
        )
        stripped = pod_body(metadata={"labels": labels})
        state.apply_pod(stripped)
        assert [pod.name for pod in state.pods_of("uid-train")] == ["train-1"]
        state.queues.jobs.take()
        state.apply_pod(stripped, deleted=True)
        assert state.pods_of("uid-train") == []
        assert state.queues.jobs.take() == {"uid-train"}

    def test_a_pod_without_its_owner_belongs_to_the_allocation_of_its_name(self):
        state = a_state(server_body(allocations={"uid-train": allocation()}))
        for name, namespace in (("train-2", "team-a"), ("train-1", "team-b")):
            state.apply_pod(orphan(name, namespace))
        assert state.pods_of("uid-train") == []
        assert state.queues.jobs.take() == {"uid-train"}  # of the allocation
        pod = orphan("train-1", "team-a")
        state.apply_pod(pod)
        assert [found.uid for found in state.pods_of("uid-train")] == ["orphan"]
        assert state.queues.jobs.take() == {"uid-train"}
        state.apply_pod(pod, deleted=True)
        assert state.pods_of("uid-train") == []
        assert state.queues.jobs.take() == {"uid-train"}

    @pytest.mark.parametrize(
        "metadata",
        [
            {"namespace": "team-a"},
            {"name": "shared-1"},
            {"ownerReferences": []},
            {"ownerReferences": [owner("GPUServer", "shared-0", "uid-other")]},
            {"ownerReferences": [owner("SharedGPUJob", "shared-0")]},
        ],
        ids=str,
    )
    def test_what_does_not_belong_to_a_gpu_server_is_passed_over(self, metadata: dict[str, Any]):
        state = a_state(server_body(status={"podUID": ""}))
        state.apply_pod(server_pod_body("shared-0", **metadata, uid="forged"))
        assert state.server_pod("shared-0") is None
        state.apply_pod(server_pod_body("shared-0"))
        state.apply_pod(server_pod_body("shared-0", **metadata, uid="another"))
        assert state.server_pod("shared-0").uid == "pod-shared-0"  # type: ignore[union-attr]

    def test_only_the_recorded_server_pod_counts(self):
        state = a_state(server_body())
        state.apply_pod(server_pod_body("shared-0", uid="forged"))
        assert state.server_pod("shared-0") is None
        state.apply_pod(server_pod_body("shared-0"))
        assert state.server_pod("shared-0").uid == "pod-shared-0"  # type: ignore[union-attr]

    def test_who_makes_no_server_pods_takes_recorded_ones_only(self):
        state = State()
        state.apply_server(server_body(status={"podUID": ""}))
        state.apply_pod(server_pod_body("shared-0"))
        assert state.server_pod("shared-0") is None
        state.apply_server(server_body())
        assert state.server_pod("shared-0") is not None


class TestRemovedPods:
    """What is gone is remembered until its end is told: else its attempt would be made again."""

    def test_a_pod_that_nobody_wrote_down_is_kept_as_deleted_until_it_is_told(self):
        state = a_state(job_body(), pod_body())
        take(state, pod_body(), deleted=True)
        (gone,) = state.pods_of("uid-train")
        assert (gone.attempt, gone.alive, gone.outcome.outcome) == (1, False, "PodDeleted")
        told = {"number": 1, "pod": "train-1", "outcome": "PodDeleted"}
        take(state, job_body(status={"phase": "Queued", "attempts": [told]}))
        assert state.pods_of("uid-train") == []

    def test_a_pod_that_had_come_to_its_end_keeps_it(self):
        state = a_state(job_body(), pod_body(status=pod_status("Succeeded", exit_code=0)))
        take(state, pod_body(), deleted=True)
        assert [p.outcome.outcome for p in state.pods_of("uid-train")] == ["Succeeded"]

    def test_nothing_is_kept_of_a_job_that_is_gone(self):
        state = a_state(job_body(), pod_body())
        take(state, pod_body(), deleted=True)
        take(state, job_body(), deleted=True)
        assert state.pods_of("uid-train") == []


class TestNews:
    def test_a_node_that_goes_concerns_the_gpus_and_jobs_on_it(self):
        server = server_body(allocations={"uid-train": allocation()})
        state = a_state(node_body(), server)
        added(state)
        take(state, node_body())
        assert added(state) == (set(), set())
        take(state, node_body(ready=False))
        assert added(state) == ({"uid-train"}, {"shared"})
        take(state, node_body(), deleted=True)
        assert added(state) == ({"uid-train"}, {"shared"})

    def test_a_node_that_goes_concerns_server_pods_that_have_not_reported(self):
        server = server_body(node="", conditions={}, status={"uuid": ""})
        state = a_state(node_body(), server, server_pod_body("shared-0"))
        added(state)
        take(state, node_body(), deleted=True)
        assert added(state)[1] == {"shared"}

    def test_a_server_pod_that_goes_concerns_the_jobs_on_its_gpu(self):
        server = server_body(allocations={"uid-train": allocation()})
        state = a_state(server, server_pod_body("shared-0"))
        added(state)
        take(state, server_pod_body("shared-0"), deleted=True)
        assert added(state) == ({"uid-train"}, {"shared"})

    def test_a_partition_whose_status_alone_changed_is_no_news(self):
        state = a_state(partition_body(), job_body())
        added(state)
        take(state, partition_body())
        assert added(state) == (set(), set())
        take(state, partition_body(metadata={"generation": 2}))
        assert added(state) == ({"uid-train"}, {"shared"})

    def test_labels_of_a_namespace_concern_partitions_that_choose(self):
        choosy = partition_body("choosy", allowedNamespaces={"matchLabels": {"gpus": "yes"}})
        state = a_state(choosy, partition_body())
        added(state)
        take(state, namespace_body("team-a"))
        assert added(state)[1] == {"choosy"}
        take(state, namespace_body("team-a"))
        assert added(state)[1] == set()

    def test_history_concerns_its_application_and_its_jobs_are_not_looked_at(self):
        state = a_state(job_body(application="resnet"), job_body("other"))
        added(state)
        take(state, profile_body())
        assert state.queues.applications.take() == {("team-a", "resnet")}
        assert state.queues.applications.take() == set()
        assert not has_keys(state)
        assert state.profiles.profile("team-a", "resnet") is not None

    def test_of_several_profiles_of_an_application_that_with_the_most_runs_counts(self):
        bodies = [
            profile_body(name=name, runs=runs, peak=peak)
            for name, runs, peak in (("c", 2, "3Gi"), ("b", 3, "2Gi"), ("a", 3, "1Gi"))
        ]

        def peak(state: State) -> int:
            found = state.profiles.profile("team-a", "resnet")
            return found.peak_memory if found else 0

        for order in permutations([*bodies, profile_body(name="d", peak="4Gi")]):
            state = a_state(*order)
            assert peak(state) == GIB
            take(state, versioned(bodies[2], 10**9), deleted=True)
            assert peak(state) == 2 * GIB

    def test_a_profile_that_changes_its_application_leaves_the_old_one(self):
        state = a_state(profile_body(name="p"))
        state.queues.applications.take()
        take(state, profile_body("vgg", name="p"))
        concerned = {("team-a", "resnet"), ("team-a", "vgg")}
        assert state.queues.applications.take() == concerned
        assert state.profiles.profile("team-a", "resnet") is None
        assert state.profiles.profile("team-a", "vgg") is not None

    def test_all_get_the_same_object_of_a_measurement_until_it_changes(self):
        body = profile_body()
        (first,) = body["spec"]["measurements"]
        on_a100 = {**first, "duration": "30s", "environment": {"product": "A100"}}
        body["spec"]["measurements"] = [{**first, "runs": 2}, on_a100]
        state = a_state(body)
        one = state.profiles.profile("team-a", "resnet")
        assert one is not None
        assert state.profiles.profile("team-a", "resnet", "L4") is one
        other = state.profiles.profile("team-a", "resnet", "A100")
        assert other is not None
        assert (one.duration, other.duration) == (60, 30)
        assert state.profiles.profile("team-a", "resnet", "A100") is other
        take(state, profile_body(duration="61s"))
        renewed = state.profiles.profile("team-a", "resnet")
        assert renewed is not None
        assert renewed.duration == 61


class TestMissing:
    def test_what_a_list_does_not_have_is_forgotten_unless_it_is_newer(self):
        makes = {
            "sharedgpujobs": job_body,
            "gpuservers": server_body,
            "gpupartitions": partition_body,
            "nodes": node_body,
            "namespaces": namespace_body,
            "pods": pod_body,
            "applicationprofiles": profile_body,
        }
        for plural, make in makes.items():
            old, new = versioned(make("old"), 10), versioned(make("new"), 30)
            state = a_state(old, new)
            assert state.forget_missing(plural, {old["metadata"]["uid"]}, 40) == 1
            state = a_state(old, new)
            assert state.forget_missing(plural, set(), 20) == 1
            assert state.forget_missing(plural, set(), 20) == 0

    def test_server_pods_are_pods_too(self):
        state = a_state(versioned(server_pod_body("shared-0"), 10))
        assert state.forget_missing("pods", set(), 20) == 1
        assert state.pods == {}

    def test_a_forgotten_job_leaves_no_trace_in_the_indexes(self):
        state = a_state(versioned(job_body(), 10), versioned(pod_body(), 10))
        state.forget_missing("sharedgpujobs", set(), 20)
        state.forget_missing("pods", set(), 20)
        assert (list(state.jobs_of("shared")), state.pods_of("uid-train")) == ([], [])
        assert "uid-train" in added(state)[0]


# The history of a small cluster: who is when created, changed and deleted.
steps = st.lists(
    st.tuples(
        st.sampled_from(["job", "server", "pod", "server-pod", "node"]),
        st.integers(0, 1),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=14,
)


def history(drawn: list[tuple[str, int, int, bool]]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Return the events in the order in which they happened."""
    alive: dict[tuple[str, int], str] = {}
    for version, (kind, number, variant, ends) in enumerate(drawn, start=1):
        key = kind, number
        if ends and key not in alive:
            continue
        uid = alive.setdefault(key, f"{kind}-{number}-{version}")
        ledger = {f"job-{n}": allocation() for n in range(variant)}
        body = {
            "job": lambda n=number, v=variant: job_body(f"j{n}", partition=f"p{v % 2}"),
            "server": lambda n=number, v=variant, a=ledger: server_body(
                f"s{n}", partition=f"p{v % 2}", allocations=a
            ),
            "pod": lambda n=number, v=variant: pod_body(f"j{n}", v + 1),
            "server-pod": lambda n=number: server_pod_body(f"s{n}"),
            "node": lambda n=number, v=variant: node_body(f"n{n}", ready=v > 1),
        }[kind]()
        yield versioned(body, version, uid), ends
        if ends:
            del alive[key]


def facts(state: State) -> dict[str, Any]:
    return {
        "jobs": {uid: job.metadata.resource_version for uid, job in state.jobs.items()},
        "of": {p: sorted(j.metadata.uid for j in state.jobs_of(p)) for p in ("p0", "p1")},
        "servers": {p: [s.metadata.name for s in state.servers_of(p)] for p in ("p0", "p1")},
        "allocated": {f"job-{n}": list(state.allocated(f"job-{n}")) for n in range(3)},
        "allocated_jobs": sorted(state.allocated_jobs()),
        "pods": sorted((p.uid, p.version) for p in state.pods.values()),
        "of jobs": {f"uid-j{n}": [p.uid for p in state.pods_of(f"uid-j{n}")] for n in range(3)},
        "nodes": {n: (v.uid, v.ready) for n, v in state.nodes.items()},
    }


@settings(max_examples=80, deadline=None)
@given(steps, st.randoms(use_true_random=False), st.integers(0, 3))
def test_any_order_with_repeats_ends_in_the_same_state(drawn, rng: random.Random, repeats: int):
    """Our own writes' answers come before, after or beside the watch's events."""
    events = list(history(drawn))
    expected = State()
    for body, deleted in events:
        take(expected, body, deleted=deleted)
    mixed = events * (repeats + 1)
    rng.shuffle(mixed)
    state = State()
    for body, deleted in mixed:
        take(state, body, deleted=deleted)
        for uid in list(state.allocated_jobs()):
            assert state.allocated(uid)
    assert facts(state) == facts(expected)
