"""Jobs and Deployments of Kubernetes, whose Pods are made by controllers of greater rights."""

from __future__ import annotations

from typing import Any

from adversary.actions import action
from adversary.attacker import Attacker, Body, pod_body
from support.operator import container

METADATA = "`partita-metadata` applies to controllers as well as to users"
TEMPLATE = "`partita-gpu-access` applies to controllers as well as to users"


def _workload(kind: str, template: Body) -> Body:
    labels = {"app": "x"}
    template["metadata"] = {
        **template["metadata"],
        "labels": {**template["metadata"].get("labels", {}), **labels},
    }
    template.pop("apiVersion", None)
    template.pop("kind", None)
    template["metadata"].pop("name", None)
    spec: dict[str, Any] = {"template": template}
    if kind == "Deployment":
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "work"},
            "spec": {"selector": {"matchLabels": labels}, **spec},
        }
    template["spec"]["restartPolicy"] = "Never"
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "work"}, "spec": spec}


async def _as_controller(attacker: Attacker, controller: str, owner: Body, body: Body) -> Body:
    """Create a Pod as a controller of Kubernetes does for a tenant; return the answer."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    body["metadata"]["ownerReferences"] = [reference]
    user = f"system:serviceaccount:kube-system:{controller}"
    async with attacker.cluster.acting_as(user) as api:
        answer = await api.post(attacker.path("pods"), body)
    if answer.status < 400:
        attacker.cluster.history.forged.add(answer.body["metadata"]["uid"])
    return {"status": answer.status, "body": answer.body}


async def _labelled(attacker: Attacker, kind: str, controller: str) -> None:
    path = {
        "Job": f"/apis/batch/v1/namespaces/{attacker.namespace}/jobs",
        "Deployment": f"/apis/apps/v1/namespaces/{attacker.namespace}/deployments",
    }[kind]
    for index, gpu in enumerate(attacker.cluster.gpus):
        name = gpu["metadata"]["name"]
        labels = {"partita.dev/component": "server", "partita.dev/server": name}
        pod = pod_body(f"work-{index}", labels=labels)
        workload = _workload(kind, pod_body("work", labels=labels))
        workload["metadata"]["name"] = f"work-{index}"
        answer = await attacker.api.post(path, workload)
        made = await _as_controller(attacker, controller, answer.ok().body, pod)
        assert made["status"] == 403, made
        await attacker.api.delete(f"{path}/work-{index}")


@action(METADATA, real=True)
async def batch_job_whose_pods_are_labelled_as_servers(attacker: Attacker) -> None:
    """A batch/v1 Job whose template has the labels of server Pods; the Job controller makes them."""
    await _labelled(attacker, "Job", "job-controller")


@action(METADATA, real=True)
async def deployment_whose_pods_are_labelled_as_servers(attacker: Attacker) -> None:
    """The same by a Deployment, whose Pods the ReplicaSet controller makes."""
    await _labelled(attacker, "Deployment", "replicaset-controller")


@action(TEMPLATE, real=True)
async def workloads_whose_pods_ask_for_a_slice(attacker: Attacker) -> None:
    """A batch/v1 Job whose Pods name the victims' GPU, or the pipe of its MPS."""
    uuid = attacker.cluster.gpus[0]["status"]["uuid"]
    path = f"/apis/batch/v1/namespaces/{attacker.namespace}/jobs"
    for index, main in enumerate(
        (
            container(env=[{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/run/partita"}]),
            container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": uuid}]),
        )
    ):
        pod = pod_body(f"slice-{index}", spec={"containers": [main]})
        workload = _workload("Job", pod_body("slice", spec={"containers": [main]}))
        workload["metadata"]["name"] = f"slice-{index}"
        answer = (await attacker.api.post(path, workload)).ok()
        made = await _as_controller(attacker, "job-controller", answer.body, pod)
        assert made["status"] == 403, made
        await attacker.api.delete(f"{path}/slice-{index}")


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
