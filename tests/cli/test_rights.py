"""What a user with `edit` in one namespace sees, and what the commands say is left out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cli.objects import create, job, partition
from cli.workloads import create_workload, workload
from partita.kube.client import PARTITIONS, Kind, Kube
from partita.kube.errors import ForbiddenError
from support.api import MERGE, Api

PATH = "/apis/partita.dev/v1alpha1/gpupartitions"


@pytest.fixture
def editor(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer lists as RBAC does for a user with `edit` in the namespace."""
    listed = Kube.list

    async def allowed(self: Kube, kind: Kind, *, namespace: str = "", **more: Any) -> Any:
        if kind is not PARTITIONS and namespace != own:
            raise ForbiddenError(f"GET {kind.plural}", 403, f"{kind.plural} is forbidden")
        return await listed(self, kind, namespace=namespace, **more)

    own = namespace
    monkeypatch.setattr(Kube, "list", allowed)
    monkeypatch.setattr("partita.kube.connect.current_namespace", lambda *_: own)


@pytest.fixture
async def shared(api: Api, namespace: str) -> AsyncIterator[str]:
    """A partition with a GPU that has jobs of others, a job that waits there, and a workload."""
    name = f"shared-{namespace}"
    await create(api, partition(name))
    summary = {"name": f"{name}-0", "memory": "40Gi", "allocated": "30Gi", "jobs": 2,
               "state": "Ready"}  # fmt: skip
    status = {"status": {"gpus": 1, "gpuSummary": [summary]}}
    (await api.patch(f"{PATH}/{name}/status", status, MERGE)).ok()
    await create(api, job("train", namespace=namespace, partition=name))
    pod, claim = workload("serve-1", namespace=namespace, device_class=f"{name}.gpu.partita.dev")
    await create_workload(api, pod, claim)
    yield name
    (await api.delete(f"{PATH}/{name}")).ok()


@pytest.mark.usefixtures("editor")
async def test_top_shows_the_partition_and_the_users_own_queue(
    partita, namespace: str, shared: str
) -> None:
    result = await partita("top", shared, "--once")
    assert result.exit_code == 0
    assert "1 of 2 GPUs ready · 2 running" in result.stdout
    assert "2 not shown" in result.stdout
    assert "Warning: Not all is shown: you may not list nodes, namespaces, " in result.stderr
    data = json.loads((await partita("top", shared, "--once", "-o", "json")).stdout)
    assert {row["name"] for row in data[0]["queue"]} == {"train", "serve-1"}


@pytest.mark.usefixtures("editor")
async def test_workloads_are_listed_without_their_gpus(
    partita, namespace: str, shared: str
) -> None:
    result = await partita("workloads", "-n", namespace)
    assert result.exit_code == 0
    assert "serve-1" in result.stdout
    assert result.stderr == (
        "Warning: Node, GPU, use and idle time are not shown: you may not list gpuservers.\n"
    )


@pytest.mark.usefixtures("editor")
@pytest.mark.parametrize("target", ["train", "pod/serve-1"])
async def test_explain_says_what_it_does_not_know(
    partita, namespace: str, shared: str, target: str
) -> None:
    result = await partita("explain", target, "-n", namespace)
    assert result.exit_code == 0
    assert target.removeprefix("pod/") in result.stdout
    said = "Warning: The policies were not asked, and no slowdown is predicted: you may not list "
    assert said + "nodes, namespaces, " in result.stderr
    assert f"gpuservers, sharedgpujobs outside namespace {namespace}" in result.stderr
