"""The Pod that shows whether the container toolkit applies memory limits."""

import pytest

from partita.models import GPUPartition, GPUServer
from partita.pods.job_pod import build_job_pod
from partita.pods.probe_pod import build_probe_pod, probe_failure, probe_variables
from partita.pods.server_pod import ServerPodSettings
from pods.builders import UUID, a_job, an_allocation, claimed_variables, containers_of

SETTINGS = ServerPodSettings("partita-servers", "partita:1", "partita-agent")
HOOK = "error running createRuntime hook #1: failed to set memory limits for gpu"


def build(**spec) -> dict:
    server = {
        "metadata": {"name": "a100-0", "uid": "u-1"},
        "spec": {"partition": "a100"},
        "status": {"node": "node-1", "uuid": UUID, "memory": "40Gi"},
    }
    partition = {"metadata": {"name": "a100"}, "spec": {"gpus": 1, **spec}}
    return build_probe_pod(GPUServer.parse(server), GPUPartition.parse(partition), SETTINGS)


def pod(phase: str = "Pending", *, reason: str = "", **state) -> dict:
    status = {"phase": phase, "containerStatuses": [{"name": "probe", "state": state}]}
    return {"status": {**status, **({"reason": reason} if reason else {})}}


@pytest.mark.parametrize("injection", ["Auto", "CDI", "RuntimeClass"])
def test_it_gets_its_gpu_and_its_limits_as_the_pod_of_a_job_does(injection):
    probe = build(deviceInjection=injection)
    allocation = an_allocation(memory=1 << 20, driver_limits=True, device_injection=injection)
    job = build_job_pod(a_job(), allocation).manifest
    (ours,), (theirs,) = containers_of(probe), containers_of(job)
    assert ours["resources"] == theirs["resources"]
    variables = probe_variables(UUID, 40 << 30)
    limits = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"}
    assert variables.keys() == limits
    assert variables.items() <= claimed_variables(a_job(), allocation).items()
    for field in ("runtimeClassName", "restartPolicy", "tolerations"):
        assert probe["spec"].get(field) == job["spec"].get(field)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (pod(waiting={"reason": "CreateContainerError", "message": HOOK}), HOOK),
        (pod(waiting={"reason": "RunContainerError", "message": HOOK}), HOOK),
        (pod("Failed", terminated={"reason": "StartError", "exitCode": 128, "message": HOOK}),
         HOOK),
        (pod("Failed", terminated={"reason": "Error", "exitCode": 2}), "exit code 2"),
    ],
)  # fmt: skip
def test_a_container_that_cannot_be_created_is_a_failure_with_its_cause(body, why):
    assert why in probe_failure(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        pod(),
        pod(waiting={"reason": "ContainerCreating"}),
        pod(waiting={"reason": "ImagePullBackOff"}),
        pod("Running", running={}),
        pod("Failed", reason="DeadlineExceeded", terminated={"exitCode": 137}),
        pod("Failed", reason="Evicted"),
        pod("Succeeded", terminated={"exitCode": 0}),
    ],
)
def test_one_that_has_shown_nothing_is_no_failure(body):
    assert probe_failure(body) == ""
