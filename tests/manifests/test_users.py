"""What the commands do for a user with exactly `edit` in one namespace, by the shipped roles."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner, Result

from cli.objects import attempt
from cli.workloads import create_workload, workload
from console.pages import Page, get, stream
from console.sample_objects import LEASES, make_lease
from console.test_command import console
from partita.cli import main
from support.api import Api
from support.claims import claim_allocation_body
from support.clusters import ApiServer
from support.kubectl import Kubectl
from support.polling import until

PARTITIONS = "/apis/partita.dev/v1alpha1/gpupartitions"


class User:
    """Runs commands with the token of an account."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    async def __call__(self, *args: str, **env: str) -> Result:
        whole = {"KUBECONFIG": str(self.kubeconfig), "COLUMNS": "160", **env}
        return await asyncio.to_thread(CliRunner(env=whole).invoke, main, args)


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
async def in_use(
    api: Api, operator: Api, installed: str, user: User, enforced: str
) -> AsyncIterator[None]:
    """The only partition: on its GPU a job and a workload of the user, and two jobs of others."""
    body = {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPartition",
            "metadata": {"name": "shared"}, "spec": {"gpus": 1}}  # fmt: skip
    (await api.post(PARTITIONS, body)).ok()
    summary = {"name": "shared-0", "node": "node-1", "memory": "40Gi", "allocated": "30Gi",
               "jobs": 4, "state": "Ready"}  # fmt: skip

    async def patch(path: str, **status: Any) -> None:
        merge = "application/merge-patch+json"
        (await operator.patch(f"{path}/status", {"status": status}, merge)).ok()

    await patch(f"{PARTITIONS}/shared", gpus=1, gpuSummary=[summary], queue={"queued": 5})
    await user("submit", "runs", "--image", "trainer:1", "--gpu-memory", "10Gi")
    job = f"/apis/partita.dev/v1alpha1/namespaces/{enforced}/sharedgpujobs/runs"
    at = {"servers": ["shared-0"], "node": "node-1", "memory": "10Gi", "pod": "runs-1"}
    await patch(job, phase="Running", assignment={**at, "attempt": 1},
                attempts=[attempt(1, "shared-0")])  # fmt: skip
    claims = f"/apis/resource.k8s.io/v1/namespaces/{enforced}/resourceclaims"
    await create_workload(api, *workload("serve-2", "20Gi", namespace=enforced))
    says = {"partita.dev/status": "InsufficientMemory: needs 20.0 GiB of GPU memory"}
    (await operator.patch(f"{claims}/serve-2-gpu", {"metadata": {"annotations": says}})).ok()
    runs = workload("serve-1", namespace=enforced, on="shared-0")
    await create_workload(api, *runs)
    await make_lease(api)
    given = {"gpuServer": "shared-0", "gpu": "GPU-1", "memory": "8Gi", "threadPercent": 50}
    opaque = {"driver": "gpu.partita.dev", "parameters": given}
    devices = {**claim_allocation_body("shared-0")["devices"],
               "config": [{"source": "FromClaim", "opaque": opaque}]}  # fmt: skip
    await patch(f"{claims}/serve-1-gpu", allocation={"devices": devices})
    yield
    await api.delete(f"{LEASES}/partita-operator")
    await api.delete(f"{PARTITIONS}/shared")


WALK = """
submit train --image trainer:1 --gpu-memory 6Gi
jobs
workloads
workloads -o wide
top --once
explain train
explain runs
explain pod/serve-2
explain pod/serve-1
explain -f FILE
logs train
logs runs
suspend train
resume train
advise
validate FILE
doctor
jobs -A
usage
drain shared-0
retry runs
"""


async def test_a_user_with_edit_works_and_is_told_what_is_hidden(
    user: User, in_use: None, enforced: str, tmp_path: Path, golden: Callable[[Path, str], None]
) -> None:
    file, said = tmp_path / "job.yaml", ""
    (tmp_path / "job.yaml").write_text(
        (await user("submit", "next", "--image", "i:1", "--gpu-memory", "6Gi", "--dry-run")).stdout
    )
    for line in WALK.split("\n")[1:-1]:
        result = await user(*line.replace("FILE", str(file)).split())
        assert result.exception is None or isinstance(result.exception, SystemExit), line
        # Without what differs between runs: the width of columns, ages, names and versions.
        text = "\n".join(" ".join(part.split()) for part in result.output.splitlines())
        text = text.replace(enforced, "team").replace(str(file), "FILE")
        text = re.sub(r"\b(\d+h\d+m|(\d+m)?\d+s)\b", "Ns", re.sub(r"\bv1\.\d+\.\d+", "v1.N", text))
        said += f"$ partita {line}\n{text}\n" + (
            f"({code})\n" if (code := result.exit_code) else ""
        )
    golden(Path(__file__).with_name("walk-of-a-user.txt"), said)
    begun = {"COMP_WORDS": "partita explain ", "COMP_CWORD": "2"}

    async def offers() -> bool:  # a slow API server has nothing to offer
        offered = await user(_PARTITA_COMPLETE="bash_complete", **begun)
        return f"{enforced}/runs" in offered.stdout

    await until(offers)


async def test_the_console_of_a_user_with_edit_shows_the_own_namespace(
    user: User, api_server: ApiServer, in_use: None, enforced: str
) -> None:
    server = replace(api_server, kubeconfig=user.kubeconfig, tokens={})
    async with console(server, "--port", "0") as (_, said), aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{said.rpartition(':')[2]}"
        async with stream(http, url) as response:
            page = Page(response)
            await page.read()
        seen = page.state
        kinds = ("applicationprofiles", "pods", "resourceclaims", "sharedgpujobs")
        outside = [f"{kind} outside namespace {enforced}" for kind in kinds]
        assert seen["feed"]["leftOut"] == sorted(["gpuservers", *outside])
        gpu, shared = seen["gpu/shared-0"], seen["partition/shared"]
        slices = [(one.get("name"), one["memory"] >> 30) for one in gpu["slices"]]
        assert slices == [("runs", 10), ("serve-1", 8), (None, 12)]
        assert gpu["used"] is shared["used"] is None
        assert (shared["running"], shared["waiting"]) == (4, 5)
        asked = {"kind": "workload", "namespace": enforced, "name": "serve-1"}
        status, detail = await get(http, f"{url}/detail", **asked)
        assert (status, detail["phase"], detail["beside"]) == (200, "Running", None)


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
