"""Pods that a tenant makes itself, in the place of the operator's."""

from __future__ import annotations

from adversary.actions import action
from adversary.attacker import Attacker, Body, pod_body
from support.builders import owner
from support.job import Job, container

METADATA = "`partita-metadata` rejects it"
IDENTITY = f"{METADATA}; the operator knows a Pod by its owner and its recorded UID"
OWNER = f"{METADATA}; a Pod is one of a job only in its namespace"


def _labels(component: str, **more: str) -> Body:
    labels = {"component": component, **more}
    return {f"partita.dev/{key.replace('_', '-')}": value for key, value in labels.items()}


def _as_job(victim: Job, name: str, *, own: bool = False) -> Body:
    """A Pod that says it is an attempt of the victim's job."""
    owners = [owner("SharedGPUJob", victim.name, victim.uid)]
    return pod_body(
        name,
        labels=_labels("job", job=victim.name, attempt="1"),
        annotations={"partita.dev/job-uid": victim.uid, "partita.dev/gpu-memory": "1Mi"},
        **({"ownerReferences": owners} if own else {}),
    )


async def _ends_as(attacker: Attacker, body: Body, *phases: str) -> None:
    """Make a Pod and let its program bring about these phases."""
    await _has_phases(attacker, await attacker.pod(body), *phases)


async def _forged(attacker: Attacker, body: Body, *phases: str) -> None:
    """Make a Pod in the operator's name, and do the same where there is no admission."""
    await _has_phases(attacker, await attacker.forge_pod(body), *phases)


async def _has_phases(attacker: Attacker, pod: Body | None, *phases: str) -> None:
    if pod is None:
        return
    for phase in phases:
        await attacker.cluster.kubelet(pod, phase, code=int(phase == "Failed"))


@action(IDENTITY)
async def pod_labelled_as_the_server_of_a_gpu(attacker: Attacker) -> None:
    """A Pod with the labels of the server Pod of the victims' GPU; it runs, and fails."""
    for gpu in attacker.cluster.gpus:
        name = gpu["metadata"]["name"]
        body = pod_body(f"as-{name}", labels=_labels("server", server=name))
        await _forged(attacker, body, "Running", "Failed")


@action(IDENTITY)
async def pod_named_as_the_server_of_a_gpu(attacker: Attacker) -> None:
    """A Pod with name, labels and owner of the server Pod, in the tenant's own namespace."""
    for gpu in attacker.cluster.gpus:
        meta = gpu["metadata"]
        owners = [owner("GPUServer", meta["name"], meta["uid"])]
        labels = _labels("server", server=meta["name"])
        body = pod_body(meta["name"], labels=labels, ownerReferences=owners)
        await _forged(attacker, body, "Succeeded")


@action(OWNER)
async def pod_that_says_another_job_failed(attacker: Attacker) -> None:
    """A Pod with the UID of a victim's job and the name of its Pod; it fails, and is deleted."""
    for victim in attacker.cluster.running:
        await _forged(attacker, _as_job(victim, f"{victim.name}-1"), "Failed")
        await attacker.api.delete(attacker.path("pods", f"{victim.name}-1"))


@action(OWNER)
async def pod_owned_by_another_namespaces_job(attacker: Attacker) -> None:
    """A Pod with a victim's job as its controller, which is of another namespace."""
    for index, victim in enumerate(attacker.cluster.running):
        await _forged(attacker, _as_job(victim, f"owned-{index}", own=True), "Succeeded")


@action(IDENTITY)
async def pod_with_the_label_of_a_component_put_on_and_off(attacker: Attacker) -> None:
    """An ordinary Pod that becomes a server's and a job's by its labels, and neither again."""
    victim, gpu = attacker.cluster.running[0], attacker.cluster.gpus[0]["metadata"]["name"]
    if await attacker.pod(pod_body("turncoat")) is None:
        return
    for component in ("server", "job", "server", None):
        labels = {
            "partita.dev/component": component,
            "partita.dev/server": gpu,
            "partita.dev/attempt": "1",
        }
        annotations = {"partita.dev/job-uid": victim.uid}
        await attacker.forge_metadata("turncoat", {"labels": labels, "annotations": annotations})


