"""From an empty cluster to a running job, by the two commands of the tutorial."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import examples
from cluster.cluster import Cluster, running_cluster
from cluster.gpus import NodeGPUs
from cluster.images import PARTITA, ROOT, partita_image, write_busybox
from cluster.plane import NODE_NAME
from support.api import Api
from support.clusters import ApiServer, check_for_tests, find_kubectl
from support.kubectl import Kubectl
from support.polling import TIMEOUT, poll

JOBS = "/apis/partita.dev/v1alpha1/sharedgpujobs"


@pytest.fixture(scope="module")
def empty() -> Iterator[Cluster]:
    """A cluster that knows nothing of Partita, whose node has two GPUs."""
    with running_cluster() as running:
        check_for_tests(running.plane.kubeconfig)
        yield running


@pytest.fixture(scope="module")
def gpus(empty: Cluster) -> NodeGPUs:
    """Its GPUs; and all the images that are to be run, for nothing is pulled."""
    found = NodeGPUs(empty.node)
    found.plug_in(2)
    empty.load(partita_image().archive)
    archive = empty.slot.folder / "examples.tar"
    # Its C library is that of Partita's image.
    write_busybox(archive, examples.IMAGE, ["false"], programs=[found.built.program], base=PARTITA)
    empty.load(archive)
    return found


@pytest.fixture
async def api(empty: Cluster, connections: None) -> AsyncIterator[Api]:
    server = ApiServer.of(empty.plane)
    async with server.session() as session:
        yield server.api(session)


@pytest.fixture
def kubectl(empty: Cluster, tmp_path: Path) -> Kubectl:
    binary = find_kubectl()
    assert binary is not None
    return Kubectl(binary, empty.plane.kubeconfig, home=tmp_path)


def runs(found: dict[str, Any]) -> bool:
    return any(job.get("status", {}).get("phase") == "Running" for job in found["items"])


@pytest.mark.smoke
async def test_one_command_installs_it_one_applies_the_examples_and_a_job_runs(
    gpus: NodeGPUs, api: Api, kubectl: Kubectl, tmp_path: Path
):
    folder = tmp_path / "examples"
    folder.mkdir()
    examples.write_examples(folder)
    await api.until(
        f"/api/v1/nodes/{NODE_NAME}",
        lambda node: node["status"]["allocatable"].get("nvidia.com/gpu") == "2",
    )
    (await kubectl("apply", "-k", str(ROOT / "manifests/overlays/single-node"))).ok()
    (await kubectl("apply", "-f", str(folder))).ok()
    await api.until(JOBS, runs, 2 * TIMEOUT)  # from nothing
    poll(lambda: gpus.pids(0) or gpus.pids(1), what="it uses its GPU")
