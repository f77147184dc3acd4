"""What Argo CD shows of statuses as the operator writes them, so that the two cannot drift apart."""

from __future__ import annotations

from typing import Any

import pytest

from gitops.lua import health
from partita.jobs.job_status import job_status
from partita.jobs.lifecycle import Plan
from partita.models import Phase
from partita.models.partition import PolicySpec
from partita.models.quantities import format_time
from partita.partitions.partition_status import partition_status
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.reasons import Reason, WaitingReason
from support.builders import a_job, a_partition, a_state, at, gpus_up, server_body

STALLS = {
    "PartitionNotFound",
    "PartitionUnreadable",
    "NamespaceNotAllowed",
    "InvalidSpec",
    "NeverFits",
    "NoPod",
}


def shown(resource: Any, status: Any = None) -> tuple[str, str]:
    if status is not None:
        resource = resource.model_copy(update={"status": status})
    kind = {"apiVersion": resource.api_version(), "kind": type(resource).__name__}
    return health({**kind, **resource.dump()})


@pytest.mark.parametrize("reason", list(Reason))
def test_why_a_job_waits(reason: Reason):
    job = a_job()
    status = job_status(job, Plan(), at(0), why=WaitingReason(reason, "there is a reason"))
    if reason.value in STALLS:
        assert shown(job, status) == ("Degraded", "there is a reason")
        # What was said in vain is withdrawn, and Argo CD sees it.
        again = job.model_copy(update={"status": status})
        helped = job_status(again, Plan(phase=Phase.RUNNING), at(1))
        assert shown(job, helped)[0] == "Progressing"
    else:
        assert shown(job, status) == ("Progressing", f"{reason}: there is a reason")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "Healthy"),
        ({"conditions": {"Ready": "False"}}, "Degraded"),
        ({"conditions": {"Ready": "True", "Faulted": "True"}}, "Degraded"),
        ({"mode": "Exclusive"}, "Degraded"),
        ({"node": "", "conditions": {}, "status": {"uuid": "", "memory": "0"}}, "Progressing"),
        ({"drainSince": format_time(at(0))}, "Suspended"),
    ],
)
def test_how_a_partitions_gpus_are(change: dict[str, Any], expected: str):
    partition = a_partition()
    state = a_state(*gpus_up(server_body(**change)))
    found, said = shown(partition, partition_status(partition, state, None, at(0)))
    assert found == expected
    assert "shared-0" in said or "of 1 GPUs are ready" in said


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"name": "tetris"}, ("Healthy", "1 of 1")),
        ({"name": "tetriss"}, ("Degraded", "tetriss")),
        ({"name": "fifo", "parameters": {"speed": 9}}, ("Degraded", "speed")),
        ({"name": "sjf", "shadow": ("best",)}, ("Degraded", "best")),
    ],
)
async def test_how_a_partitions_policy_is(policy: dict[str, Any], expected: tuple[str, str]):
    partition, spec = a_partition(), PolicySpec(**policy)
    state = a_state(*gpus_up(server_body()))
    runner = PolicyRunner(spec)
    await runner.build()
    status = partition_status(partition, state, runner, at(0))
    found, said = shown(partition, status)
    assert found == expected[0]
    assert expected[1] in said
