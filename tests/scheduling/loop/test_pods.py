"""Pods of jobs are made once, and what the API server says of them is told."""

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from partita.kube.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from partita.models import SharingMode
from partita.pods.grant import Grant
from partita.scheduling.jobs import Refusal
from partita.scheduling.loop.pods import Created, JobPods
from partita.scheduling.reasons import Reason
from partita.scheduling.state import State
from scheduling.builders import (
    GIB,
    a_job,
    a_pod,
    a_state,
    job_body,
    pod_body,
)
from scheduling.loop.writers import DOWN, Kube, Notes

GRANT = Grant(
    attempt=1,
    servers=("shared-0",),
    uuids=("GPU-8a56a4bc-e184-4c1f-9b4e-5cb3a0d4c5f1",),
    node="node-1",
    memory=8 * GIB,
    total_memory=40 * GIB,
    mode=SharingMode.MPS,
)


class TestPods:
    def pods(self, kube: Kube, notes: Notes | None = None) -> tuple[JobPods, State]:
        state = a_state(job_body())
        state.dirty.take_jobs()
        return JobPods.of(kube, state, notes or Notes()), state  # type: ignore[arg-type]

    async def test_it_is_made_once_however_often_it_is_asked_for(self):
        kube = Kube()
        pods, state = self.pods(kube)
        for _ in range(2):
            assert await pods.create(a_job(), GRANT, a_job().metadata.creation_timestamp) is (
                Created.DONE
            )
        assert [pod.name for pod in state.pods_of("uid-train")] == ["train-1"]

    async def test_a_name_that_somebody_else_took_is_said(self):
        theirs = pod_body(metadata={"ownerReferences": []})
        pods, state = self.pods(Kube(theirs))
        assert await pods.create(a_job(), GRANT, None) is Created.NAME_TAKEN  # type: ignore[arg-type]
        assert state.pods == {}

    async def test_a_stray_of_an_earlier_try_for_another_gpu_is_deleted(self):
        kube = Kube()
        pods, state = self.pods(kube)
        elsewhere = replace(GRANT, uuids=("GPU-00000000-e184-4c1f-9b4e-5cb3a0d4c5f1",))
        await pods.create(a_job(), elsewhere, a_job().metadata.creation_timestamp)
        state.apply_pod(pod_body(), deleted=True)
        assert await pods.create(a_job(), GRANT, None) is Created.LATER  # type: ignore[arg-type]
        assert kube.writes[-1] == ("delete", "train-1", ("pod-train-1", None))
        assert state.pods == {}

    async def test_a_pod_that_goes_between_refusal_and_look_is_asked_for_later(self):
        kube = Kube(pod_body())
        kube.get = AsyncMock(side_effect=NotFoundError("get", 404, "no"))  # type: ignore[method-assign]
        pods, _ = self.pods(kube)
        assert await pods.create(a_job(), GRANT, None) is Created.LATER  # type: ignore[arg-type]

    async def test_an_api_server_that_is_away_is_asked_later(self):
        kube = Kube()
        kube.errors = [DOWN]
        pods, _ = self.pods(kube)
        assert await pods.create(a_job(), GRANT, None) is Created.LATER  # type: ignore[arg-type]

    async def test_what_the_api_server_refuses_waits_for_its_user(self):
        kube = Kube()
        kube.errors = [InvalidError("create", 422, "spec.containers[0].image: Required")]
        pods, _ = self.pods(kube)
        found = await pods.create(a_job(), GRANT, None)  # type: ignore[arg-type]
        assert isinstance(found, Refusal)
        assert (found.why.reason, found.until) == (Reason.INVALID_SPEC, None)
        assert found.why.message == (
            "the API server refuses its Pod: spec.containers[0].image: Required; "
            "correct spec.template"
        )

    @pytest.mark.parametrize("error", [ForbiddenError, NotFoundError])
    async def test_what_the_cluster_forbids_is_tried_again_in_a_while(self, error: Any):
        kube = Kube()
        kube.errors = [error("create", 403, "exceeded quota")]
        pods, _ = self.pods(kube)
        now = a_job().metadata.creation_timestamp
        assert now is not None
        found = await pods.create(a_job(), GRANT, now)
        assert isinstance(found, Refusal)
        assert found.why.reason is Reason.POD_FORBIDDEN
        assert found.until is not None
        assert (found.until - now).total_seconds() == 30

    async def test_a_variable_that_we_set_is_told(self):
        notes = Notes()
        pods, _ = self.pods(Kube(), notes)
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        containers = [{"name": "main", "image": "i", "env": env}]
        job = a_job(template={"spec": {"containers": containers}})
        await pods.create(job, GRANT, None)  # type: ignore[arg-type]
        assert notes.said == [
            "VariableOverridden: the template sets NVIDIA_VISIBLE_DEVICES; Partita's value is used"
        ]

    async def test_only_this_pod_is_deleted(self):
        kube = Kube()
        pods, state = self.pods(kube)
        await pods.delete(a_pod(), grace=0)
        assert kube.writes == [("delete", "train-1", ("pod-train-1", 0))]
        for error in (NotFoundError("delete", 404, "no"), ConflictError("delete", 409, "other")):
            kube.errors = [error]
            await pods.delete(a_pod(), grace=None)
        assert state.dirty.take_jobs() == set()
        kube.errors = [DOWN]
        await pods.delete(a_pod(), grace=None)
        assert state.dirty.take_jobs() == {"uid-train"}
