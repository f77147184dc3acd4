"""Pods of jobs are made once, and what the API server says of them is told."""

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from partita.commit.creation import Created, Later
from partita.commit.job_pods import JobPods
from partita.informer.state import State
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    WebhookError,
)
from partita.models import SharingMode
from partita.pods.allocation import JobAllocation
from partita.reconcile.reasons import Reason, Why
from support.builders import (
    GIB,
    a_job,
    a_pod,
    a_state,
    job_body,
    pod_body,
)
from support.fake_kube import DOWN, FakeKube, Notes

GRANT = JobAllocation(
    attempt=1,
    servers=("shared-0",),
    uuids=("GPU-8a56a4bc-e184-4c1f-9b4e-5cb3a0d4c5f1",),
    node="node-1",
    memory=8 * GIB,
    total_memory=40 * GIB,
    mode=SharingMode.MPS,
)


HELD = 'admission webhook "a.example.org" denied the request: no'
HOOK = 'failed calling webhook "pods.example.org": context deadline exceeded'
POLICY = "ValidatingAdmissionPolicy 'no-friday' with binding 'all' denied request: not today"
DENIED = f'pods "train-1" is forbidden: {POLICY}'
INVALID = 'Pod "train-1" is invalid: spec.containers[0].image: Required value'
REFUSED = [
    (
        InvalidError("create", 422, INVALID),
        Reason.INVALID_SPEC,
        f"the API server refuses its Pod: {INVALID}; correct spec.template",
    ),
    (
        ForbiddenError("create", 403, "exceeded quota"),
        Reason.POD_FORBIDDEN,
        "the cluster does not admit its Pod: exceeded quota",
    ),
    (
        NotFoundError("create", 404, "namespaces not found"),
        Reason.POD_FORBIDDEN,
        "the cluster does not admit its Pod: namespaces not found",
    ),
    # A policy without `reason` denies with 422, as if the Pod were invalid.
    (
        InvalidError("create", 422, DENIED),
        Reason.POD_FORBIDDEN,
        f"ValidatingAdmissionPolicy no-friday does not admit its Pod: {DENIED}",
    ),
    (
        InvalidError("create", 400, HELD),
        Reason.POD_FORBIDDEN,
        f"admission webhook a.example.org does not admit its Pod: {HELD}",
    ),
    (
        WebhookError("create", 500, HOOK),
        Reason.WEBHOOK_FAILED,
        f"its Pod cannot be created: {HOOK}",
    ),
]


class TestPods:
    def pods(self, kube: FakeKube, notes: Notes | None = None) -> tuple[JobPods, State]:
        state = a_state(job_body())
        state.queues.jobs.take()
        return JobPods.of(kube, state, notes or Notes()), state  # type: ignore[arg-type]

    async def test_it_is_made_once_however_often_it_is_asked_for(self):
        kube = FakeKube()
        pods, state = self.pods(kube)
        for _ in range(2):
            assert await pods.create(a_job(), GRANT) is Created.DONE
        assert [pod.name for pod in state.pods_of("uid-train")] == ["train-1"]

    async def test_a_name_that_somebody_else_took_is_said(self):
        theirs = pod_body(metadata={"ownerReferences": []})
        pods, state = self.pods(FakeKube(theirs))
        assert await pods.create(a_job(), GRANT) is Created.NAME_TAKEN
        assert state.pods == {}

    async def test_a_stray_of_an_earlier_try_for_another_gpu_is_deleted(self):
        kube = FakeKube()
        pods, state = self.pods(kube)
        elsewhere = replace(GRANT, servers=("shared-1",))
        await pods.create(a_job(), elsewhere)
        state.apply_pod(pod_body(), deleted=True)
        assert isinstance(await pods.create(a_job(), GRANT), Later)
        assert kube.writes[-1] == ("delete", "train-1", ("pod-train-1", None))
        assert state.pods == {}

    async def test_a_pod_that_goes_between_refusal_and_look_is_asked_for_later(self):
        kube = FakeKube(pod_body())
        kube.get = AsyncMock(side_effect=NotFoundError("get", 404, "no"))  # type: ignore[method-assign]
        pods, _ = self.pods(kube)
        assert isinstance(await pods.create(a_job(), GRANT), Later)

    async def test_an_api_server_that_is_away_is_asked_later(self):
        kube = FakeKube()
        kube.errors = [DOWN]
        pods, _ = self.pods(kube)
        assert isinstance(await pods.create(a_job(), GRANT), Later)

    @pytest.mark.parametrize(("error", "reason", "says"), REFUSED)
    async def test_what_the_api_server_does_not_take_says_why(
        self, error: Any, reason: Reason, says: str
    ):
        kube = FakeKube()
        pods, _ = self.pods(kube)
        kube.errors = [error]
        found = await pods.create(a_job(), GRANT)
        assert found == Why(reason, says)
        kube.errors = [error]
        assert await pods.would_be_refused(a_job(), GRANT) == found

    async def test_a_dry_run_makes_nothing(self):
        kube = FakeKube()
        pods, state = self.pods(kube)
        assert await pods.would_be_refused(a_job(), GRANT) is None
        assert (kube.objects, state.pods_of("uid-train")) == ({}, [])
        kube.errors = [AlreadyExistsError("create", 409, "there")]
        assert await pods.would_be_refused(a_job(), GRANT) is None
        kube.errors = [DOWN]
        assert isinstance(await pods.would_be_refused(a_job(), GRANT), Later)

    async def test_a_variable_that_we_set_is_told(self):
        notes = Notes()
        pods, _ = self.pods(FakeKube(), notes)
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        containers = [{"name": "main", "image": "i", "env": env}]
        job = a_job(template={"spec": {"containers": containers}})
        await pods.create(job, GRANT)
        assert notes.said == [
            "VariableOverridden: the template sets NVIDIA_VISIBLE_DEVICES; Partita's value is used"
        ]

    async def test_only_this_pod_is_deleted(self):
        kube = FakeKube()
        pods, state = self.pods(kube)
        await pods.delete(a_pod(), grace=0)
        assert kube.writes == [("delete", "train-1", ("pod-train-1", 0))]
        for error in (NotFoundError("delete", 404, "no"), ConflictError("delete", 409, "other")):
            kube.errors = [error]
            await pods.delete(a_pod(), grace=None)
        assert state.queues.jobs.take() == set()
        kube.errors = [DOWN]
        await pods.delete(a_pod(), grace=None)
        assert state.queues.jobs.take() == {"uid-train"}
