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
    for number, (name, value) in enumerate(
        (("CUDA_MPS_PIPE_DIRECTORY", "/run/partita"), ("NVIDIA_VISIBLE_DEVICES", uuid))
    ):
        job = f"slice-{number}"
        pod = env_pod(job, **{name: value})
        template = {"spec": pod["spec"] | {"restartPolicy": "Never"}}
        body = {"metadata": {"name": job}, "spec": {"template": template}}
        (await attacker.api.post(path, body)).ok()
        async with attacker.cluster.acting_as(controller) as api:
            attacker.refused(await api.post(attacker.path("pods"), pod))
        await attacker.api.delete(f"{path}/{job}")