@action(f"{METADATA}; a Pod that cannot be read is not treated as one of the operator's")
async def pod_with_labels_that_cannot_be_read(attacker: Attacker) -> None:
    """Pods whose attempt, memory and job are no numbers, not to be counted, or empty."""
    victim = attacker.cluster.running[0]
    for index, attempt in enumerate(("", "x", "-1", "99999999999999999999", "1.5", "0")):
        body = _as_job(victim, f"strange-{index}")
        body["metadata"]["labels"]["partita.dev/attempt"] = attempt
        body["metadata"]["annotations"]["partita.dev/gpu-memory"] = "1e999"
        await _forged(attacker, body, "Running")


@action(
    "an object has at most 1.5 MiB and its annotations 256 KiB; the operator stores neither of a Pod"
)
async def pod_with_thousands_of_finalizers_and_annotations(attacker: Attacker) -> None:
    """A Pod with 2,000 finalizers and 200 KiB of annotations, which is changed and deleted."""
    victim = attacker.cluster.running[0]
    body = _as_job(victim, "heavy")
    body["metadata"]["finalizers"] = [f"example.org/f{n}" for n in range(2000)]
    body["metadata"]["annotations"]["example.org/text"] = "x" * 200_000
    if await attacker.forge_pod(body) is None:
        del body["metadata"]["labels"]
        body["metadata"]["annotations"] = {"example.org/text": "x" * 200_000}
        assert await attacker.pod(body) is not None
    for number in range(10):
        await attacker.patch_pod("heavy", {"annotations": {"example.org/n": str(number)}})
    await attacker.api.delete(attacker.path("pods", "heavy"))


@action(
    "not prevented, because no policy can see it; `accept-nvidia-visible-devices-envvar-when-unprivileged=false` on the nodes prevents it"
)
async def pod_that_names_a_gpu_by_a_config_map(attacker: Attacker) -> None:
    """A Pod that takes NVIDIA_VISIBLE_DEVICES from a ConfigMap (`envFrom`)."""
    data = {"NVIDIA_VISIBLE_DEVICES": "all"}
    await attacker.api.post(
        attacker.path("configmaps"), {"metadata": {"name": "env"}, "data": data}
    )
    source = [{"configMapRef": {"name": "env"}}]
    body = pod_body("namer", spec={"containers": [container(envFrom=source)]})
    await _ends_as(attacker, body, "Running", "Succeeded")


@action("`partita-gpu-access` rejects it", real=True)
async def pod_that_names_a_gpu_by_a_mount(attacker: Attacker) -> None:
    """A Pod with a volume at `/var/run/nvidia-container-devices/all`."""
    mount = {"name": "d", "mountPath": "/var/run//nvidia-container-devices/all"}
    spec = {"containers": [container(volumeMounts=[mount])]}
    spec["volumes"] = [{"name": "d", "emptyDir": {}}]
    attacker.refused(await attacker.api.post(attacker.path("pods"), pod_body("all", spec=spec)))


@action("`partita-priority` rejects it", real=True)
async def pod_of_partitas_priority(attacker: Attacker) -> None:
    """A Pod with PriorityClass `partita`, which preempts the Pods of others."""
    body = pod_body("urgent", spec={"priorityClassName": "partita"})
    attacker.refused(await attacker.api.post(attacker.path("pods"), body))


@action("not prevented: it holds its slice for two minutes, within its quota")
async def pod_of_a_scheduler_that_nobody_runs(attacker: Attacker) -> None:
    """A Pod with a claim, and with a `schedulerName` that nobody serves."""
    await attacker.claiming_pod("unserved", memory="1Gi", spec={"schedulerName": "nobody"})
    await attacker.claim_of("unserved")


@action("not prevented, see below")
async def config_map_that_keeps_its_owner(attacker: Attacker) -> None:
    """A ConfigMap with a finalizer, whose owner is the partition, with `blockOwnerDeletion`."""
    partition = attacker.cluster.history.get("gpupartitions", attacker.cluster.partition)
    assert partition is not None
    owner = {key: partition[key] for key in ("apiVersion", "kind")}
    owner |= {key: partition["metadata"][key] for key in ("name", "uid")}
    meta = {"name": "keeps", "finalizers": ["example.org/never"]}
    meta["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]
    (await attacker.api.post(attacker.path("configmaps"), {"metadata": meta})).ok()
    path = attacker.path("configmaps", "keeps")
    (await attacker.api.patch(path, {"metadata": {"finalizers": None}})).ok()
    await attacker.api.delete(path)
