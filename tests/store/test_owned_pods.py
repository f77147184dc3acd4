"""Which Pods count as a job's, and which stay after their deletion."""

from typing import Any

import pytest

from partita.store.state import State
from support.builders import (
    a_state,
    allocation,
    job_body,
    owner,
    pod_body,
    pod_status,
    server_body,
    server_pod_body,
    take,
)


def orphan(name: str, namespace: str) -> dict[str, Any]:
    """Return a Pod that names a claim of the operator, and has no owner."""
    uid = "orphan" if (name, namespace) == ("train-1", "team-a") else f"{namespace}-{name}"
    body = pod_body(namespace=namespace, metadata={"name": name, "uid": uid})
    body["metadata"]["ownerReferences"] = []
    claim = f"{name}.shared-0.partita.dev"
    body["spec"]["resourceClaims"] = [{"name": "partita-gpu", "resourceClaimName": claim}]
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
            {"namespace": "team-b"}, {"name": "train"}, {"name": "train-0"}, {"name": "train-01"},
            {"name": "train-first"}, {"name": "other-1"}, {"name": "train-\u0661"},
        ],
        ids=str,
    )  # fmt: skip
    def test_what_does_not_belong_to_a_job_is_passed_over(self, metadata: dict[str, Any]):
        state = a_state(job_body(), server_body(allocations={"claim-train": allocation()}))
        state.apply_pod(pod_body(metadata={"uid": "another", **metadata}))
        assert state.pods_of("uid-train") == []

    def test_without_the_job_its_allocation_says_where_its_pods_are(self):
        state = a_state(server_body(allocations={"claim-train": allocation()}))
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
            server_body(allocations={"claim-train": allocation()}),
            pod_body(metadata={"labels": labels, "annotations": annotations}),
        )
        stripped = pod_body(metadata={"labels": labels})
        state.apply_pod(stripped)
        assert [pod.name for pod in state.pods_of("uid-train")] == ["train-1"]
        state.queues.jobs.take()
        state.apply_pod(stripped, deleted=True)
        assert state.pods_of("uid-train") == []
        assert state.queues.jobs.take() == {"uid-train"}

    def test_a_pod_without_its_owner_belongs_to_the_job_that_has_it_in_the_ledger(self):
        state = a_state(server_body(allocations={"claim-train": allocation(podUID="orphan")}))
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
            {"namespace": "team-a"}, {"name": "shared-1"}, {"ownerReferences": []},
            {"ownerReferences": [owner("GPUServer", "shared-0", "uid-other")]},
            {"ownerReferences": [owner("SharedGPUJob", "shared-0")]},
        ],
        ids=str,
    )  # fmt: skip
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
        # Its grace period was thousands of years.
        take(state, pod_body(metadata={"deletionTimestamp": "5195-01-01T00:00:00Z"}), deleted=True)
        take(state, job_body(), deleted=True)
        assert state.pods_of("uid-train") == []
