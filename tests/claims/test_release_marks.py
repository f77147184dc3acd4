"""The mark that an allocation is being released is written once."""

import asyncio
from datetime import datetime
from typing import Any

from partita.claims.release_marks import ReleaseMarks
from partita.jobs.job_reconciler import JobReconciler
from partita.store.state import State
from partita.times import Times
from support.builders import GIB, a_state, allocation, at, server_body
from support.fake_kube import DOWN, FakeKube

UID = "claim-train"


def unmarked() -> tuple[dict[str, Any], State, JobReconciler]:
    body = server_body(allocations={UID: allocation("train", memory=GIB)})
    state = a_state(body)
    return body, state, JobReconciler(state)


def request(state: State, jobs: JobReconciler, seconds: float = 0) -> None:
    times = {"releasing_since": at(seconds), "release_deadline": at(seconds + 30)}
    entry = state.servers["shared-0"].status.allocations[UID]
    jobs.demand.marks["shared-0"][UID] = entry.model_copy(update=times)


def marked_since(state: State) -> datetime | None:
    return state.servers["shared-0"].status.allocations[UID].releasing_since


async def test_a_job_reconciled_during_the_write_gets_no_second_mark():
    body, state, jobs = unmarked()
    kube = FakeKube(body)
    kube.meanwhile = lambda: request(state, jobs, seconds=1)
    async with asyncio.TaskGroup() as tasks:
        marks = ReleaseMarks(kube, state, jobs.demand, spawn=tasks.create_task)  # type: ignore[arg-type]
        request(state, jobs)
        marks.start()
    assert marked_since(state) == at(0)
    assert len(kube.writes) == 1


async def test_a_mark_that_cannot_be_written_is_tried_again():
    body, state, jobs = unmarked()
    kube = FakeKube(body)
    kube.times, kube.errors = Times(retry_mark=0.01), [DOWN]
    async with asyncio.TaskGroup() as tasks:
        marks = ReleaseMarks(kube, state, jobs.demand, spawn=tasks.create_task)  # type: ignore[arg-type]
        request(state, jobs)
        marks.start()
    assert marked_since(state) == at(0)
