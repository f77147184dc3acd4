"""A program that is killed while it uses the GPU wedges MPS: found, and repaired."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import Carve, condition, server_path, servers
from gpu.fake import MIB
from support.api import Api
from support.polling import poll


@pytest.fixture
def node(gpus: NodeGPUs) -> Iterator[NodeGPUs]:
    """The node's GPUs; a client that is killed in flight wedges MPS."""
    gpus.mps(kill="orphan")
    yield gpus
    gpus.mps()


async def test_a_silent_wedge_is_found_and_its_jobs_are_queued_again_uncharged(
    node: NodeGPUs, cluster: Cluster, api: Api, carve: Carve
):
    jobs = await carve()
    retry = {"limit": 0}
    await jobs.submit("neighbour", "alloc:900", "forever", memory="1Gi", retry=retry)
    await jobs.running("neighbour")
    poll(lambda: list(node.programs().values()) == [900 * MIB])
    await jobs.submit("killed", "alloc:300", "forever", retry=retry)
    pid = poll(lambda: node.computing(300 * MIB))
    # As the kernel kills a program whose container has used up its memory: MPS is not told.
    cluster.node.run("kill", "-9", str(pid))
    (server,) = await servers(api)
    await api.until(
        server_path(server["metadata"]["name"]),
        lambda found: condition(found, "Faulted").get("reason") == "MPSWedged",
    )
    node.mps()
    await jobs.running("neighbour", attempt=2)
    first, second = (await jobs.reaches("neighbour", "Running"))["attempts"]
    assert first["outcome"] == "GPUFault"
    assert second["number"] == 2, "with a limit of no retry it was not charged"
    assert not [*node.folder.glob("*.wedged")]
    await jobs.submit("late", "alloc:900", memory="1Gi")
    await jobs.reaches("late", "Succeeded")
