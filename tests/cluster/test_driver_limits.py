"""Limits of the driver, which no program can take off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import Carve, Jobs, server_path, servers
from cluster.pods import logs
from gpu.fake import MIB
from partita.models.quantities import parse_memory
from support.api import Api
from support.polling import poll, until

R615 = "615.71.09"

ESCAPES = {
    "takes all": "fill sleep:500",
    "removes the limit of MPS": "unset fill sleep:500",
    "has MPS drop its limits": "set:CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=4G fill sleep:500",
    "names a pipe directory without MPS": "set:CUDA_MPS_PIPE_DIRECTORY=/tmp fill sleep:500",
    "removes all variables": "clear fill sleep:500",
    "forks": "unset fork:4 fill meet sleep:500",
    "starts 60 clients": "unset fork:60 fill meet sleep:500",
}
"""What a program tries: its steps, see `gpu/cuda/cuda.c`. Forked ones meet, so that what they print
is what they have at the same time."""


@pytest.fixture
def node(gpus: NodeGPUs) -> Iterator[NodeGPUs]:
    """The node's GPUs; driver and cgroups are as before at the end."""
    yield gpus
    gpus.install_driver()
    gpus.mount_cgroups()


def taken(said: str) -> int:
    """Return how many MiB the programs had that printed this, all together."""
    words = [line.split() for line in said.splitlines() if line.startswith("has ")]
    return sum(int(count) for _, count, _ in words)


async def environment(cluster: Cluster, api: Api, jobs: Jobs, name: str) -> dict[str, str]:
    """Return the variables that a running job's containers got with its claim."""
    uid = (await api.get(jobs.pod_path(f"{name}-1"))).ok().body["metadata"]["uid"]
    files = [json.loads(path.read_text()) for path in cluster.cdi.glob("partita.dev-slice-*.json")]
    (found,) = [file for file in files if file["annotations"]["partita.dev/pod"] == uid]
    (device,) = found["devices"]
    return dict(variable.split("=", 1) for variable in device["containerEdits"]["env"])


@pytest.mark.parametrize(("dmem", "protocol"), [(True, "2"), (False, "3")])
async def test_a_program_never_exceeds_its_limit_and_takes_nothing_from_its_neighbours(
    node: NodeGPUs, cluster: Cluster, api: Api, carve: Carve, *, dmem: bool, protocol: str
):
    node.install_driver(R615, cuda=13040)
    node.mount_cgroups(dmem=dmem)
    jobs = await carve(sharing={"enforcement": "Driver", "protocol": protocol})
    (server,) = await servers(api)
    assert (server["status"]["enforcement"], str(server["status"]["protocol"])) == (
        "Driver",
        protocol,
    )
    await jobs.submit("neighbour", "alloc:900", "forever", memory="1Gi")
    neighbour = await jobs.running("neighbour")
    poll(lambda: list(node.programs().values()) == [900 * MIB])

    attempts = "; ".join(
        f"echo '== {name}'; fake-cuda {steps} 2>&1" for name, steps in ESCAPES.items()
    )
    # MPS may still be busy with the clients of the last attempt that the agent ends.
    script = f"{attempts}; echo == end; until fake-cuda alloc:100; do sleep 0.1; done; "
    script += "exec fake-cuda alloc:100 forever"
    # Two processes: the one that enters its container later is none too many.
    await jobs.submit_command("hostile", ["sh", "-c", script], memory="2Gi", processes=2)
    container = await jobs.running("hostile")
    limit = int((await environment(cluster, api, jobs, "hostile"))["NVIDIA_GPU_MEMORY_LIMIT"])
    said = ""

    async def has_tried_all() -> bool:  # one of its programs may have 100 MiB for a moment, too
        nonlocal said
        said = await logs(api, jobs.namespace, "hostile-1")
        return "== end" in said

    await until(has_tried_all)
    poll(lambda: 100 * MIB in node.programs().values())
    found = dict(part.split("\n", 1) for part in said.split("== ")[1:])
    assert found.keys() == {*ESCAPES, "end"}
    had = {name: taken(found[name]) for name in ESCAPES}
    assert had["takes all"] > limit / 2
    assert max(had.values()) <= limit, had

    entered = taken(cluster.execute(container, "fake-cuda", "unset", "fill"))
    assert 0 < entered <= limit - 100

    assert await jobs.running("neighbour") == neighbour
    assert 900 * MIB in node.programs().values()
    await jobs.submit("late", "alloc:900", memory="1Gi")
    await jobs.reaches("late", "Succeeded")
    await jobs.delete("hostile", "neighbour", "late")


def has_borrowed(server: dict[str, Any]) -> bool:
    """Return whether a job was seen with more than the 1 GiB of its guarantee."""
    usage = server["status"].get("usage") or {}
    peaks = (job.get("peakMemory", "0") for job in usage.get("jobs", {}).values())
    return any(parse_memory(peak) > 1024 * MIB for peak in peaks)


async def test_memory_above_the_guarantee_is_reclaimed_for_the_guarantee_of_another_job(
    node: NodeGPUs, api: Api, carve: Carve
):
    node.install_driver(R615, cuda=13040)
    node.mount_cgroups()
    jobs = await carve(6000, sharing={"enforcement": "Driver", "burst": "Spare"})
    once = (
        "case $HOSTNAME in *-1) exec fake-cuda alloc:4000 forever;; "
        "*) exec fake-cuda alloc:900 compute:500;; esac"
    )
    await jobs.submit_command("borrower", ["sh", "-c", once], memory="1Gi", gpuMemoryLimit="4Gi")
    await jobs.running("borrower")
    poll(lambda: list(node.programs().values()) == [4000 * MIB])
    # The agent takes a sample a second here; memory that it has not seen does not count.
    (server,) = await servers(api)
    await api.until(server_path(server["metadata"]["name"]), has_borrowed)
    await jobs.submit("owner", "alloc:3000", "compute:500", memory="3Gi")
    assert len((await jobs.reaches("owner", "Succeeded"))["attempts"]) == 1
    status = await jobs.reaches("borrower", "Succeeded")
    assert [attempt["outcome"] for attempt in status["attempts"]] == ["Reclaimed", "Succeeded"]
    assert status["attempts"][1]["memory"] == "1Gi"
