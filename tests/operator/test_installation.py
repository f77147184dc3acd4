"""What the operator says and does on a cluster that is not yet, or no longer, as it needs it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest
import structlog

from partita.models import crd
from partita.process import main
from partita.process.main import run_operator
from partita.process.settings import OperatorSettings
from partita.process.watches import Watches
from partita.times import Times
from support.api import Api
from support.clusters import ApiServer, embedded_server
from support.crds import DEFINITIONS, OPERATOR_NAMESPACE, SERVER_NAMESPACE, install_crds
from support.faults import CannedAnswer
from support.history import GROUP_PATH
from support.polling import TIMEOUT, until
from support.programs import program
from support.proxy import FaultProxy
from support.system import LEASE, System

TIMES = Times(check_crds=0.05)


@pytest.fixture(scope="module")
def empty_cluster(tmp_path_factory: pytest.TempPathFactory):
    """A cluster of its own: its kinds come and go."""
    with embedded_server(tmp_path_factory.mktemp("empty")) as server:
        yield server


@pytest.fixture
async def cluster(empty_cluster: ApiServer):
    """A client of a cluster that knows nothing of Partita."""
    async with empty_cluster.session() as session:
        api = empty_cluster.api(session)
        meta = {"name": OPERATOR_NAMESPACE}
        await api.post(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        )
        with structlog.testing.capture_logs():
            yield api
        await api.delete(LEASE)
        for definition in crd.crds():
            await api.delete(f"{DEFINITIONS}/{definition['metadata']['name']}")


@contextlib.asynccontextmanager
async def operator(server: Path, port: int, **settings) -> AsyncIterator[None]:
    own = OperatorSettings(identity="suite", lease_duration=TIMEOUT, health_port=port, **settings)
    stop = asyncio.Event()
    work = asyncio.create_task(run_operator(own, str(server), times=TIMES, stop=stop))
    try:
        yield
        assert not work.done(), work
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await work


async def readyz(port: int, status: int, words: str) -> str:
    """Wait until the probe answers so, in a text that has these words; return it."""
    seen = 0, ""

    async def says_so() -> bool:
        nonlocal seen
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                seen = answer.status, await answer.text()
        return seen[0] == status and words in seen[1]

    async with aiohttp.ClientSession() as session:
        await until(says_so, what=lambda: seen)
    return seen[1]


async def test_before_the_crds_it_says_so_waits_and_then_works(
    cluster: Api, empty_cluster: ApiServer, port: int
) -> None:
    async with operator(empty_cluster.kubeconfig, port):
        said = await readyz(port, 503, "is missing")
        assert "CRD gpupartitions.partita.dev is missing; " in said
        assert "`partita crds --install`, or `kubectl apply -k crds`" in said
        assert (await cluster.get(LEASE)).status == 404, "who cannot work must not lead"
        await install_crds(cluster)
        await readyz(port, 200, "ok")
        await cluster.until(LEASE, lambda _: True)


async def test_without_claims_it_says_from_which_version_on_they_are_served(
    cluster: Api, empty_cluster: ApiServer, port: int, tmp_path: Path
) -> None:
    """A cluster before 1.34 answers for a group and version that it does not know."""
    await install_crds(cluster)
    unknown = CannedAnswer(404, "NotFound", "the server could not find the requested resource")
    async with FaultProxy(empty_cluster) as proxy:
        fault = proxy.inject(
            lambda request: request.resource == "deviceclasses", times=None, answer=unknown
        )
        async with operator(proxy.write_kubeconfig(tmp_path), port):
            said = await readyz(port, 503, "resource.k8s.io/v1")
            assert "upgrade Kubernetes to 1.34 or newer" in said
            assert (await cluster.get(LEASE)).status == 404, "who cannot work must not lead"
            proxy.remove(fault)
            await readyz(port, 200, "ok")


async def test_it_can_be_stopped_when_it_has_just_read_all_objects(
    cluster: Api,
    empty_cluster: ApiServer,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is stopped after the last list, before the watches start; then none may start."""
    stop = asyncio.Event()

    class StoppedAtTheEnd(Watches):
        async def list(self) -> None:
            await super().list()
            stop.set()

    monkeypatch.setattr(main, "Watches", StoppedAtTheEnd)
    await install_crds(cluster)
    options = OperatorSettings(identity="suite", health_port=port)
    async with asyncio.timeout(TIMEOUT):
        await run_operator(options, str(empty_cluster.kubeconfig), stop=stop)
    assert stop.is_set()
    gc.collect()  # a coroutine that nobody awaits is reported when it is collected
    assert not caplog.records, "kopf started with a client that is closed"


