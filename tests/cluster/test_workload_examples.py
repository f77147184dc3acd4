"""The examples of workloads, by both spellings, on a true kubelet and containerd."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cluster.cluster import Cluster
from cluster.containers import LOOK_AROUND, check_inside
from cluster.gpus import NodeGPUs
from cluster.images import ROOT
from cluster.jobs import Jobs
from cluster.pods import logs
from cluster.workload_examples import TEMPLATE, workload
from cluster.workloads import Workloads, nothing_left
from gpu.fake import MIB
from support.api import Api
from support.kubectl import Kubectl
from support.polling import poll, until

LIMITS = str(ROOT / "manifests" / "limits")

RUNNABLE = {"pod": 1, "deployment": 2, "statefulset": 1, "job": 1, "notebook": 1}
"""Those that need no other operator, and the number of their Pods."""

SIX_GIB, HALF = 6144, 50
"""The MiB and the percentage of threads for which they ask."""

PROGRAM = f"{LOOK_AROUND}; exec fake-cuda try:6500 alloc:900 forever"
"""It tries to take more than its slice, and goes on with less."""

PYTORCH = "PYTORCH_ALLOC_CONF"


@pytest.fixture
async def limits(workloads: Workloads, api: Api, kubectl: Kubectl) -> AsyncIterator[None]:
    """The API server replaces limits by claims."""
    (await kubectl("apply", "-k", LIMITS)).ok()
    pod = workload("notebook", ["true"])["spec"]["template"]
    pod["metadata"]["name"] = "tried"

    async def replaces() -> bool:
        answer = await api.post(workloads.path("Pod"), pod, dryRun="All")
        return "resourceClaims" in answer.body.get("spec", {})

    await until(replaces)
    yield
    (await kubectl("delete", "-k", LIMITS)).ok()


@pytest.mark.smoke
async def test_each_gets_its_slice_sees_it_alone_and_is_held_to_it(
    cluster: Cluster, gpus: NodeGPUs, api: Api, jobs: Jobs, workloads: Workloads, limits: None
):
    """A SharedGPUJob runs beside them."""
    await jobs.submit("beside", "alloc:900", "forever", memory="1Gi")
    (await workloads.create(TEMPLATE)).ok()
    for name in RUNNABLE:
        (await workloads.create(workload(name, ["sh", "-c", PROGRAM]))).ok()
    await jobs.running("beside")
    pods = await workloads.running_pods(sum(RUNNABLE.values()))
    everybody = [900 * MIB] * (len(pods) + 1)
    poll(lambda: sorted(gpus.programs().values()) == everybody, what="all compute")
    for pod in pods:
        (config,) = (await workloads.claim_of(pod))["status"]["allocation"]["devices"]["config"]
        uuid = config["opaque"]["parameters"]["gpu"]
        said = await logs(api, workloads.namespace, pod["metadata"]["name"])
        assert "refused: out of memory" in said
        variables = check_inside(said, uuid=uuid, mebibytes=SIX_GIB, threads=HALF)
        is_deployment = pod["metadata"]["name"].startswith("serve-")
        assert variables.keys() == ({PYTORCH} if is_deployment else set())
    for name in RUNNABLE:
        await workloads.remove(workload(name, []))
    await jobs.delete("beside")
    await nothing_left(cluster, api, workloads.namespace)
