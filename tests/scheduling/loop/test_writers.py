"""What carries out the decisions: few writes, repeated until they are made, never twice booked."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from partita.kube.client import JOBS, PODS, SERVERS, Kind
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    ForbiddenError,
    InvalidError,
    KubernetesError,
    NotFoundError,
    UnavailableError,
)
from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus, SharingMode
from partita.pods.grant import Grant
from partita.scheduling.attempts import MAX_ATTEMPTS_KEPT
from partita.scheduling.jobs import Refusal
from partita.scheduling.ledger import ServerChange
from partita.scheduling.loop import statuses as statuses_module
from partita.scheduling.loop.ledger import write_ledger
from partita.scheduling.loop.pods import Created, JobPods
from partita.scheduling.loop.statuses import StatusWriter
from partita.scheduling.reasons import Reason
from partita.scheduling.state import State
from scheduling.builders import (
    GIB,
    a_job,
    a_pod,
    a_state,
    allocation,
    an_allocation,
    job_body,
    pod_body,
    server_body,
)
from support.patches import merged


class Kube:
    """Objects by kind and name; each write first meets the next of the errors, None is no error."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.objects = {body["metadata"]["name"]: copy.deepcopy(body) for body in bodies}
        self.errors: list[KubernetesError | None] = []
        self.meanwhile: Callable[[], None] | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.writes: list[tuple[str, str, Any]] = []

    def _meet(self) -> None:
        if self.meanwhile is not None:
            happen, self.meanwhile = self.meanwhile, None
            happen()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def bump(self, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        body = merged(self.objects[name], patch)
        body["metadata"]["resourceVersion"] = str(int(body["metadata"]["resourceVersion"]) + 10**6)
        self.objects[name] = body
        return copy.deepcopy(body)

    async def get(self, _kind: Kind, name: str, _namespace: str = "") -> dict[str, Any]:
        if name not in self.objects:
            raise NotFoundError("get", 404, "no")
        return copy.deepcopy(self.objects[name])

    async def patch(
        self, kind: Kind, name: str, patch: dict[str, Any], *, resource_version: str = "", **_: Any
    ) -> dict[str, Any]:
        self.writes.append(("patch", name, patch))
        assert kind in {JOBS, SERVERS}
        await self.answers.wait()
        self._meet()
        if name not in self.objects:
            raise NotFoundError("patch", 404, "no")
        there = self.objects[name]["metadata"]["resourceVersion"]
        if resource_version and resource_version != there:
            raise ConflictError("patch", 409, "changed")
        return self.bump(name, patch)

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        assert kind is PODS
        name = body["metadata"]["name"]
        self.writes.append(("create", name, body))
        self._meet()
        if name in self.objects:
            raise AlreadyExistsError("create", 409, "there")
        made = {**pod_body(), "spec": body["spec"]}
        return copy.deepcopy(self.objects.setdefault(name, made))

    async def delete(
        self, _kind: Kind, name: str, _namespace: str, *, uid: str, now: bool = False
    ) -> None:
        self.writes.append(("delete", name, (uid, now)))
        self._meet()


class Notes:
    """Events that a test may ask for."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warn(self, _about: Any, reason: str, message: str) -> None:
        self.said.append(f"{reason}: {message}")


DOWN = UnavailableError("patch", 503, "down")
CHANGE = ServerChange(release={"uid-old"}, book={"uid-train": an_allocation()})
OLD = {"uid-old": allocation("old", memory=GIB)}


def always(*_: Any) -> bool:
    return True


class TestLedger:
    def world(self) -> tuple[Kube, State]:
        body = server_body(allocations=OLD)
        return Kube(body), a_state(body)

    async def write(self, kube: Kube, state: State, sound: Any = always) -> bool:
        return await write_ledger(kube, state, "shared-0", CHANGE, sound)  # type: ignore[arg-type]

    async def test_releases_and_bookings_are_one_write(self):
        kube, state = self.world()
        assert await self.write(kube, state)
        assert state.servers["shared-0"].status.allocations.keys() == {"uid-train"}
        assert len(kube.writes) == 1

    async def test_again_it_writes_nothing(self):
        kube, state = self.world()
        await self.write(kube, state)
        assert await self.write(kube, state)
        assert len(kube.writes) == 1

    async def test_a_report_in_between_is_read_and_the_write_tried_again(self):
        kube, state = self.world()
        kube.bump("shared-0", {"status": {"usage": {"memory": "1Gi"}}})
        assert await self.write(kube, state)
        assert len(kube.writes) == 2
        assert kube.objects["shared-0"]["status"]["usage"] == {"memory": "1Gi"}

    async def test_a_booking_in_between_is_asked_about_anew(self):
        kube, state = self.world()
        kube.bump("shared-0", {"status": {"allocations": {"uid-theirs": allocation("theirs")}}})

        def sound(server: Any, _: ServerChange) -> bool:
            return "uid-theirs" not in server.status.allocations

        assert not await self.write(kube, state, sound)
        assert "uid-train" not in kube.objects["shared-0"]["status"]["allocations"]

    async def test_what_is_booked_anew_in_between_is_not_given_back(self):
        """By whoever leads now: its next attempt may run there."""
        kube, state = self.world()
        kube.bump("shared-0", {"status": {"allocations": {"uid-old": allocation(attempt=2)}}})
        assert await self.write(kube, state)
        assert state.booked("uid-old")["shared-0"].attempt == 2
        assert state.booked("uid-train")

    async def test_what_took_effect_before_the_answer_was_lost_counts(self):
        kube, state = self.world()
        kube.bump("shared-0", CHANGE.patch())
        assert await self.write(kube, state)
        assert state.booked("uid-train")

    async def test_somebody_who_writes_all_the_time_is_given_way(self):
        kube, state = self.world()
        kube.errors = [ConflictError("patch", 409, "changed")] * 9
        assert not await self.write(kube, state)
        assert len(kube.writes) == 5

    async def test_what_cannot_be_written_is_not_booked(self):
        kube, state = self.world()
        kube.errors = [NotFoundError("patch", 404, "no"), DOWN]
        assert not await self.write(kube, state)
        with pytest.raises(UnavailableError):
            await self.write(kube, state)
        assert not state.booked("uid-train")

    async def test_a_gpu_that_is_gone_takes_nothing(self):
        kube, state = self.world()
        kube.errors = [ConflictError("patch", 409, "changed")]
        kube.meanwhile = kube.objects.clear
        assert not await self.write(kube, state)
        assert not await write_ledger(kube, State(), "shared-0", CHANGE, always)  # type: ignore[arg-type]


def status(phase: Phase, message: str = "") -> SharedGPUJobStatus:
    return SharedGPUJobStatus(phase=phase, message=message)


def with_attempts(outcomes: dict[int, Outcome | None]) -> SharedGPUJobStatus:
    attempts = tuple(Attempt(number=n, outcome=outcome) for n, outcome in outcomes.items())
    return SharedGPUJobStatus(attempts=attempts)


class TestStatuses:
    @pytest.fixture
    def kube(self) -> Kube:
        return Kube(job_body())

    @pytest.fixture
    def state(self) -> State:
        return a_state(job_body())

    @pytest.fixture
    def refused(self) -> list[str]:
        return []

    @pytest.fixture
    def outdated(self) -> list[str]:
        return []

    @pytest.fixture
    async def writer(
        self, kube: Kube, state: State, refused: list[str], outdated: list[str]
    ) -> AsyncIterator[StatusWriter]:
        kube.objects["train"]["metadata"] = state.jobs["uid-train"].metadata.dump()
        made = StatusWriter(kube, state, refused.append, outdated.append)  # type: ignore[arg-type]
        task = asyncio.create_task(made.run())
        yield made
        task.cancel()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.005)

    async def test_wishes_within_a_moment_become_one_write(self, kube, state, writer):
        for phase in (Phase.QUEUED, Phase.ASSIGNED, Phase.RUNNING):
            writer.want("uid-train", status(phase), 0.05)
        await self.until(lambda: state.jobs["uid-train"].status.phase is Phase.RUNNING)
        ((_, _, patch),) = kube.writes
        assert patch["metadata"] == {"uid": "uid-train"}
        assert patch["status"]["phase"] == "Running"

    async def test_what_somebody_else_has_written_meanwhile_is_not_overwritten(
        self, kube, state, writer, outdated
    ):
        kube.bump("train", {"status": {"phase": "Succeeded"}})
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await self.until(lambda: outdated)
        assert kube.objects["train"]["status"]["phase"] == "Succeeded"
        assert state.jobs["uid-train"].status.phase is Phase.SUCCEEDED
        assert outdated == ["uid-train"]

    @pytest.mark.parametrize("wish", [{}, {1: None}, {1: Outcome.SUCCEEDED}])
    async def test_an_end_that_was_heard_of_since_the_wish_is_not_taken_back(
        self, kube, state, writer, outdated, wish
    ):
        stands = with_attempts({1: Outcome.PREEMPTED})
        state.apply_job(kube.bump("train", {"status": stands.dump()}))
        writer.want("uid-train", with_attempts(wish), 0.0)
        await self.until(lambda: outdated)
        assert kube.writes == []

    async def test_of_many_attempts_some_may_be_left_out(self, kube, state, writer):
        many = dict.fromkeys(range(1, MAX_ATTEMPTS_KEPT + 2), Outcome.EVICTED)
        state.apply_job(kube.bump("train", {"status": with_attempts(many).dump()}))
        del many[1]
        writer.want("uid-train", with_attempts(many | {MAX_ATTEMPTS_KEPT + 2: None}), 0.0)
        await self.until(lambda: kube.writes)

    async def test_an_urgent_wish_does_not_wait_for_a_leisurely_one(self, kube, state, writer):
        writer.want("uid-train", status(Phase.QUEUED), 3600.0)
        writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        await self.until(lambda: state.jobs["uid-train"].status.phase is Phase.SUCCEEDED)
        assert len(kube.writes) == 1

    async def test_an_urgent_wish_goes_before_those_that_are_overdue(self, monkeypatch):
        monkeypatch.setattr(statuses_module, "_CONCURRENT", 1)
        names = [f"waits-{n}" for n in range(3)]
        bodies = [job_body(name) for name in (*names, "train")]
        kube = Kube(*bodies)
        writer = StatusWriter(kube, a_state(*bodies), lambda _: None, lambda _: None)  # type: ignore[arg-type]
        for name in names:
            writer.want(f"uid-{name}", status(Phase.QUEUED), 1e-9)
        writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        task = asyncio.create_task(writer.run())
        await self.until(lambda: len(kube.writes) == 4)
        task.cancel()
        assert [name for _, name, _ in kube.writes] == ["train", *names]

    async def test_those_that_may_wait_leave_connections_to_urgent_ones(self, monkeypatch):
        monkeypatch.setattr(statuses_module, "_LEISURELY", 2)
        names = [f"waits-{n}" for n in range(5)]
        bodies = [job_body(name) for name in (*names, "train")]
        kube = Kube(*bodies)
        kube.answers.clear()
        writer = StatusWriter(kube, a_state(*bodies), lambda _: None, lambda _: None)  # type: ignore[arg-type]
        for name in names:
            writer.want(f"uid-{name}", status(Phase.QUEUED), 1e-9)
        task = asyncio.create_task(writer.run())
        await self.until(lambda: len(kube.writes) == 2)
        writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        await self.until(lambda: len(kube.writes) == 3)
        assert [name for _, name, _ in kube.writes] == [*names[:2], "train"]
        kube.answers.set()
        await self.until(lambda: len(kube.writes) == 6)
        task.cancel()

    async def test_an_urgent_wish_stays_urgent_while_the_job_is_being_written(self, monkeypatch):
        monkeypatch.setattr(statuses_module, "_CONCURRENT", 2)
        names = [f"waits-{n}" for n in range(3)]
        bodies = [job_body(name) for name in ("train", *names)]
        kube = Kube(*bodies)
        kube.answers.clear()
        writer = StatusWriter(kube, a_state(*bodies), lambda _: None, lambda _: None)  # type: ignore[arg-type]
        task = asyncio.create_task(writer.run())
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await self.until(lambda: kube.writes)
        writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        for name in names:
            writer.want(f"uid-{name}", status(Phase.QUEUED), 1e-9)
        await self.until(lambda: len(kube.writes) == 2)
        kube.answers.set()
        await self.until(lambda: len(kube.writes) == 5)
        task.cancel()
        assert [name for _, name, _ in kube.writes] == ["train", "waits-0", "train", *names[1:]]

    async def test_what_stands_there_already_is_not_written(self, kube, writer):
        writer.want("uid-train", SharedGPUJobStatus(), 0.0)
        await self.until(lambda: not writer._due and not writer._writing)
        assert kube.writes == []

    async def test_who_looks_on_is_told_of_what_was_written_and_ends_nothing(self, kube, state):
        told: list[tuple[Phase | None, Phase | None]] = []

        def look_on(job: SharedGPUJob, new: SharedGPUJobStatus) -> None:
            told.append((job.status.phase, new.phase))
            raise ValueError

        kube.objects["train"]["metadata"] = state.jobs["uid-train"].metadata.dump()
        writer = StatusWriter(kube, state, lambda _: None, lambda _: None, look_on)
        task = asyncio.create_task(writer.run())
        for phase in (Phase.QUEUED, Phase.QUEUED, Phase.RUNNING):
            writer.want("uid-train", status(phase), 0.0)
            await self.until(lambda phase=phase: state.jobs["uid-train"].status.phase is phase)
            await self.until(lambda: not writer._due and not writer._writing)
        task.cancel()
        assert told == [(None, Phase.QUEUED), (Phase.QUEUED, Phase.RUNNING)]

    @pytest.mark.parametrize("renewed", [True, False])
    async def test_what_is_wanted_may_change_while_all_writes_are_under_way(
        self, monkeypatch, renewed
    ):
        monkeypatch.setattr(statuses_module, "_CONCURRENT", 1)
        kube, state = Kube(job_body(), job_body("other")), a_state(job_body(), job_body("other"))
        begun, gate, patch = asyncio.Event(), asyncio.Event(), kube.patch

        async def slow(kind: Kind, name: str, body: Any, **more: Any) -> Any:
            if name == "other":
                begun.set()
                await gate.wait()
            return await patch(kind, name, body, **more)

        monkeypatch.setattr(kube, "patch", slow)
        writer = StatusWriter(kube, state, lambda _: None, lambda _: None)  # type: ignore[arg-type]
        task = asyncio.create_task(writer.run())
        writer.want("uid-other", status(Phase.RUNNING), 0.0)
        await begun.wait()
        writer.want("uid-train", status(Phase.ASSIGNED), 0.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if renewed:
            writer.want("uid-train", status(Phase.RUNNING), 0.0)
        else:
            writer.drop("uid-train")
        gate.set()
        await self.until(lambda: task.done() or (not writer._due and not writer._writing))
        assert not task.done(), task
        task.cancel()
        phases = [body["status"]["phase"] for _, name, body in kube.writes if name == "train"]
        assert phases == (["Running"] if renewed else [])

    async def test_a_write_that_failed_is_made_later(self, kube, state, writer, monkeypatch):
        monkeypatch.setattr(statuses_module, "_RETRY_AFTER", 0.01)
        kube.errors = [DOWN, DOWN, None]
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await self.until(lambda: state.jobs["uid-train"].status.phase is Phase.RUNNING)
        assert len(kube.writes) == 3

    async def test_a_newer_wish_goes_before_a_repeated_one(self, kube, state, writer, monkeypatch):
        monkeypatch.setattr(statuses_module, "_RETRY_AFTER", 0.01)
        kube.errors = [DOWN]
        kube.meanwhile = lambda: writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await self.until(lambda: state.jobs["uid-train"].status.phase is Phase.SUCCEEDED)
        assert [w[2]["status"]["phase"] for w in kube.writes] == ["Running", "Succeeded"]

    async def test_what_is_never_taken_is_told(self, kube, refused, writer):
        kube.errors = [InvalidError("patch", 422, "too long")]
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await self.until(lambda: refused == ["uid-train"])
        assert len(kube.writes) == 1

    async def test_what_met_a_lease_that_was_late_is_written_once_it_is_renewed(
        self, kube, state, writer, monkeypatch
    ):
        monkeypatch.setattr(statuses_module, "_RETRY_AFTER", 0.01)
        kube.errors = [FencedError("patch", 0, "not leading")]
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await self.until(lambda: state.jobs["uid-train"].status.phase is Phase.RUNNING)

    async def test_a_job_that_is_gone_is_let_go(self, kube, writer):
        kube.errors = [NotFoundError("patch", 404, "no")]
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await self.until(lambda: len(kube.writes) == 1 and not writer._writing)
        assert not writer._wanted

    async def test_a_dropped_wish_is_not_written(self, kube, writer):
        writer.want("uid-train", status(Phase.RUNNING), 0.01)
        writer.drop("uid-train")
        writer.want("uid-nobody", status(Phase.RUNNING), 0.02)
        await self.until(lambda: not writer._heap and not writer._writing)
        assert kube.writes == []


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
        state = State()
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
        theirs = pod_body(metadata={"annotations": {}})
        pods, state = self.pods(Kube(theirs))
        assert await pods.create(a_job(), GRANT, None) is Created.NAME_TAKEN  # type: ignore[arg-type]
        assert state.job_pods == {}

    async def test_a_stray_of_an_earlier_try_for_another_gpu_is_deleted(self):
        kube = Kube()
        pods, state = self.pods(kube)
        elsewhere = replace(GRANT, uuids=("GPU-00000000-e184-4c1f-9b4e-5cb3a0d4c5f1",))
        await pods.create(a_job(), elsewhere, a_job().metadata.creation_timestamp)
        state.job_pods.clear()
        assert await pods.create(a_job(), GRANT, None) is Created.LATER  # type: ignore[arg-type]
        assert kube.writes[-1] == ("delete", "train-1", ("pod-train-1", False))
        assert state.job_pods == {}

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
        await pods.delete(a_pod(), now=True)
        assert kube.writes == [("delete", "train-1", ("pod-train-1", True))]
        for error in (NotFoundError("delete", 404, "no"), ConflictError("delete", 409, "other")):
            kube.errors = [error]
            await pods.delete(a_pod(), now=False)
        assert state.dirty.take_jobs() == set()
        kube.errors = [DOWN]
        await pods.delete(a_pod(), now=False)
        assert state.dirty.take_jobs() == {"uid-train"}
