"""`partita uninstall` on clusters of its own, with an operator that runs or that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from partita.cli import main, terminal
from partita.models import crd
from support.api import Api
from support.clusters import ApiServer, server_of_its_own
from support.crds import (
    DEFINITIONS,
    OPERATOR_NAMESPACE,
    SERVER_NAMESPACE,
    install_crds,
    prepare_namespace,
)
from support.history import GROUP_PATH, History
from support.job import Job
from support.operator_process import Forge
from support.polling import until
from support.queues import LONG
from support.system import System
from support.workloads import delete, submit

LABEL = {"app.kubernetes.io/part-of": "partita"}
INSTALLED = (
    "/apis/apps/v1/deployments",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates",
)
"""Lists of objects that `manifests/` install, of which the embedded server has none, and of those
that the operator publishes."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def api_server(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[ApiServer]:
    """A cluster for one test."""
    with server_of_its_own(pytestconfig, tmp_path, "overlays/single-node", "limits") as server:
        yield server


@pytest.fixture
async def system(
    api_server: ApiServer, connections: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[System]:
    """That cluster with Partita installed, without an operator."""
    # The command runs in this process: what the nodes log is no output of it.
    monkeypatch.setattr(terminal, "quiet_logs", lambda: None)
    async with api_server.session() as session:
        api = api_server.api(session)
        await install_crds(api)
        for name in (OPERATOR_NAMESPACE, SERVER_NAMESPACE, "team"):
            meta: dict[str, Any] = {"name": name} | ({} if name == "team" else {"labels": LABEL})
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
            await api.post("/api/v1/namespaces", body)
        await prepare_namespace(api, "team")
        await prepare_namespace(api, SERVER_NAMESPACE, "partita-agent")
        history = History(api)
        with structlog.testing.capture_logs():
            async with history.recording():
                yield System(api, history, api_server, "team")


async def uninstall(server: ApiServer, *options: str) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it printed to stdout and stderr."""
    command = ["uninstall", f"--kubeconfig={server.kubeconfig}", *options]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    return result.exit_code, result.stdout, result.stderr


async def running_job(system: System) -> Job:
    partition = await system.partition()
    job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
    await job.runs()
    slice_ = f"/apis/resource.k8s.io/v1/resourceslices/{partition}-0.gpu.partita.dev"

    async def is_published() -> bool:
        return (await system.api.get(slice_)).status == 200

    await until(is_published)  # it is among what is deleted
    return job


async def left(api: Api) -> list[str]:
    """Names of everything of Partita that the cluster still has."""
    found = []
    for path in INSTALLED:
        answer = await api.get(path, labelSelector="app.kubernetes.io/part-of=partita")
        found += [o["metadata"]["name"] for o in answer.body.get("items", [])]
    for definition in crd.crds():
        name = definition["metadata"]["name"]
        if (await api.get(f"{DEFINITIONS}/{name}")).status == 200:
            found.append(name)
    for path in ("/api/v1/namespaces/partita-system", "/api/v1/namespaces/partita-servers"):
        if (await api.get(path)).status == 200:
            found.append(path.rpartition("/")[2])
    pods = (await api.get("/api/v1/pods")).ok().body["items"]
    return found + [pod["metadata"]["name"] for pod in pods]


async def test_it_ends_jobs_only_if_asked_to_and_no_other_pods_and_then_removes_everything(
    system: System, api_server: ApiServer, forge: Forge, tmp_path: Path
) -> None:
    async with system.nodes(1):
        kubeconfig = api_server.kubeconfig_of("partita-operator")
        operator = await forge.start(kubeconfig, tmp_path / "log", identity="suite")
        job = await running_job(system)

        code, plan, err = await uninstall(api_server, "--yes")
        assert (code, err) == (
            1,
            "Error: 1 jobs run: team/train. Wait for them, or end them with --end-jobs\n",
        )
        assert plan.startswith(f"These are deleted from the cluster at {api_server.url}:\n")
        assert "  1 SharedGPUJob: train\n" in plan
        assert "  4 CustomResourceDefinitions: applicationprofiles.partita.dev, " in plan
        assert "  1 DeviceClass: " in plan
        assert "  1 ResourceSlice: " in plan
        assert "  2 Namespaces: partita-servers, partita-system\n" in plan

        assert await uninstall(api_server, "--dry-run", "--end-jobs") == (0, plan, "")
        code, _, err = await uninstall(api_server, "--end-jobs")  # nobody answers its question
        assert code == 1
        assert err.endswith("Delete all of this? [y/N]: Aborted!\n"), err
        assert job.status["phase"] == "Running"

        partition = job.body["spec"]["partition"]
        serve = await submit(system, "serve", partition)
        await serve.allocated()
        waits = await submit(system, "waits", partition, memory="90Gi")
        await waits.waits("NeverFits")
        code, _, err = await uninstall(api_server, "--yes", "--end-jobs")
        assert code == 1
        assert err.startswith("Error: 1 Pods use a slice of a GPU by a claim: team/serve. Delete")
        await delete(serve)
        await serve.until(lambda w: not w.entries)

        code, out, err = await uninstall(api_server, "--yes", "--end-jobs")
        assert code == 0, err
        assert out == plan
        assert "Deleting GPUPartition: " in err
        assert "Waiting until the operator has ended the jobs and given all GPUs back\n" in err
        assert "No operator" not in err
        assert err.endswith("Partita is removed.\n")
        await delete(waits)
        assert await left(system.api) == []
        await operator.stop()

    assert await uninstall(api_server) == (
        0,
        "",
        f"Nothing to remove: the cluster at {api_server.url} has no objects of Partita.\n",
    )


async def test_without_an_operator_it_gives_the_gpus_back_and_continues_where_it_ended(
    system: System, api_server: ApiServer, forge: Forge, tmp_path: Path
) -> None:
    async with system.nodes(1):
        kubeconfig = api_server.kubeconfig_of("partita-operator")
        operator = await forge.start(kubeconfig, tmp_path / "log", identity="suite")
        job = await running_job(system)
        (server,) = system.history.all("gpuservers")
        await operator.stop()  # the first thing that somebody deletes is the Deployment
        profile = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "ApplicationProfile",
            "metadata": {"name": "bert"},
            "spec": {"application": "bert"},
        }
        profiles = f"{GROUP_PATH}/namespaces/team/applicationprofiles"
        (await system.api.post(profiles, profile)).ok()
        held = {"metadata": {"finalizers": ["example.org/hold"]}}
        (await system.api.patch(job.path, held)).ok()

        options = ("--yes", "--end-jobs", "--keep-profiles", "--timeout=5")
        code, _, err = await uninstall(api_server, *options)
        assert code == 1
        assert "Error: still there after 5 s: SharedGPUJob team/train; find out why" in err
        path = f"{GROUP_PATH}/gpuservers/{server['metadata']['name']}"
        assert (await system.api.get(path)).ok().body["metadata"]["finalizers"]

        (await system.api.patch(job.path, {"metadata": {"finalizers": None}})).ok()
        code, out, err = await uninstall(api_server, *options[:-1], "--timeout=90")
        assert code == 0, err
        assert "SharedGPUJob" not in out
        assert "ApplicationProfile" not in out
        assert "No operator is running: " in err
        assert await left(system.api) == ["applicationprofiles.partita.dev"]
        assert (await system.api.get(f"{profiles}/bert")).status == 200

        code, _, err = await uninstall(api_server, "--yes")
        assert code == 0, err
        assert await left(system.api) == []
