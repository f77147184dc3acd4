"""What the shipped admission policies refuse, in words that help, and what they let pass."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from manifests.accounts import client_of
from manifests.pods import CORE, OWNER, env, job_path, owner_of, pod, refused, submitted
from partita.models import Framework, SharingMode
from partita.pods.job_pod import build_job_pod
from partita.pods.probe_pod import build_probe_pod
from partita.pods.server_pod import ServerPodSettings, build_server_pod
from pods.builders import GOLDEN, an_allocation, read_job
from support.api import Api
from support.builders import a_job, a_partition, a_server
from support.clusters import ApiServer
from support.polling import until

SERVERS = "/apis/partita.dev/v1alpha1/gpuservers"


async def test_an_ordinary_pod_is_nobodys_business(api: Api, enforced: str) -> None:
    whole = pod(env=env("CUDA_VISIBLE_DEVICES"), resources={"limits": {"nvidia.com/gpu": "1"}})
    (await api.post(f"{CORE}/{enforced}/pods", whole, dryRun="All")).ok()


@pytest.mark.parametrize(
    "name", ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_GPU_MEMORY_REQUEST", "CUDA_MPS_PIPE_DIRECTORY"]
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
async def test_a_pod_that_sets_our_variables_is_refused(
    api: Api, enforced: str, name: str, kind: str
) -> None:
    body = pod()
    first = {"name": "first", "image": "example.org/image:1", "env": env(name)}
    body["spec"].setdefault(kind, []).append(first)
    answer = await api.post(f"{CORE}/{enforced}/pods", body, dryRun="All")
    refused(answer, f"{name} is set by Partita alone: leave it out, and submit a SharedGPUJob")


async def test_the_priority_of_partitas_pods_is_theirs_alone(api: Api, enforced: str) -> None:
    body = pod()
    body["spec"]["priorityClassName"] = "partita"
    answer = await api.post(f"{CORE}/{enforced}/pods", body, dryRun="All")
    assert (answer.status, "name another one" in answer.body["message"]) == (403, True)
    (await api.post(f"{CORE}/partita-servers/pods", body, dryRun="All")).ok()


async def test_the_api_server_knows_each_field_of_the_pods_in_golden_files(
    api: Api, operator: Api, enforced: str
) -> None:
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    await api.post("/apis/node.k8s.io/v1/runtimeclasses", runtime)
    batch = {"metadata": {"name": "batch"}, "value": 1}
    await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", batch)
    paths = [*GOLDEN.rglob("pod.yaml"), *GOLDEN.rglob("probe.yaml")]
    assert len(paths) > 30
    refused = []
    for path in paths:
        made = yaml.safe_load(path.read_text())
        where = "partita-servers" if "servers" in path.parts else enforced
        made["metadata"]["namespace"] = where
        made["spec"]["automountServiceAccountToken"] = False
        options = {"dryRun": "All", "fieldValidation": "Strict"}
        answer = await operator.post(f"{CORE}/{where}/pods", made, **options)
        if answer.status != 201:
            refused.append((path.parent.name, answer.body))
    assert not refused


RESTRICTED = "pod-security.kubernetes.io/{}"


@pytest.mark.parametrize("mode", SharingMode)
async def test_pod_security_restricted_takes_the_pod_of_a_job_whose_template_it_takes(
    mode: SharingMode, api: Api, operator: Api, enforced: str
) -> None:
    level = {"metadata": {"labels": {RESTRICTED.format("enforce"): "restricted"}}}
    (await api.patch(f"{CORE}/{enforced}", level)).ok()
    template = {"spec": read_job(GOLDEN / "restricted").spec.template.unpack().spec}
    for framework in Framework:
        for injection in ("Auto", "CDI"):
            job = a_job(namespace=enforced, template=template, framework=framework)
            allocation = an_allocation(mode=mode, device_injection=injection, yields=True)
            made = build_job_pod(job, allocation).manifest
            made["spec"]["automountServiceAccountToken"] = False
            (await operator.post(f"{CORE}/{enforced}/pods", made, dryRun="All")).ok()


async def test_pod_security_restricted_takes_the_probe_pod(
    api: Api, operator: Api, enforced: str
) -> None:
    level = {"metadata": {"labels": {RESTRICTED.format("warn"): "restricted"}}}
    (await api.patch(f"{CORE}/partita-servers", level)).ok()
    settings = ServerPodSettings("partita-servers", "partita:0.1.0", "partita-agent")
    path = f"{CORE}/partita-servers/pods"

    async def warned(build: Any) -> bool:
        made = build(a_server(), a_partition(), settings)
        return "Warning" in (await operator.post(path, made, dryRun="All")).ok().headers

    await until(lambda: warned(build_server_pod))  # labels are read from a cache
    assert not await warned(build_probe_pod)


async def test_a_container_for_debugging_does_not_reach_the_gpu(api: Api, enforced: str) -> None:
    path = f"{CORE}/{enforced}/pods"
    (await api.post(path, pod("debugged"))).ok()
    debugger = {"name": "debugger", "image": "example.org/image:1"}
    change = {"spec": {"ephemeralContainers": [debugger | {"env": env("NVIDIA_VISIBLE_DEVICES")}]}}
    answer = await api.patch(f"{path}/debugged/ephemeralcontainers", change, dryRun="All")
    refused(answer, "NVIDIA_VISIBLE_DEVICES is set by Partita alone")
    change = {"spec": {"ephemeralContainers": [debugger]}}
    (await api.patch(f"{path}/debugged/ephemeralcontainers", change)).ok()


async def test_nvidias_own_pods_pass(api: Api, enforced: str) -> None:
    name = "gpu-operator"
    meta = {"name": name}
    await api.post(CORE, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    body = pod(env=env("NVIDIA_VISIBLE_DEVICES"))
    (await api.post(f"{CORE}/{name}/pods", body, dryRun="All")).ok()


async def test_a_label_of_the_namespace_lets_others_pass(api: Api, enforced: str) -> None:
    labels = {"partita.dev/gpu-access": "unrestricted"}
    (await api.patch(f"{CORE}/{enforced}", {"metadata": {"labels": labels}})).ok()
    body = pod(env=env("NVIDIA_VISIBLE_DEVICES"))

    async def is_admitted() -> bool:
        return (await api.post(f"{CORE}/{enforced}/pods", body, dryRun="All")).status != 403

    await until(is_admitted)


@pytest.fixture
async def agent(api_server: ApiServer, api: Api, enforced: str) -> AsyncIterator[Api]:
    """A client with the token that the agent's Pod `gpus-0` has."""
    body = pod("gpus-0")
    body["spec"]["serviceAccountName"] = "partita-agent"
    made = (await api.post(f"{CORE}/partita-servers/pods", body)).ok().body
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "gpus-0", "uid": made["metadata"]["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound},
    }
    path = f"{CORE}/partita-servers/serviceaccounts/partita-agent/token"
    token = (await api.post(path, request)).ok().body["status"]["token"]
    for name in ("gpus-0", "gpus-1"):
        server = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "GPUServer",
            "metadata": {"name": name},
            "spec": {"partition": "gpus", "mode": "MPS", "maxJobs": 4},
        }
        (await api.post(SERVERS, server)).ok()
    async with client_of(token) as session:
        yield api_server.api(session)
    for name in ("gpus-0", "gpus-1"):
        (await api.delete(f"{SERVERS}/{name}")).ok()
    options = {"gracePeriodSeconds": 0}
    (await api.delete(f"{CORE}/partita-servers/pods/gpus-0", options)).ok()


