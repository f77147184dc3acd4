"""Jobs of Kubernetes, whose Pods are made by controllers of greater rights."""

from __future__ import annotations

from adversary.actions import action
from adversary.attacker import Attacker, env_pod

TEMPLATE = "`partita-gpu-access` applies to controllers as well as to users"


@action(TEMPLATE, real=True)
async def workloads_whose_pods_ask_for_a_slice(attacker: Attacker) -> None:
    """A batch/v1 Job whose Pods name the victims' GPU, or the pipe of its MPS."""
    uuid = attacker.cluster.gpus[0]["status"]["uuid"]
    path = f"/apis/batch/v1/namespaces/{attacker.namespace}/jobs"
    controller = "system:serviceaccount:kube-system:job-controller"
    for name, value in (
        ("CUDA_MPS_PIPE_DIRECTORY", "/run/partita"),
        ("NVIDIA_VISIBLE_DEVICES", uuid),
    ):
        pod = env_pod("slice", **{name: value})
        template = {"spec": pod["spec"] | {"restartPolicy": "Never"}}
        job = {"metadata": {"name": "slice"}, "spec": {"template": template}}
        (await attacker.api.post(path, job)).ok()
        async with attacker.cluster.acting_as(controller) as api:
            attacker.refused(await api.post(attacker.path("pods"), pod))
        await attacker.api.delete(f"{path}/slice")


@action("`partita-metadata` rejects it; the Pod of a job has no other controller than the operator")
async def workload_that_adopts_a_jobs_pod(attacker: Attacker) -> None:
    """A ReplicaSet's reference beside the job's on the Pod of a job that runs."""
    job = await attacker.runs("hog")
    own = (job.pod() or {})["metadata"]["ownerReferences"][0]
    other = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "no-such-uid"}
    await attacker.forge_metadata(
        "hog-1", {"ownerReferences": [own | {"controller": False}, other]}
    )
    await attacker.patch_pod("hog-1", {"labels": {"app": "x"}})
