"""From YAML to jobs that share GPUs, on a true kubelet; only the GPUs are fake.

The tests stand in the order of a cluster's life, but each can run alone.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from cluster.cluster import Cluster
from cluster.containers import LOOK_AROUND, check_inside
from cluster.gpus import NodeGPUs
from cluster.jobs import SERVERS, SYSTEM, Jobs, all_ready, kill_container, server_path
from cluster.pods import logs
from gpu.fake import MIB
from support.api import Api
from support.polling import poll

MOMENTS = ("queuedTime", "bookedTime", "startTime", "firstUseTime")
"""Of an attempt."""


@pytest.mark.smoke
async def test_three_jobs_share_a_gpu_and_each_sees_what_is_its_own_and_no_more(
    gpus: NodeGPUs, api: Api, jobs: Jobs
):
    script = f"{LOOK_AROUND}; fake-cuda alloc:900 compute:30000"
    names = ["one", "two", "three"]
    for number, name in enumerate(names, start=1):
        await jobs.submit_command(
            name, ["sh", "-c", script], memory=f"{number}Gi", threadPercent=10 * number
        )
    poll(lambda: sorted(map(len, (gpus.pids(0), gpus.pids(1)))) == [0, 3], what="they share one")
    for number, name in enumerate(names, start=1):
        status = await jobs.reaches(name, "Succeeded")
        (attempt,) = status["attempts"]
        times = [datetime.fromisoformat(attempt[moment]) for moment in MOMENTS]
        assert times == sorted(times), "what its container cost before its program began"
        (uuid,) = attempt["gpus"]
        said = await logs(api, jobs.namespace, f"{name}-1")
        assert not check_inside(said, uuid=uuid, mebibytes=1024 * number, threads=10 * number)


@pytest.mark.smoke
async def test_one_that_takes_off_its_limit_is_stopped_and_its_neighbours_are_not(
    gpus: NodeGPUs, api: Api, jobs: Jobs
):
    await jobs.submit("neighbour", "alloc:900", "forever", memory="1Gi")
    container = await jobs.running("neighbour")
    poll(lambda: clients(gpus) == 1)
    retry = {"limit": 0, "outOfMemory": {"limit": 0}}
    await jobs.submit("thief", "unset", "alloc:2048", "forever", memory="1Gi", retry=retry)
    status = await jobs.reaches("thief", "Failed")
    assert status["reason"] == "OutOfMemory"
    assert status["attempts"][0]["outcome"] == "OutOfMemory"
    assert "terminated" in status["attempts"][0]["message"]
    assert await jobs.running("neighbour") == container
    assert [memory for _, memory in uses(gpus)] == [900 * MIB]
    at = f"/apis/events.k8s.io/v1/namespaces/{jobs.namespace}/events"
    of = "thief", "AboveAllocation"  # its job's Event says what happened
    await api.until(at, lambda f: of in [(e["regarding"]["name"], e["reason"]) for e in f["items"]])


def uses(gpus: NodeGPUs) -> list[tuple[int, int]]:
    """Return the PIDs of programs on the GPUs, and how much memory each has."""
    return [use for gpu in range(2) for use in gpus.pids(gpu).items()]


def clients(gpus: NodeGPUs) -> int:
    """Return how many programs use the GPUs, by the driver's count."""
    return len(uses(gpus))


async def test_a_fault_of_mps_costs_no_job_more_than_its_place(
    gpus: NodeGPUs, api: Api, jobs: Jobs
):
    """Both GPUs are in use; the fault is one of the GPU that the faulty job is on."""
    await jobs.submit("elsewhere", "alloc:100", "forever", memory="36Gi")
    elsewhere = await jobs.running("elsewhere")
    await jobs.submit("beside", "alloc:900", "forever", memory="4Gi")
    await jobs.running("beside")
    poll(lambda: clients(gpus) == 2)
    once = "case $HOSTNAME in *-1) fake-cuda alloc:9 fault;; *) fake-cuda alloc:9;; esac"
    await jobs.submit_command("faulty", ["sh", "-c", once], memory="4Gi")
    await jobs.reaches("faulty", "Succeeded")
    await jobs.running("beside", attempt=2)
    status = await jobs.reaches("beside", "Running")
    assert status["attempts"][0]["outcome"] == "GPUFault", "it has not failed"
    assert await jobs.running("elsewhere") == elsewhere
    await api.until(server_path(), all_ready(2))


@pytest.mark.parametrize("what", ["kubelet", "containerd", "agent", "operator"])
async def test_jobs_live_on_when_something_is_started_anew(
    what: str, cluster: Cluster, gpus: NodeGPUs, api: Api, jobs: Jobs
):
    await jobs.submit("lasting", "alloc:900", "forever", memory="1Gi")
    container = await jobs.running("lasting")
    poll(lambda: clients(gpus) == 1)
    (pid,) = [*gpus.pids(0), *gpus.pids(1)]
    if what in {"kubelet", "containerd"}:
        cluster.restart(what)
    else:
        await kill_container(cluster, api, SYSTEM if what == "operator" else SERVERS, what)
    await jobs.submit("next", "alloc:900", "compute:200", memory="1Gi")
    await jobs.reaches("next", "Succeeded")
    assert await jobs.running("lasting") == container
    assert pid in {*gpus.pids(0), *gpus.pids(1)}
    await api.until(server_path(), all_ready(2))


@pytest.mark.smoke
async def test_nothing_is_left_of_a_partition_that_is_deleted(
    cluster: Cluster, gpus: NodeGPUs, api: Api, jobs: Jobs
):
    await jobs.submit("last", "alloc:900", "forever", memory="1Gi")
    await jobs.running("last")
    await jobs.delete("last")
    await api.delete("/apis/partita.dev/v1alpha1/gpupartitions/shared")
    await api.until(server_path(), lambda found: not found["items"])
    await api.until(
        f"/api/v1/namespaces/{SERVERS}/pods",
        lambda pods: (
            not [pod for pod in pods["items"] if "partita.dev/server" in pod["metadata"]["labels"]]
        ),
    )
    assert [gpus.mode(0), gpus.mode(1)] == [0, 0]
    assert clients(gpus) == 0
    assert list((cluster.run / "partita").rglob("*")) == []
    assert "/run/partita" not in cluster.node.run("cat", "/proc/self/mountinfo")
