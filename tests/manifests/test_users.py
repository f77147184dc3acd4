"""What the commands do for a user with exactly `edit` in one namespace, by the shipped roles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.workloads import create_workload, workload
from partita.cli import main
from support.api import Api
from support.clusters import ApiServer
from support.kubectl import Kubectl
from support.polling import until

PARTITIONS = "/apis/partita.dev/v1alpha1/gpupartitions"


class User:
    """Runs commands with the token of an account."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = str(kubeconfig)

    async def __call__(self, *args: str) -> Result:
        whole = [*args, "--kubeconfig", self._kubeconfig]
        return await asyncio.to_thread(CliRunner().invoke, main, whole)


@pytest.fixture
async def user(
    api: Api, api_server: ApiServer, kubectl: Kubectl, enforced: str, tmp_path: Path
) -> User:
    """A user with the role `edit` in the namespace, and with no other right."""
    accounts = f"/api/v1/namespaces/{enforced}/serviceaccounts"
    (await api.post(accounts, {"metadata": {"name": "user"}})).ok()
    subject = f"--serviceaccount={enforced}:user"
    (
        await kubectl(
            "create", "rolebinding", "user", "-n", enforced, "--clusterrole=edit", subject
        )
    ).ok()
    made = await api.post(f"{accounts}/user/token", {"spec": {"expirationSeconds": 3600}})
    config = json.loads(api_server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": made.ok().body["status"]["token"]}
    config["contexts"][0]["context"]["namespace"] = enforced
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))

    async def may_submit() -> bool:
        asked = await kubectl("auth", "can-i", "create", "sharedgpujobs", "-n", enforced,
                              f"--as=system:serviceaccount:{enforced}:user")  # fmt: skip
        return asked.out.strip() == "yes"

    await until(may_submit)  # edit has the rules of Partita by then
    return User(path)


@pytest.fixture
async def shared(api: Api, installed: str) -> AsyncIterator[str]:
    """The only partition, whose GPU has jobs of others."""
    body = {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPartition",
            "metadata": {"name": "shared"}, "spec": {"gpus": 1}}  # fmt: skip
    (await api.post(PARTITIONS, body)).ok()
    summary = {"name": "shared-0", "memory": "40Gi", "allocated": "30Gi", "jobs": 2,
               "state": "Ready"}  # fmt: skip
    status = {"status": {"gpus": 1, "gpuSummary": [summary]}}
    merge = "application/merge-patch+json"
    (await api.patch(f"{PARTITIONS}/shared/status", status, merge)).ok()
    yield "shared"
    await api.delete(f"{PARTITIONS}/shared")


async def test_a_user_with_edit_works_with_jobs_and_is_told_what_is_hidden(
    user: User, api: Api, shared: str, enforced: str
) -> None:
    sent = await user("submit", "train", "--image", "trainer:1", "--gpu-memory", "6Gi")
    assert sent.exit_code == 0, sent.stderr
    jobs = await user("jobs")
    assert (jobs.exit_code, jobs.stdout.splitlines()[1].split()[0]) == (0, "train")
    assert "no Pods with claims of GPU slices" in (await user("workloads")).stderr
    await create_workload(api, *workload("serve-1", namespace=enforced))
    found = await user("workloads")
    assert (found.exit_code, "serve-1" in found.stdout) == (0, True)
    assert found.stderr == (
        "Warning: Node, GPU, use and idle time are not shown: you may not list gpuservers.\n"
    )
    top = await user("top", "--once")
    assert top.exit_code == 0
    assert "1 of 1 GPUs ready · 2 running · 2 waiting" in top.stdout
    assert "2 not shown" in top.stdout
    assert "Warning: Not all is shown: you may not list nodes, namespaces, " in top.stderr
    (partition,) = json.loads((await user("top", "--once", "-o", "json")).stdout)
    assert {row["name"] for row in partition["queue"]} == {"train", "serve-1"}
    for target in ("train", "pod/serve-1"):
        explained = await user("explain", target)
        assert f"{enforced}/{target.removeprefix('pod/')}  waits" in explained.stdout
        said = "The policies were not asked, and no slowdown is predicted: you may not list "
        assert f"Warning: {said}nodes, namespaces, " in explained.stderr
        hidden = f"gpuservers, sharedgpujobs outside namespace {enforced}"
        assert hidden in explained.stderr
    logs = await user("logs", "train")
    assert "train has not started yet" in logs.stderr
    assert (await user("suspend", "train")).exit_code == 0
    advice = await user("advise", "-n", enforced)
    assert f"no ApplicationProfile with a measurement in namespace {enforced}" in advice.stderr


@pytest.mark.parametrize("args", [("jobs", "-A"), ("usage",), ("drain", "shared-0")])
async def test_what_needs_more_rights_says_so(
    user: User, shared: str, args: tuple[str, ...]
) -> None:
    result = await user(*args)
    assert result.exit_code == 1
    assert "is forbidden" in result.stderr
    assert "ask for a role that allows it" in result.stderr


async def test_edit_grants_no_status_and_nothing_of_others_or_of_the_cluster(
    kubectl: Kubectl, user: User, enforced: str
) -> None:
    who = f"--as=system:serviceaccount:{enforced}:user"
    for verb, resource, where in (
        ("patch", "sharedgpujobs --subresource=status", enforced),
        ("create", "applicationprofiles", enforced),
        ("list", "sharedgpujobs", "default"),
        ("list", "gpuservers", enforced),
        ("patch", "gpupartitions", enforced),
        ("delete", "sharedgpujobs", "default"),
        ("delete", "resourceclaims", "default"),
        ("patch", "gpuservers --subresource=status", enforced),
        ("patch", "nodes", enforced),
        ("delete", "deviceclasses", enforced),
        ("delete", "validatingadmissionpolicybindings", enforced),
        ("patch", "customresourcedefinitions", enforced),
        ("create", "rolebindings", enforced),
        ("create", "clusterrolebindings", enforced),
        ("create", "serviceaccounts --subresource=token", "partita-system"),
        ("get", "secrets", "partita-servers"),
        ("create", "pods --subresource=exec", "partita-servers"),
        ("create", "pods --subresource=binding", enforced),
        ("patch", "pods --subresource=status", enforced),
    ):
        asked = await kubectl("auth", "can-i", verb, *resource.split(), "-n", where, who)
        assert asked.out.strip() == "no", (verb, resource)
