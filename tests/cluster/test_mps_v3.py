"""MPS protocol 3 on a true kubelet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.gpus import NodeGPUs
from cluster.jobs import Carve, condition, servers
from cluster.pods import logs
from support.api import Api

SHARING = {"protocol": 3, "enforcement": "Client", "maxJobsPerGPU": 4}
"""Limits of the driver would hide those of MPS."""


@pytest.fixture
def new_driver(gpus: NodeGPUs) -> Iterator[None]:
    """A driver with MPS protocol 3."""
    gpus.install_driver("615.71.09")
    yield
    gpus.install_driver()


@pytest.mark.usefixtures("new_driver")
async def test_a_program_that_forgets_its_variables_keeps_its_limits(api: Api, carve: Carve):
    jobs = await carve(sharing=SHARING)
    (server,) = await servers(api)
    assert server["status"]["protocol"] == 3
    assert condition(server, "MPSProtocol3")["status"] == "True"
    await jobs.submit("train", "unset", "try:3000", "alloc:400", "compute:500")
    await jobs.reaches("train", "Succeeded")
    assert "refused: out of memory" in await logs(api, jobs.namespace, "train-1")
    pod = (await api.get(jobs.pod_path("train-1"))).ok().body
    assert "hostUsers" not in pod["spec"]  # it cannot be root
