"""SharedGPUJobs that a tenant writes."""

from __future__ import annotations

import asyncio

from adversary.actions import action
from adversary.attacker import LONG, Attacker
from support.job import Job, container

BOUNDS = "the bounds in the CRD reject it, or the status of the job says what is invalid"
SECURITY = (
    "Pod Security and the quotas of the namespace apply to the Pod of a job as to any other Pod"
)
RENEWED = "attempts, allocations and Pods refer to the UID of a job and not to its name"


async def _waits(job: Job) -> str:
    """Wait until it says why it does not run; return the reason."""
    status = await job.until(lambda s: s.get("reason") and s.get("phase") == "Queued")
    return str(status["reason"])


@action("`allowedNamespaces` of the partition")
async def job_of_a_partition_of_others(attacker: Attacker) -> None:
    """Jobs in partitions that serve others alone, that do not exist, and of strange names."""
    cluster = attacker.cluster
    job = await attacker.job("intruder", partition=cluster.closed, gpuMemory="1Gi")
    assert await _waits(job) == "NamespaceNotAllowed"
    for index, name in enumerate(("nope", "../gpuservers", "a" * 63, "gpus/../x", "\u00fc")):
        await attacker.submit(f"lost-{index}", partition=name, gpuMemory="1Gi")


@action(
    "the allocation of a running job does not change; a suspended job is reconciled with its new spec"
)
async def job_moved_to_a_partition_of_others(attacker: Attacker) -> None:
    """A job that is changed to another partition while it runs, and while it is suspended."""
    job = await attacker.runs("mover")
    assert (await attacker.api.patch(job.path, {"spec": {"partition": "x"}})).status == 422
    await attacker.api.patch(job.path, {"spec": {"suspend": True}})
    await job.phase("Suspended")
    change = {"spec": {"partition": attacker.cluster.closed, "suspend": False}}
    await attacker.api.patch(job.path, change)
    await job.waits("NamespaceNotAllowed")


@action("`maxPriority` of partition and quota (default 0)")
async def job_of_the_highest_priority(attacker: Attacker) -> None:
    """A job of priority 1,000,000 that fits only where a victim's job runs."""
    answer = await attacker.submit("first", gpuMemory="20Gi", priority=1_000_000, sim=LONG)
    if answer.status == 201:
        await Job(attacker.cluster.system, attacker.namespace, "first", "").until(
            lambda s: s.get("phase")
        )


@action("the quotas of the partition")
async def more_jobs_than_the_quota_has(attacker: Attacker) -> None:
    """Forty jobs at once, of ten that the namespace may run."""
    await asyncio.gather(*(attacker.job(f"many-{n}", gpuMemory="1Gi", sim=LONG) for n in range(40)))
    history = attacker.cluster.history

    def running() -> int:  # a Pod that was created late waits beside them
        pods = history.all("pods", attacker.namespace)
        return [pod["status"].get("phase") for pod in pods].count("Running")

    await history.until(lambda: running() == 10)


@action(BOUNDS)
async def job_of_extreme_numbers(attacker: Attacker) -> None:
    """Amounts, times and numbers at and beyond what can be counted."""
    for index, spec in enumerate(
        (
            {"gpuMemory": "7Ei"},
            {"gpuMemory": "8Ei"},
            {"gpuMemory": "99999999999Ei"},
            {"gpuMemory": "1e30"},
            {"gpuMemory": "1n"},
            {"gpuMemory": 9223372036854775807},
            {"gpuMemory": "1Gi", "activeDeadlineSeconds": 999999999999},
            {"gpuMemory": "1Gi", "activeDeadlineSeconds": 9223372036854775807},
            {"gpuMemory": "1Gi", "ttlSecondsAfterFinished": 9223372036854775807},
            {"gpuMemory": "1Gi", "expectedDuration": "9999999h9999999h9999999h9999999h"},
            {"gpuMemory": "1Gi", "processes": 48},
            {"gpus": 64},
            {"gpuMemory": "1Gi", "retry": {"limit": 100, "outOfMemory": {"limit": 100}}},
        )
    ):
        await attacker.submit(f"extreme-{index}", **spec)


@action(SECURITY, real=True)
async def template_that_reaches_the_node(attacker: Attacker) -> None:
    """Jobs whose templates ask for the node's files, processes or privileges."""
    volume = {"name": "pipes", "hostPath": {"path": "/run/partita"}}
    specs = (
        {"volumes": [volume]},
        {"hostPID": True},
        {"hostIPC": True},
        {"containers": [container(securityContext={"privileged": True})]},
    )
    jobs = []
    for index, spec in enumerate(specs):
        containers = spec.pop("containers", None)
        job = await attacker.job(
            f"reaches-{index}", gpuMemory="1Gi", pod=spec, containers=containers
        )
        jobs.append(job)
    for job in jobs:
        await job.until(lambda s: s.get("reason") == "PodForbidden")
        assert job.pod() is None


