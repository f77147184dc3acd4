"""`partita doctor` on an embedded API server, with a node that runs its programs on a fake GPU."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from cli.gpu_machine import NODE, Machine
from cli.objects import partition, server
from gpu.fake import MIB, FakeGPUs
from partita.cli.cluster.install import install_crds
from partita.cli.connection import open_cluster
from partita.kube.client import (
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    PARTITIONS,
    PODS,
    RESOURCE_SLICES,
    SERVERS,
    Kube,
)
from partita.times import Times
from partita_testcluster.apiserver.server import EmbeddedAPIServer
from support.polling import until
from support.programs import program

CHECKED = ("memory-limit", "isolation", "reporting")
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.runtime-version.full": "13.0",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[Kube, Path]]:
    """An empty cluster with the namespace `default`, and its kubeconfig."""
    async with EmbeddedAPIServer() as embedded:
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(embedded.kubeconfig()), encoding="utf-8")
        async with open_cluster(str(path)) as kube:
            if not any(
                one["metadata"]["name"] == "default" for one in (await kube.list(NAMESPACES))[0]
            ):
                await kube.create(NAMESPACES, {"metadata": {"name": "default"}})
            yield kube, path


@pytest.fixture
def machine(cluster: tuple[Kube, Path], fake_gpus: FakeGPUs) -> Machine:
    fake_gpus.add(0, context=100 * MIB)
    fake_gpus.start_driver()
    return Machine(cluster[0], fake_gpus)


@pytest.fixture
def doctor(cluster: tuple[Kube, Path], invoke: Callable[..., Result]) -> Callable[..., Any]:
    """Run `partita doctor`; return its exit code, and its findings by name of the check."""

    async def run(*options: str, **times: float) -> tuple[int, dict[str, dict[str, Any]]]:
        words = ("doctor", "-o", "json", "--kubeconfig", str(cluster[1]), *options)
        waits = Times(**{"test_hold": 1, **times})
        result = await asyncio.to_thread(invoke, *words, code=None, times=waits)
        found = json.loads(result.stdout)["checks"]
        return result.exit_code, {one["check"]: one for one in found}

    return run


def problems(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found.values() if one["status"] == "Problem"]


def results(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {check: found[check]["status"] for check in CHECKED}


async def test_a_free_gpu_is_tested_before_partita_is_installed(cluster, machine, doctor) -> None:
    async with machine.running(**LABELS):
        code, found = await doctor()
        assert code == 0, problems(found)
        assert results(found) == dict.fromkeys(CHECKED, "OK"), found
        assert found["crds"]["status"] == "Not applicable"
        assert found["driver"]["found"] == "580.95.05, CUDA 13.0: limits by MPS"
        assert (found["compute-mode"]["found"], found["compute-mode"]["node"]) == ("Default", NODE)
        assert len(machine.created) == 1
        await until(lambda: _no_pods(cluster[0]))


async def test_an_installed_partita_is_tested_with_two_jobs(
    cluster, installed: None, machine, doctor, fake_gpus: FakeGPUs
) -> None:
    kube, _ = cluster
    async with machine.running(**LABELS):
        start_mps(fake_gpus, machine)
        code, found = await doctor()
        assert code == 0, problems(found)
        assert results(found) == dict.fromkeys(CHECKED, "OK"), found
        assert found["reporting"]["found"] == "GPUServer s-0 reports 600 MiB for the neighbour"
        assert (await kube.list(JOBS))[0] == []
        await until(lambda: _no_pods(kube))


async def test_a_gpu_server_without_a_report_is_a_problem(
    installed: None, machine, doctor, fake_gpus: FakeGPUs
) -> None:
    machine.reports = False
    async with machine.running(**LABELS):
        start_mps(fake_gpus, machine)
        code, found = await doctor(test_report=0.5)
    assert code == 1
    assert found["reporting"]["status"] == "Problem"
    assert "does not report the memory" in found["reporting"]["found"]


async def test_a_pod_that_does_not_start_is_reported_with_its_reason(
    cluster, machine, doctor
) -> None:
    machine.pull_fails = True
    async with machine.running(**LABELS):
        code, found = await doctor(test_start=10.0)
        assert code == 0
        assert results(found) == dict.fromkeys(CHECKED, "Not checked")
        assert found["memory-limit"]["found"].endswith("within 10 s: ErrImagePull: no such image")
        await until(lambda: _no_pods(cluster[0]))


async def test_nothing_is_created_when_it_may_only_read(cluster, machine, doctor) -> None:
    async with machine.running(**LABELS):
        code, found = await doctor("--no-pods")
    assert code == 0
    assert found["memory-limit"]["found"] == "--no-pods was given"
    assert machine.created == []


async def test_ctrl_c_deletes_the_pod(cluster, machine) -> None:
    kube, kubeconfig = cluster
    async with machine.running(**LABELS):
        command = (sys.executable, "-m", "partita", "doctor", "--kubeconfig", str(kubeconfig))
        async with program(*command) as process:
            await until(lambda: machine.created)
            process.send_signal(signal.SIGINT)
            _, said = await process.communicate()
        assert process.returncode == 130, said
        await until(lambda: _no_pods(kube))


@pytest.fixture
async def installed(cluster: tuple[Kube, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the CRDs, a partition, its one GPUServer, which is ready, and its device."""
    kube, _ = cluster
    monkeypatch.setattr("partita.cli.doctor.cluster_facts.read_operator_problem", _no_problem)
    await install_crds(kube)
    shared, body = partition("shared", gpus=1), server("s-0", on=NODE, of="shared")
    await kube.create(PARTITIONS, {"metadata": {"name": "shared"}, "spec": shared["spec"]})
    await kube.create(SERVERS, {"metadata": {"name": "s-0"}, "spec": body["spec"]})
    await kube.patch(SERVERS, "s-0", {"status": body["status"]}, subresource="status")
    device_class = {"metadata": {"name": "shared.gpu.partita.dev"}, "spec": {}}
    await kube.create(DEVICE_CLASSES, device_class)
    pool = {"name": "s-0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.partita.dev", "pool": pool, "nodeName": NODE}
    spec["devices"] = [{"name": "gpu"}]
    await kube.create(RESOURCE_SLICES, {"metadata": {"name": "s-0"}, "spec": spec})


async def _no_problem(_kube: Kube) -> str:
    return ""


async def _no_pods(kube: Kube) -> bool:
    return not (await kube.list(PODS))[0]


def start_mps(gpus: FakeGPUs, machine: Machine) -> None:
    """Start the MPS daemon of the GPUServer; the machine's programs are its clients."""
    folder = gpus.folder / "mps-pipes"
    folder.mkdir()
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    gpus.start("nvidia-cuda-mps-control", "-f", **variables)
    machine.environment = {**variables, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M"}