ALLOCATION = {
    "namespace": "team",
    "name": "job-1.partita.dev",
    "job": "job",
    "jobUID": "uid-of-the-job",
    "pod": "job-1",
    "podUID": "uid-of-the-pod",
    "memory": "1Gi",
    "since": "2026-01-01T00:00:00Z",
}


async def test_an_agent_reports_of_its_own_gpu_alone(agent: Api) -> None:
    report = {"status": {"node": "node-a"}}
    (await agent.patch(f"{SERVERS}/gpus-0/status", report)).ok()
    answer = await agent.patch(f"{SERVERS}/gpus-1/status", report)
    refused(answer, "an agent reports of the GPUServer of its own Pod alone")


async def test_an_agent_reports_beside_allocations_but_changes_none(agent: Api, api: Api) -> None:
    path = f"{SERVERS}/gpus-0/status"
    (await api.patch(path, {"status": {"allocations": {"uid": ALLOCATION}}})).ok()
    (await agent.patch(path, {"status": {"node": "node-b"}})).ok()
    for running in ({"uid": None}, {"other": ALLOCATION}):
        answer = await agent.patch(path, {"status": {"allocations": running}})
        refused(answer, "an agent does not change the allocations of a GPU")


async def test_an_agent_does_not_say_which_pod_serves_its_gpu(agent: Api, api: Api) -> None:
    path = f"{SERVERS}/gpus-0/status"
    (await api.patch(path, {"status": {"podUID": "of-the-operator"}})).ok()
    for uid in ("another", None):
        answer = await agent.patch(path, {"status": {"podUID": uid}})
        refused(answer, "an agent does not change which Pod serves a GPU")


