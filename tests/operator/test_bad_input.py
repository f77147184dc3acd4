"""What users get wrong: each is refused or told in the status, and harms nobody else.

No mistake of a user leaves a stack trace or an error in the operator's log: the `system` fixture
checks the former for all tests, this file the latter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from support.job import container
from support.system import System


@pytest.fixture(autouse=True)
def quiet(system: System, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The log has neither errors nor stack traces, kopf's part of it included."""
    yield
    ours = [entry for entry in system.logs if entry["log_level"] in {"error", "critical"}]
    others = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not ours + others
    assert "Traceback" not in caplog.text
    assert not any("Traceback" in json.dumps(entry, default=str) for entry in system.logs)


def stalled(status: dict[str, Any]) -> bool:
    return {c["type"]: c["status"] for c in status["conditions"]}.get("Stalled") == "True"


async def test_a_pod_that_the_api_server_refuses_is_told_and_gives_its_allocation_back(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        wrong = container(ports=[{"containerPort": "http"}])
        job = await system.job("wrong", partition, gpuMemory="30Gi", containers=[wrong])
        await job.waits("InvalidSpec", "containerPort", "correct spec.template")
        assert stalled(job.status)
        heir = await system.job("heir", partition, gpuMemory="30Gi")
        await heir.succeeds()
        template = {"spec": {"containers": [container()]}}
        (await job.change(template=template)).ok()
        await job.succeeds()
