"""The mark that an allocation is being released is written once."""

import asyncio
from datetime import timedelta
from typing import Any

from partita.claims.release_marks import ReleaseMarks
from partita.jobs.job_reconciler import JobReconciler
from support.builders import GIB, a_state, allocation, at, server_body
from support.fake_kube import FakeKube

UID = "uid-train"


async def test_a_job_reconciled_during_the_write_gets_no_second_mark():
    body = server_body(allocations={UID: allocation("train", memory=GIB)})
    state = a_state(body)
    jobs = JobReconciler(state)

    def request(seconds: float) -> None:
        since = at(seconds)
        times = {"releasing_since": since, "release_deadline": since + timedelta(seconds=30)}
        unmarked = state.servers["shared-0"].status.allocations[UID]
        jobs.marks["shared-0"][UID] = unmarked.model_copy(update=times)

    class Slow(FakeKube):
        async def patch(self, *args: Any, **options: Any) -> Any:
            request(seconds=1)
            return await super().patch(*args, **options)

    kube = Slow(body)
    async with asyncio.TaskGroup() as tasks:
        marks = ReleaseMarks(kube, state, jobs.demand, spawn=tasks.create_task)  # type: ignore[arg-type]
        request(seconds=0)
        marks.start()
    assert state.servers["shared-0"].status.allocations[UID].releasing_since == at(0)
    assert len(kube.writes) == 1