@action(
    "of the metadata of a template, only labels and annotations are used, except those that begin with partita.dev/"
)
async def template_with_metadata_of_its_own(attacker: Attacker) -> None:
    """A template with another name, namespace, owner, finalizers, and labels of a server Pod."""
    cluster, victim = attacker.cluster, attacker.cluster.running[0]
    server = cluster.gpus[0]["metadata"]["name"]
    meta = {
        "name": f"{victim.name}-1",
        "namespace": victim.namespace,
        "finalizers": ["example.org/stays"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}],
        "labels": {"partita.dev/component": "server", "partita.dev/server": server},
        "annotations": {"partita.dev/job-uid": victim.uid, "partita.dev/gpu-memory": "1"},
    }
    template = {"metadata": meta, "spec": {"containers": [container()]}}
    answer = await attacker.submit("elsewhere", gpuMemory="1Gi", template=template)
    if answer.status != 201:
        return
    job = Job(cluster.system, attacker.namespace, "elsewhere", answer.body["metadata"]["uid"])
    await job.until(lambda s: s.get("phase") in {"Succeeded", "Running"} or s.get("reason"))
    for pod in cluster.history.versions("pods", "elsewhere-1", attacker.namespace)[:1]:
        assert pod["metadata"].get("finalizers") is None
        assert [o["uid"] for o in pod["metadata"]["ownerReferences"]] == [job.uid]
        assert "partita.dev/server" not in pod["metadata"]["labels"]
        assert pod["metadata"]["annotations"]["partita.dev/job-uid"] == job.uid


@action("an object has at most 1.5 MiB; the operator creates no Pod that the API server rejects")
async def template_of_extreme_size(attacker: Attacker) -> None:
    """Templates with a megabyte of arguments, 5,000 variables, 16 containers, and 3,000 volumes."""
    many = [{"name": f"V{n}", "value": str(n)} for n in range(5000)]
    crowd = [container(f"c{n}") for n in range(16)]
    for index, spec in enumerate(
        (
            {"containers": [container(args=["x" * 1_000_000])]},
            {"containers": [container(env=many)]},
            {"containers": crowd},
            {"pod": {"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(3000)]}},
        )
    ):
        await attacker.submit(f"large-{index}", gpuMemory="256Mi", **spec)


@action("the template is validated, and the status of the job says what is invalid")
async def template_of_strange_types(attacker: Attacker) -> None:
    """Templates in which lists are texts, texts are numbers, and names are empty."""
    for index, spec in enumerate(
        (
            {"initContainers": "none"},
            {"initContainers": [None]},
            {"initContainers": [{"name": "x", "image": "i", "env": {"a": "b"}}]},
            {"initContainers": [{"name": "x", "image": "i", "resources": []}]},
            {"initContainers": [{"name": "x", "image": "i", "restartPolicy": {}}]},
            {"tolerations": "all"},
            {"volumes": {"a": 1}},
            {"affinity": []},
            {"runtimeClassName": 7},
            {"restartPolicy": ["Always"]},
            {"securityContext": "root"},
            {"priorityClassName": "system-node-critical", "priority": "high"},
            {"resources": {"requests": {"cpu": "lots"}}},
            {"nodeSelector": ["a"]},
            {"overhead": {"cpu": -1}},
        )
    ):
        await attacker.submit(f"strange-{index}", gpuMemory="256Mi", pod=spec)
    for index, main in enumerate(
        (
            container(env=[{"name": "A", "value": 5}]),
            container(env=[{"name": 5}]),
            container(env=[None]),
            container(resources={"requests": {"cpu": {}}}),
            container(resources={"limits": {"memory": "1e999", "cpu": "NaN"}}),
            container(ports="80"),
        )
    ):
        await attacker.submit(f"odd-{index}", gpuMemory="256Mi", containers=[main])


@action(RENEWED)
async def deleted_and_made_again_under_its_name(attacker: Attacker) -> None:
    """A job that is deleted, and made anew under its name with another template, ten times."""
    for number in range(10):
        await attacker.cluster.history.until(
            lambda: (
                attacker.cluster.history.get("sharedgpujobs", "phoenix", attacker.namespace) is None
            )
        )
        job = await attacker.job(
            "phoenix", gpuMemory=f"{1 + number}Gi", sim=LONG, application=f"app-{number}"
        )
        if number % 3 == 0:
            await job.until(lambda s: s.get("phase") == "Running")
        await job.delete()


@action("it keeps its own allocation until it is deleted, within its quota")
async def job_that_cannot_be_deleted(attacker: Attacker) -> None:
    """A job with 1,000 finalizers that is deleted while it runs, and changed after that."""
    meta = {"finalizers": [f"example.org/f{n}" for n in range(1000)]}
    job = await attacker.job("undead", gpuMemory="4Gi", meta=meta, sim=LONG)
    await job.runs()
    await job.delete()
    for number in range(5):
        labels = {"n": str(number)}
        await attacker.api.patch(job.path, {"metadata": {"labels": labels}})


@action("profiles of a namespace affect only jobs in that namespace")
async def profile_that_is_poisoned(attacker: Attacker) -> None:
    """Histories of extreme values under the names of the victims' applications."""
    step = {"gpuUtilization": 100, "gpuMemory": "7Ei"}
    for index, application in enumerate(("train", "serve", "<b>", "x" * 63)):
        spec = {
            "application": application,
            "measurements": [
                {
                    "environment": {"product": "NVIDIA A100-SXM4-40GB"},
                    "duration": 1e300,
                    "runs": 2**31,
                    "steps": [step] * 100,
                }
            ],
        }
        body = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "ApplicationProfile",
            "metadata": {"name": f"poison-{index}"},
            "spec": spec,
        }
        path = f"/apis/partita.dev/v1alpha1/namespaces/{attacker.namespace}/applicationprofiles"
        answer = await attacker.api.post(path, body)
        if attacker.cluster.real:
            attacker.refused(answer)
        await attacker.submit(f"learnt-{index}", application=application)
