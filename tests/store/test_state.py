"""The cache holds what the API server sent last, in whatever order that arrives."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.kube.kinds import CLAIMS, JOBS, NAMESPACES, NODES, PARTITIONS, PODS, PROFILES, SERVERS
from partita.models import Phase
from partita.store.missing import forget_missing
from partita.store.state import State
from store.objects import added, versioned
from support.builders import (
    GIB,
    a_state,
    allocation,
    has_keys,
    job_body,
    namespace_body,
    node_body,
    partition_body,
    pod_body,
    profile_body,
    server_body,
    server_pod_body,
    take,
)
from support.claims import claim_body


class TestVersions:
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
            state.namespaces, state.profiles._of,
        )  # fmt: skip
        assert not any(everything)

    def test_nothing_is_kept_of_what_is_gone_but_a_bounded_number_of_uids(self):
        state = a_state()
        empty = {name for name, value in vars(state).items() if not value}
        bodies = (
            node_body(), namespace_body("team-a"), partition_body(), profile_body(),
            server_body(allocations={"claim-train": allocation()}), server_pod_body("shared-0"),
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

    def test_what_cannot_be_read_is_named_and_what_was_known_stays_but_the_status_counts(self):
        state = a_state(versioned(job_body(), 10))
        take(state, versioned(job_body(gpuMemory="lots", status={"phase": "Running"}), 20))
        assert state.jobs["uid-train"].spec.gpu_memory == 8 * GIB
        assert state.jobs["uid-train"].status.phase is Phase.RUNNING
        assert state.jobs["uid-train"].metadata.resource_version == "20"
        (found,) = state.unreadable.of("sharedgpujobs")
        assert (found.key, found.field) == ("team-a/train", "spec.gpuMemory")
        assert "write an amount such as 4Gi" in found.problem
        assert not state.unknown("uid-train")
        take(state, versioned(job_body(), 30))
        assert list(state.unreadable) == []

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
        assert forget_missing(state, SERVERS, {"uid-shared-0"}, 10**9) == 0
        assert forget_missing(state, SERVERS, set(), 10**9) == 1
        assert state.unknown_of("shared") == ""


def test_pods_are_sorted_by_attempt():
    state = a_state(job_body(), pod_body(attempt=10), pod_body(attempt=2))
    assert [pod.attempt for pod in state.pods_of("uid-train")] == [2, 10]


class TestMissing:
    def test_what_a_list_does_not_have_is_forgotten_unless_it_is_newer(self):
        makes = {
            JOBS: job_body,
            SERVERS: server_body,
            PARTITIONS: partition_body,
            NODES: node_body,
            NAMESPACES: namespace_body,
            PODS: pod_body,
            PROFILES: profile_body,
            CLAIMS: claim_body,
        }
        for kind, make in makes.items():
            old, new = versioned(make("old"), 10), versioned(make("new"), 30)
            state = a_state(old, new)
            assert forget_missing(state, kind, {old["metadata"]["uid"]}, 40) == 1
            state = a_state(old, new)
            assert forget_missing(state, kind, set(), 20) == 1
            assert forget_missing(state, kind, set(), 20) == 0

    def test_server_pods_are_pods_too(self):
        state = a_state(versioned(server_pod_body("shared-0"), 10))
        assert forget_missing(state, PODS, set(), 20) == 1
        assert state.pods == {}

    def test_a_forgotten_job_leaves_no_trace_in_the_indexes(self):
        state = a_state(versioned(job_body(), 10), versioned(pod_body(), 10))
        forget_missing(state, JOBS, set(), 20)
        forget_missing(state, PODS, set(), 20)
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
        ledger = {f"claim-{n}": allocation(f"j{n % 2}", attempt=n + 1) for n in range(variant)}
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
        "allocated": {uid: list(state.allocated(uid)) for uid in ("claim-0", "claim-1", "claim-2")},
        "of attempts": {f"uid-j{n}": list(state.allocated(f"uid-j{n}")) for n in range(2)},
        "allocated_claims": sorted(state.allocated_claims()),
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
        for uid in list(state.allocated_claims()):
            assert state.allocated(uid)
    assert facts(state) == facts(expected)
