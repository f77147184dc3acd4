"""What a Pod waits for that has not started: Kubernetes' own reason, from the Pod alone."""

from datetime import UTC, datetime
from typing import Any

import pytest

from partita.pods.startup import Startup, read_startup

WAITING = {"waiting": {"reason": "PodInitializing"}}
RUNNING = {"running": {"startedAt": "2026-01-01T10:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T10:05:00Z"}}


def pod(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    meta = {"name": "train-1", "namespace": "team-a"}
    return {"metadata": meta, "spec": {"nodeName": "node-1", **(spec or {})}, "status": status}


def container(state: dict[str, Any], name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, **more}


def found(body: dict[str, Any]) -> Startup:
    startup = read_startup(body)
    assert startup is not None
    return startup


@pytest.mark.parametrize("state", [RUNNING, ENDED])
def test_a_pod_whose_program_has_started_waits_for_nothing(state):
    assert read_startup(pod(containerStatuses=[container(state)])) is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_nor_does_one_that_is_over(phase):
    assert read_startup(pod(phase=phase)) is None


@pytest.mark.parametrize(
    ("reason", "message", "says"),
    [
        ("ImagePullBackOff", "Back-off pulling image", "ImagePullBackOff: Back-off pulling image"),
        ("ErrImagePull", "", "ErrImagePull"),
        ("CreateContainerConfigError", 'configmap "a" not found',
         'CreateContainerConfigError: configmap "a" not found'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["initContainerStatuses", "containerStatuses"])
def test_a_container_that_cannot_start_says_why(kind, reason, message, says):
    state = {"waiting": {"reason": reason, "message": message}}
    assert found(pod(**{kind: [container(state)]})) == Startup(
        reason, f"container main cannot start: {says}"
    )


SCHEDULER = [
    (
        {"reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."},
        {},
        Startup("Unschedulable", "no node takes the Pod: 0/1 nodes are available: "
                "1 Insufficient cpu."),
    ),
    (
        {"reason": "SchedulingGated", "message": "Scheduling is blocked"},
        {"schedulingGates": [{"name": "example.org/budget"}]},
        Startup(
            "SchedulingGated",
            "the Pod has scheduling gates (example.org/budget) that have to be removed",
        ),
    ),
    (
        {},
        {"schedulerName": "mine"},
        Startup("NotScheduled", "the scheduler mine has not processed the Pod yet"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("says", "spec", "expected"), SCHEDULER)
def test_a_pod_without_a_node_says_what_the_scheduler_says(says, spec, expected):
    condition = [{"type": "PodScheduled", "status": "False", **says}] if says else []
    assert found(pod({"nodeName": "", **spec}, conditions=condition)) == expected


def test_volumes_that_are_not_mounted_are_named_with_where_to_look():
    """Kubernetes tells which of them is missing in Events alone."""
    sources = [{"configMap": {"name": name}} for name in ("settings", "kube-root-ca.crt")]
    volumes = [
        {"name": "a", "secret": {"secretName": "token"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "projected": {"sources": sources}},
    ]
    conditions = [{"type": "PodReadyToStartContainers", "status": "False"}]
    status = [container({"waiting": {"reason": "ContainerCreating"}})]
    startup = found(pod({"volumes": volumes}, conditions=conditions, containerStatuses=status))
    assert startup.reason == "ContainerCreating"
    assert "Secret token, PersistentVolumeClaim data, ConfigMap settings)" in startup.message
    assert "`kubectl -n team-a events --for pod/train-1`" in startup.message


def test_a_pod_that_kubelet_has_not_taken_says_so():
    assert found(pod()) == Startup(
        "ContainerCreating", "node node-1 has not started a container yet"
    )


def test_a_running_init_container_is_the_program():
    first = [container(ENDED, "fetch"), container(RUNNING, "unpack")]
    startup = found(pod(initContainerStatuses=first, containerStatuses=[container(WAITING)]))
    assert (startup.running, startup.reason) == (True, "PodInitializing")
    assert startup.message == "init container unpack is running"


def test_a_running_sidecar_is_not():
    spec = {"initContainers": [{"name": "log", "restartPolicy": "Always"}]}
    pulling = {"waiting": {"reason": "ImagePullBackOff"}}
    first = [container(RUNNING, "log")]
    startup = found(pod(spec, initContainerStatuses=first, containerStatuses=[container(pulling)]))
    assert (startup.running, startup.reason) == (False, "ImagePullBackOff")


def test_after_the_last_init_container_it_waits_again():
    pulling = container({"waiting": {"reason": "ErrImagePull"}})
    first = [container(ENDED, "fetch")]
    startup = found(pod(initContainerStatuses=first, containerStatuses=[pulling]))
    assert startup.since == datetime(2026, 1, 1, 10, 5, tzinfo=UTC)
    assert (startup.running, startup.reason) == (False, "ErrImagePull")
