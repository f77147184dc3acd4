"""What is booked is started, unless something has come in between."""

from unittest.mock import AsyncMock

import pytest

from partita.scheduling.jobs import Jobs
from partita.scheduling.loop.commit import Committer
from scheduling.builders import START, a_state, allocation, job_body, partition_body, server_body

EMPTIED = {"uuid": "", "memory": "0Mi"}


@pytest.mark.parametrize("gone", [{"uuid": ""}, {"memory": "0Mi"}, EMPTIED])
async def test_a_gpu_whose_status_was_emptied_is_waited_for(gone):
    bodies = (
        partition_body(),
        server_body(allocations={"uid-train": allocation()}, status=gone),
        job_body(),
    )
    state, kube = a_state(*bodies), AsyncMock()
    committer = Committer(kube, state, Jobs(state), AsyncMock(), now=lambda: START)
    committer.busy.add("uid-train")
    await committer.finish(state.jobs["uid-train"], 1)
    assert kube.mock_calls == []
    assert committer.busy == {"uid-train"}
