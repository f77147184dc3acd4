"""Statuses are written in time, and nothing more often than that needs."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from partita.jobs.attempts import MAX_ATTEMPTS_KEPT
from partita.jobs.job_record import JobRecord
from partita.jobs.job_statuses import StatusWriter
from partita.kube.errors import FencedError, InvalidError, NotFoundError
from partita.models import Attempt, Condition, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus
from partita.store.state import State
from partita.times import Times
from support.builders import START, a_state, job_body
from support.fake_kube import DOWN, FakeKube
from support.meanwhile import running
from support.polling import until


def status(phase: Phase, message: str = "", retry: str = "") -> SharedGPUJobStatus:
    return SharedGPUJobStatus(phase=phase, message=message, retry=retry)


def with_attempts(outcomes: dict[int, Outcome | None]) -> SharedGPUJobStatus:
    attempts = tuple(Attempt(number=n, outcome=outcome) for n, outcome in outcomes.items())
    return SharedGPUJobStatus(attempts=attempts)


def a_writer(kube: FakeKube, state: State, jobs: Any = None, **more: Any) -> StatusWriter:
    jobs = jobs or Mock(records=defaultdict(JobRecord))  # what computes the statuses
    kube.times = Times(retry_after=0.01)
    return StatusWriter(kube, state, jobs, Mock(), **more)  # type: ignore[arg-type]


def a_queue(*names: str, answers: bool = True, **more: Any) -> tuple[FakeKube, StatusWriter]:
    """Jobs, and a writer that the API server answers or not."""
    bodies = [job_body(name) for name in names]
    kube = FakeKube(*bodies)
    if not answers:
        kube.answers.clear()
    return kube, a_writer(kube, a_state(*bodies), **more)


@asynccontextmanager
async def overtaken(kube: FakeKube, writer: StatusWriter, names: list[str]) -> AsyncIterator[None]:
    """An urgent status overtakes some that may wait, of which two are being written."""
    for name in names:
        writer.want(f"uid-{name}", status(Phase.RUNNING), 1e-9)
    async with running(writer.run()):
        await until(lambda: len(kube.writes) == 2)
        writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        await until(lambda: len(kube.writes) == 3)
        yield


class TestStatuses:
    @pytest.fixture
    def kube(self) -> FakeKube:
        return FakeKube(job_body())

    @pytest.fixture
    def state(self) -> State:
        return a_state(job_body())

    @pytest.fixture
    def jobs(self) -> Mock:
        return Mock(records=defaultdict(JobRecord))

    @pytest.fixture
    async def writer(self, kube: FakeKube, state: State, jobs: Mock) -> AsyncIterator[StatusWriter]:
        kube.objects["train"]["metadata"] = state.jobs["uid-train"].metadata.dump()
        made = a_writer(kube, state, jobs)
        async with running(made.run()):
            yield made

    async def test_wishes_within_a_moment_become_one_write(self, kube, state, writer):
        for phase in (Phase.QUEUED, Phase.ASSIGNED, Phase.RUNNING):
            writer.want("uid-train", status(phase), 0.05)
        await until(lambda: state.jobs["uid-train"].status.phase is Phase.RUNNING)
        ((_, _, patch),) = kube.writes
        assert patch["metadata"] == {"uid": "uid-train"}
        assert patch["status"]["phase"] == "Running"

    async def test_what_somebody_else_has_written_meanwhile_is_not_overwritten(
        self, kube, state, writer, jobs
    ):
        kube.bump("train", {"status": {"phase": "Succeeded"}})
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(lambda: jobs.records)
        assert kube.objects["train"]["status"]["phase"] == "Succeeded"
        assert state.jobs["uid-train"].status.phase is Phase.SUCCEEDED
        assert jobs.records.keys() == {"uid-train"}

    @pytest.mark.parametrize("wish", [{}, {1: None}, {1: Outcome.SUCCEEDED}])
    async def test_an_end_that_was_heard_of_since_the_wish_is_not_taken_back(
        self, kube, state, writer, jobs, wish
    ):
        stands = with_attempts({1: Outcome.PREEMPTED})
        state.apply_job(kube.bump("train", {"status": stands.dump()}))
        writer.want("uid-train", with_attempts(wish), 0.0)
        await until(lambda: jobs.records)
        assert kube.writes == []

    @pytest.mark.parametrize(
        ("stands", "wish"),
        [
            ((Phase.FAILED, "", "1"), (Phase.FAILED, "", "2")),
            ((Phase.FAILED, "", "2"), (Phase.QUEUED, "", "2")),
            ((Phase.SUCCEEDED, "", "1"), (Phase.QUEUED, "", "2")),
        ],
        ids=["the retry would not be made", "it would be made twice", "it has not failed"],
    )
    async def test_a_status_of_before_the_end_of_the_job_is_not_written(
        self, kube, state, writer, jobs, stands, wish
    ):
        state.apply_job(kube.bump("train", {"status": status(*stands).dump()}))
        writer.want("uid-train", status(*wish), 0.0)
        await until(lambda: jobs.records)
        assert kube.writes == []

    async def test_a_failed_job_is_queued_again_for_a_new_request(self, kube, state, writer):
        state.apply_job(kube.bump("train", {"status": status(Phase.FAILED, retry="1").dump()}))
        writer.want("uid-train", status(Phase.QUEUED, retry="2"), 0.0)
        await until(lambda: state.jobs["uid-train"].status.phase is Phase.QUEUED)

    async def test_an_end_keeps_its_times_when_it_is_computed_again(self, kube, state, writer):
        def ended(at: datetime, message: str = "") -> SharedGPUJobStatus:
            attempt = Attempt(number=1, outcome=Outcome.SUCCEEDED, end_time=at, first_use_time=at)
            complete = Condition(type="Complete", status="True", last_transition_time=at)
            times = {"attempts": (attempt,), "conditions": (complete,), "completion_time": at}
            return status(Phase.SUCCEEDED, message).model_copy(update=times)

        state.apply_job(kube.bump("train", {"status": ended(START).dump()}))
        writer.want("uid-train", ended(START + timedelta(seconds=1), "it has ended"), 0.0)
        await until(lambda: kube.writes)
        ((_, _, patch),) = kube.writes
        assert patch["status"] == {"message": "it has ended"}

    async def test_a_waiting_job_gets_an_event_for_each_new_reason(self, state, writer):
        for number, reason in enumerate(
            ["Scheduling", "InsufficientMemory", "InsufficientMemory", "NeverFits", "Ending"]
        ):
            told = status(Phase.QUEUED, f"{number}").model_copy(update={"reason": reason})
            writer.want("uid-train", told, 0.0)
            await until(lambda told=told: state.jobs["uid-train"].status == told)
        said = [(name, *args[1:]) for name, args, _ in writer.events.method_calls]
        assert said == [("inform", "InsufficientMemory", "1"), ("warn", "NeverFits", "3")]

    async def test_a_capped_priority_and_a_change_after_the_end_are_told_in_events(
        self, state, writer
    ):
        cap = Condition(type="PriorityCapped", status="True", message="it counts as 3")
        capped = SharedGPUJobStatus(effective_priority=3, conditions=(cap,))
        for generation, phase in enumerate([Phase.RUNNING, Phase.FAILED, Phase.FAILED]):
            told = capped.model_copy(update={"phase": phase, "observed_generation": generation})
            writer.want("uid-train", told, 0.0)
            await until(lambda told=told: state.jobs["uid-train"].status == told)
        said = [call[1][1] for call in writer.events.method_calls]
        assert said == ["PriorityCapped", "StaysFinished"]

    async def test_of_many_attempts_some_may_be_left_out(self, kube, state, writer):
        many = dict.fromkeys(range(1, MAX_ATTEMPTS_KEPT + 2), Outcome.EVICTED)
        state.apply_job(kube.bump("train", {"status": with_attempts(many).dump()}))
        del many[1]
        writer.want("uid-train", with_attempts(many | {MAX_ATTEMPTS_KEPT + 2: None}), 0.0)
        await until(lambda: kube.writes)

    async def test_an_urgent_wish_does_not_wait_for_a_deferred_one(self, kube, state, writer):
        writer.want("uid-train", status(Phase.QUEUED), 3600.0)
        writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        await until(lambda: state.jobs["uid-train"].status.phase is Phase.SUCCEEDED)
        assert len(kube.writes) == 1

    async def test_an_urgent_wish_goes_before_those_that_are_overdue(self):
        names = [f"waits-{n}" for n in range(3)]
        kube, writer = a_queue(*names, "train", concurrent=1)
        for name in names:
            writer.want(f"uid-{name}", status(Phase.QUEUED), 1e-9)
        writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        async with running(writer.run()):
            await until(lambda: len(kube.writes) == 4)
        assert [name for _, name, _ in kube.writes] == ["train", *names]

    @pytest.mark.parametrize("within", [0.0, 1e-9])
    async def test_a_flood_of_one_namespace_does_not_delay_another(self, within: float):
        names = [f"many-{n}" for n in range(20)]
        queued = {"phase": "Queued", "reason": "Scheduling"}
        bodies = [job_body(name) for name in names]
        bodies.append(job_body("single", namespace="team-b", status=queued))
        kube = FakeKube(*bodies)
        writer = a_writer(kube, a_state(*bodies), concurrent=1)
        for name in (*names, "single"):
            writer.want(f"uid-{name}", status(Phase.QUEUED), within)
        async with running(writer.run()):
            await until(lambda: len(kube.writes) == len(bodies))
        assert [name for _, name, _ in kube.writes].index("single") <= 1

    async def test_a_new_reason_of_a_job_comes_before_an_update_of_one(self):
        known = {"phase": "Running"}
        bodies = [*(job_body(f"old-{n}", status=known) for n in range(5)), job_body("new")]
        kube = FakeKube(*bodies)
        writer = a_writer(kube, a_state(*bodies), concurrent=1)
        for body in bodies:
            writer.want(body["metadata"]["uid"], status(Phase.RUNNING, "more"), 1e-9)
        async with running(writer.run()):
            await until(lambda: len(kube.writes) == len(bodies))
        assert kube.writes[0][1] == "new"

    async def test_those_that_may_wait_leave_connections_to_urgent_ones(self):
        names = [f"waits-{n}" for n in range(5)]
        kube, writer = a_queue(*names, "train", answers=False)
        async with overtaken(kube, writer, names):
            assert [name for _, name, _ in kube.writes] == [*names[:2], "train"]
            kube.answers.set()
            await until(lambda: len(kube.writes) == 6)

    async def test_a_job_is_written_once_at_a_time_if_an_urgent_status_overtook_another(self):
        names = ["waits-0", "waits-1", "train", "last"]
        kube, writer = a_queue(*names, answers=False)
        async with overtaken(kube, writer, names):
            writer.want("uid-train", status(Phase.SUCCEEDED, "later"), 600.0)
            kube.answers.set()
            await until(lambda: any(name == "last" for _, name, _ in kube.writes))
        assert [name for _, name, _ in kube.writes] == names

    async def test_an_urgent_wish_stays_urgent_while_the_job_is_being_written(self):
        names = [f"waits-{n}" for n in range(3)]
        kube, writer = a_queue("train", *names, answers=False, concurrent=2)
        async with running(writer.run()):
            writer.want("uid-train", status(Phase.RUNNING), 0.0)
            await until(lambda: kube.writes)
            writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
            for name in names:
                writer.want(f"uid-{name}", status(Phase.QUEUED), 1e-9)
            await until(lambda: len(kube.writes) == 2)
            kube.answers.set()
            await until(lambda: len(kube.writes) == 5)
        assert [name for _, name, _ in kube.writes] == ["train", "waits-0", "train", *names[1:]]

    async def test_what_stands_there_already_is_not_written(self, kube, writer):
        writer.want("uid-train", SharedGPUJobStatus(), 0.0)
        await until(lambda: not writer._due and not writer._writing)
        assert kube.writes == []

    async def test_who_looks_on_is_told_of_what_was_written_and_ends_nothing(self, kube, state):
        told: list[tuple[Phase | None, Phase | None]] = []

        def look_on(job: SharedGPUJob, new: SharedGPUJobStatus) -> None:
            told.append((job.status.phase, new.phase))
            raise ValueError

        kube.objects["train"]["metadata"] = state.jobs["uid-train"].metadata.dump()
        writer = a_writer(kube, state, on_written=look_on)
        async with running(writer.run()):
            for phase in (Phase.QUEUED, Phase.QUEUED, Phase.RUNNING):
                writer.want("uid-train", status(phase), 0.0)
                await until(lambda phase=phase: state.jobs["uid-train"].status.phase is phase)
                await until(lambda: not writer._due and not writer._writing)
        assert told == [(None, Phase.QUEUED), (Phase.QUEUED, Phase.RUNNING)]

    @pytest.mark.parametrize("renewed", [True, False])
    async def test_what_is_wanted_may_change_while_all_writes_are_under_way(self, renewed):
        kube, writer = a_queue("train", "other", answers=False, concurrent=1)
        async with running(writer.run()):
            writer.want("uid-other", status(Phase.RUNNING), 0.0)
            await until(lambda: kube.writes)
            writer.want("uid-train", status(Phase.ASSIGNED), 0.0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if renewed:
                writer.want("uid-train", status(Phase.RUNNING), 0.0)
            else:
                writer.drop("uid-train")
            kube.answers.set()
            await until(lambda: not writer._due and not writer._writing)
        phases = [body["status"]["phase"] for _, name, body in kube.writes if name == "train"]
        assert phases == (["Running"] if renewed else [])

    async def test_a_write_that_failed_is_made_later(self, kube, state, writer):
        late = FencedError("patch", 0, "the lease is renewed late")
        kube.errors = [ValueError("a bug"), DOWN, late, None]
        state.queues.jobs.take()
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(state.queues.jobs.take)
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(lambda: state.jobs["uid-train"].status.phase is Phase.RUNNING)
        assert len(kube.writes) == 4

    async def test_a_newer_wish_goes_before_a_repeated_one(self, kube, state, writer):
        kube.errors = [DOWN]
        kube.meanwhile = lambda: writer.want("uid-train", status(Phase.SUCCEEDED), 0.0)
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(lambda: state.jobs["uid-train"].status.phase is Phase.SUCCEEDED)
        assert [w[2]["status"]["phase"] for w in kube.writes] == ["Running", "Succeeded"]

    async def test_what_is_never_taken_is_told(self, kube, jobs, state, writer):
        kube.errors = [InvalidError("patch", 422, "too long")]
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(lambda: jobs.records["uid-train"].status_refused)
        assert state.queues.jobs.take() == {"uid-train"}
        assert len(kube.writes) == 1
        kube.errors = [InvalidError("patch", 422, "too long")]
        kube.times = Times(retry_after=3600.0)
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(state.queues.jobs.due_in)  # and not at once
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(lambda: not jobs.records["uid-train"].status_refused)

    async def test_a_job_that_is_gone_is_let_go(self, kube, writer):
        kube.errors = [NotFoundError("patch", 404, "no")]
        writer.want("uid-train", status(Phase.RUNNING), 0.0)
        await until(lambda: len(kube.writes) == 1 and not writer._writing)
        assert not writer._wanted

    async def test_a_dropped_wish_is_not_written(self, kube, writer):
        writer.want("uid-train", status(Phase.RUNNING), 0.01)
        writer.drop("uid-train")
        writer.want("uid-nobody", status(Phase.RUNNING), 0.02)
        await until(lambda: not writer._heap and not writer._writing)
        assert kube.writes == []