async def test_only_the_operator_makes_pods_of_a_job(
    api: Api, operator: Api, enforced: str
) -> None:
    path = f"{CORE}/{enforced}/pods"
    owned = pod("job-2")
    owned["metadata"]["ownerReferences"] = [owner_of(await submitted(api, enforced))]
    answer = await api.post(path, owned, dryRun="All")
    refused(answer, "only Partita's operator makes Pods that belong to a SharedGPUJob")
    (await operator.post(path, owned)).ok()
    change = {"metadata": {"ownerReferences": None}}
    assert (await api.patch(f"{path}/job-2", change, dryRun="All")).status == 403
    change = {"metadata": {"labels": {"team": "a"}}}
    (await api.patch(f"{path}/job-2", change, dryRun="All")).ok()
    (await operator.delete(f"{path}/job-2")).ok()


async def test_the_operator_makes_and_deletes_no_other_pods(
    api: Api, operator: Api, enforced: str
) -> None:
    path = f"{CORE}/{enforced}/pods"
    said = "the operator creates and deletes only Pods of jobs and of GPUServers"
    answer = await operator.post(path, pod("any"), dryRun="All")
    refused(answer, said)
    served = pod("served")
    served["metadata"]["ownerReferences"] = [OWNER | {"kind": "GPUServer"}]
    assert (await operator.post(path, served, dryRun="All")).status == 403
    (await api.post(path, pod("users"))).ok()
    answer = await operator.delete(f"{path}/users")
    refused(answer, said)


async def test_who_may_not_create_pods_may_not_write_a_jobs_template(
    api: Api, api_server: ApiServer, enforced: str
) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{enforced}"
    (await api.post(f"{CORE}/{enforced}/serviceaccounts", {"metadata": {"name": "user"}})).ok()
    rules = [{"apiGroups": ["partita.dev"], "resources": ["sharedgpujobs"], "verbs": ["*"]}]
    (await api.post(f"{rbac}/roles", {"metadata": {"name": "jobs"}, "rules": rules})).ok()
    binding = {
        "metadata": {"name": "jobs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jobs"},
        "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": enforced}],
    }
    (await api.post(f"{rbac}/rolebindings", binding)).ok()
    token = await api.post(f"{CORE}/{enforced}/serviceaccounts/user/token", {"spec": {}})
    path = f"/apis/partita.dev/v1alpha1/namespaces/{enforced}/sharedgpujobs"
    job = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": "train"},
        "spec": {"partition": "gpus", "template": {"spec": pod()["spec"]}},
    }
    async with client_of(token.ok().body["status"]["token"]) as session:
        user = api_server.api(session)
        await user.until(path, lambda _: True)  # the authorizer reads new bindings after a moment
        answer = await user.post(path, copy.deepcopy(job), dryRun="All")
        refused(answer, f"may not create Pods in namespace {enforced}")
        (await api.post(path, copy.deepcopy(job))).ok()
        (await user.patch(f"{path}/train", {"spec": {"suspend": True}})).ok()
        account = {"spec": {"template": {"spec": {"serviceAccountName": "admin"}}}}
        assert (await user.patch(f"{path}/train", account)).status == 403
        rules.append({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]})
        (await api.patch(f"{rbac}/roles/jobs", {"rules": rules})).ok()

        async def is_permitted() -> bool:
            return (await user.patch(f"{path}/train", account)).status != 403

        await until(is_permitted)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_the_program_of_a_finished_job_changes_only_with_a_retry_of_a_failed_one(
    api: Api, enforced: str, phase: str
) -> None:
    await submitted(api, enforced)
    path = job_path(enforced)
    (await api.patch(f"{path}/status", {"status": {"phase": phase, "retry": "1"}})).ok()
    changed = {"spec": {"template": {"spec": {"serviceAccountName": "other"}}}}
    refused(await api.patch(path, changed), "submit a job of another name")
    assert (await api.patch(path, {"spec": {"gpuMemory": "9Gi"}})).status in {403, 422}
    (await api.patch(path, {"spec": {"priority": -7}})).ok()
    changed |= {"metadata": {"annotations": {"partita.dev/retry": "2"}}}
    assert (await api.patch(path, changed)).status == (200 if phase == "Failed" else 403)


async def test_a_job_that_runs_can_be_debugged(api: Api, operator: Api, enforced: str) -> None:
    path = f"{CORE}/{enforced}/pods"
    body = pod("job-1", env=env("NVIDIA_VISIBLE_DEVICES"))
    body["metadata"]["ownerReferences"] = [owner_of(await submitted(api, enforced))]
    (await operator.post(path, body)).ok()
    debugger = {"name": "debugger", "image": "example.org/image:1"}
    change = {"spec": {"ephemeralContainers": [debugger]}}
    (await api.patch(f"{path}/job-1/ephemeralcontainers", change)).ok()
