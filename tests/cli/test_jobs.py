"""`partita jobs`, the formats of output, and the check for a running operator."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from cli.objects import create, job, partition, running
from partita.models.quantities import format_time
from support.api import Api
from support.clusters import ApiServer
from support.imports import imported

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


@pytest.fixture
async def jobs(api: Api, namespace: str) -> str:
    common = {"namespace": namespace, "partition": "pool"}
    queued = {"phase": "Queued", "queuePosition": 1, "reason": "GPUsFull", "message": "wait"}
    queued["estimatedStart"] = dict.fromkeys(("earliest", "latest"), "2026-01-01T12:00:00Z")
    await create(api, job("finished", "1Gi", status={"phase": "Succeeded"}, **common))
    await create(api, job("waits", "6Gi", application="resnet", status=queued, **common))
    await create(api, job("runs", "10Gi", status=running("pool-0"), **common))
    return namespace


async def test_jobs_are_listed_with_state_and_reason(partita, jobs: str) -> None:
    result = await partita("jobs", "-n", jobs)
    head, *lines = [line.split() for line in result.stdout.splitlines()]
    assert head == ["NAME", "PARTITION", "PHASE", "POSITION", "STARTS", "REQUEST", "AGE", "REASON"]
    assert [line[:3] for line in lines] == [
        ["runs", "pool", "Running"],
        ["waits", "pool", "Queued"],
        ["finished", "pool", "Succeeded"],
    ]
    assert lines[1][3:7] == ["1", "overdue", "6.0", "GiB"]
    assert lines[1][-1] == "GPUsFull"


UNUSED = {"kopf", "numpy", "partita.scheduling.cycle", "partita.validation.files", "rich.traceback"}


@pytest.mark.parametrize(
    ("command", "unused"),
    [("jobs -n {}", {"partita.store", "partita.pods", "partita_policies", "rich"}),
     ("top --once", set()), ("explain waits -n {}", set()), ("advise random", set())],
)  # fmt: skip
async def test_a_command_imports_nothing_that_it_does_not_use(
    partita, jobs: str, api_server: ApiServer, command: str, unused: set[str]
) -> None:
    args = [*command.format(jobs).split(), "--kubeconfig", str(api_server.kubeconfig)]
    code = f"from partita.cli import main; main({args}, standalone_mode=False)"
    assert not (UNUSED | unused) & await asyncio.to_thread(imported, code)


async def test_all_namespaces_and_wide_add_columns(partita, jobs: str) -> None:
    result = await partita("jobs", "-A", "-o", "wide")
    assert result.stdout.startswith("NAMESPACE")
    lines = [line.split() for line in result.stdout.splitlines()]
    (waits,) = [line for line in lines if line[:2] == [jobs, "waits"]]
    assert waits[-5:] == ["GPUsFull", "-", "-", "resnet", "wait"]
    (runs,) = [line for line in lines if line[:2] == [jobs, "runs"]]
    assert runs[-4:] == ["node-1", "pool-0", "-", "-"]


async def test_scripts_get_numbers(partita, jobs: str) -> None:
    result = await partita("jobs", "-n", jobs, "-o", "json")
    runs, waits, finished = json.loads(result.stdout)
    assert (runs["name"], runs["node"], runs["servers"]) == ("runs", "node-1", ["pool-0"])
    assert (waits["gpuMemory"], waits["queuePosition"], waits["gpus"]) == (6 << 30, 1, 1)
    assert isinstance(waits["age"], float)
    assert finished["queuePosition"] is None


async def test_a_missing_operator_is_reported(
    partita, api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTITA_NAMESPACE", namespace)
    pool = f"pool-{namespace}"
    await create(api, partition(pool, gpus=0))
    await create(api, job("waits", "1Gi", namespace=namespace, partition=pool))
    submit = ("--partition", pool, "--image", "i", "-n", namespace)
    commands: tuple[tuple[str, ...], ...] = (("top", "--once"), ("explain", f"{namespace}/waits"))

    for args in (*commands, ("submit", "one", *submit)):
        result = await partita(*args)
        missing = f"No operator is running: namespace {namespace} has no Lease partita-operator."
        assert f"Warning: {missing}" in result.stderr, args

    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 12}
    renewed = {"renewTime": format_time(datetime.now(UTC) + timedelta(hours=1))}
    lease = {"metadata": {"name": "partita-operator"}, "spec": {**spec, **renewed}}
    (await api.post(LEASES.format(namespace), lease)).ok()
    for args in (*commands, ("submit", "two", *submit)):
        assert "No operator is running" not in (await partita(*args)).stderr, args
    await api.delete(f"/apis/partita.dev/v1alpha1/gpupartitions/{pool}")