async def test_one_that_waits_for_the_lease_is_ready(
    cluster: Api, empty_cluster: ApiServer, port: int
) -> None:
    """Else no rollout would end: the new Pod waits for the lease of the old one."""
    await install_crds(cluster)
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "partita-operator"},
        "spec": spec | {"renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    (await cluster.post(LEASE.rpartition("/")[0], body)).ok()
    async with operator(empty_cluster.kubeconfig, port):
        await readyz(port, 200, "ok")
        assert (await cluster.get(LEASE)).body["spec"]["holderIdentity"] == "another"


async def test_server_pods_run_the_operators_own_image_where_they_are_wanted(
    system: System,
) -> None:
    name = system.named("operator")
    containers = [
        {"name": "mesh", "image": "example.org/mesh:1"},
        {"name": "operator", "image": "example.org/partita:7"},
    ]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers},
    }
    path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
    (await system.api.post(path, body)).ok()
    try:
        async with system.nodes(1), system.operator(identity=name):
            partition = await system.ready_partition()
            pod = system.history.get("pods", f"{partition}-0", SERVER_NAMESPACE)
            assert pod is not None
            assert {c["image"] for c in pod["spec"]["containers"]} == {"example.org/partita:7"}
            await system.api.delete(f"{GROUP_PATH}/gpupartitions/{partition}")
            await system.history.until(lambda: not system.history.all("gpuservers"))
    finally:
        await system.api.delete(f"{path}/{name}", {"gracePeriodSeconds": 0})


def process(kubeconfig: Path) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Run `partita run`; it is to end by itself."""
    command = (sys.executable, "-m", "partita", "run", "--kubeconfig", str(kubeconfig))
    command += ("--server-namespace", SERVER_NAMESPACE, f"--lease-duration={TIMEOUT}")
    return program(*command)


async def test_a_deleted_crd_ends_it_with_one_message_and_releases_nothing(
    system: System, api_server: ApiServer, port: int
) -> None:
    path = f"{DEFINITIONS}/applicationprofiles.partita.dev"
    (deleted,) = (d for d in crd.crds() if path.endswith(d["metadata"]["name"]))
    kubeconfig = api_server.kubeconfig_of("partita-operator")
    async with system.nodes(1):
        partition = await system.partition()
        async with process(kubeconfig) as first:
            await system.ready(partition)
            job = await system.job("runs", partition, gpuMemory="4Gi", sim={"duration": "1000h"})
            await job.runs()
            (await system.api.delete(path)).ok()
            try:
                async with asyncio.timeout(TIMEOUT):
                    _, said = await first.communicate()
                assert first.returncode == 1
                last = said.decode().splitlines()[-1]
                assert "CRD applicationprofiles.partita.dev is missing: apply those" in last
                assert b"Traceback" not in said
            finally:
                await system.api.gone(path)
                waiting = operator(kubeconfig, port, server_namespace=SERVER_NAMESPACE)
                async with waiting:
                    await readyz(port, 503, "CRD applicationprofiles.partita.dev is missing")
                    (await system.api.post(DEFINITIONS, deleted)).ok()
                    await readyz(port, 200, "ok")
                    await (await system.job("beside", partition, gpuMemory="4Gi")).succeeds()
                    assert job.outcomes == [""]
                    (server,) = system.servers(partition)
                    assert job.holds(server)
                    await system.settle()
