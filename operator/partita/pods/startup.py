"""The reason, as reported by Kubernetes, that no container of a job's Pod runs yet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from partita.pods.pod_status import condition, read_time

__all__ = ["UNDERWAY", "Startup", "read_startup"]

Json = Mapping[str, Any]

_FAILING: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
        "SignatureValidationFailed",
    }
)
"""Reasons of a container that cannot start without intervention (pkg/kubelet/images/types.go,
pkg/kubelet/kuberuntime/kuberuntime_container.go)."""

UNDERWAY: Final = frozenset({"ContainerCreating", "NotScheduled", "PodInitializing"})
"""Reasons that every Pod has for a short time."""

_PREPARED: Final = "PodReadyToStartContainers"
"""Condition that is False until kubelet has prepared claims and volumes, and the sandbox with its
network exists. Kubernetes reports reason and message only in Events, not in the condition
(https://github.com/kubernetes/kubernetes/issues/135299)."""


@dataclass(frozen=True, slots=True)
class Startup:
    """The state of a Pod whose main containers have not started."""

    reason: str
    """Reason reported by Kubernetes, such as `Unschedulable` or `ImagePullBackOff`."""
    message: str
    """Description of the missing step."""
    running: bool = False
    """Whether an init container runs. Init containers are part of the program, sidecars are not."""
    preparing: bool = False
    """Whether kubelet has not yet prepared its claims, its volumes and its sandbox."""
    since: datetime | None = None
    """When its last init container ended, by the node's clock; None if none has ended."""


def read_startup(pod: Json) -> Startup | None:
    """Return why a Pod has not started.

    Parameters
    ----------
    pod
        The Pod as the API server returns it.

    Returns
    -------
    Startup or None
        None if a main container has started or the Pod has finished.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    main = status.get("containerStatuses") or []
    if status.get("phase") in {"Succeeded", "Failed"} or any(map(_has_started, main)):
        return None
    sidecars = {
        c.get("name")
        for c in spec.get("initContainers") or []
        if c.get("restartPolicy") == "Always"
    }
    every = status.get("initContainerStatuses") or []
    init = [c for c in every if c.get("name") not in sidecars]
    if active := next((c for c in init if _state(c).get("running")), None):
        return Startup(
            "PodInitializing", f"init container {active.get('name')} is running", running=True
        )
    ends = (read_time(_state(c).get("terminated", {}).get("finishedAt")) for c in init)
    since = max((end for end in ends if end), default=None)
    reason, message = _obstacle(pod, [*every, *main])
    preparing = bool(spec.get("nodeName")) and _is_preparing(status)
    return Startup(reason, message, preparing=preparing, since=since)


def _obstacle(pod: Json, containers: Sequence[Json]) -> tuple[str, str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    for name, reason, message in _waiting(containers):
        if reason in _FAILING:
            detail = f"{reason}: {message}" if message else reason
            return reason, f"container {name} cannot start: {detail}"
    if not spec.get("nodeName"):
        return _unscheduled(spec, status)
    node = spec["nodeName"]
    if _is_preparing(status):
        return "ContainerCreating", _preparing(pod, node)
    for name, reason, message in _waiting(containers):
        if reason != "PodInitializing":
            detail = f"{reason}: {message}" if message else reason
            return reason, f"container {name} waits on node {node}: {detail}"
    return "ContainerCreating", f"node {node} has not started a container yet"


def _is_preparing(status: Json) -> bool:
    return bool(condition(status, _PREPARED).get("status") == "False")


def _unscheduled(spec: Json, status: Json) -> tuple[str, str]:
    scheduled = condition(status, "PodScheduled")
    reason, message = scheduled.get("reason") or "", scheduled.get("message") or ""
    if gates := ", ".join(gate.get("name", "") for gate in spec.get("schedulingGates") or []):
        said = f"the Pod has scheduling gates ({gates}) that have to be removed"
        return "SchedulingGated", said
    if reason and reason != "SchedulingGated":  # kube-scheduler removes the condition later
        return reason, f"no node takes the Pod: {message or reason}"
    scheduler = spec.get("schedulerName") or "default-scheduler"
    return "NotScheduled", f"the scheduler {scheduler} has not processed the Pod yet"


def _preparing(pod: Json, node: str) -> str:
    meta = pod.get("metadata") or {}
    needs = ", ".join(_references(pod.get("spec") or {}))
    which = f" (it refers to {needs})" if needs else ""
    command = f"kubectl -n {meta.get('namespace')} events --for pod/{meta.get('name')}"
    return (
        f"node {node} prepares the Pod's volumes{which} and its network; if this lasts, "
        f"something is missing or fails: see `{command}`"
    )


def _references(spec: Json) -> Iterator[str]:
    """Return the objects to which the volumes refer, one of which may be missing."""
    for volume in spec.get("volumes") or []:
        for source in (volume, *((volume.get("projected") or {}).get("sources") or [])):
            if secret := source.get("secret"):
                yield f"Secret {secret.get('secretName') or secret.get('name')}"
            if config := source.get("configMap"):
                name = config.get("name")
                if name != "kube-root-ca.crt":  # every Pod has it; the cluster provides it
                    yield f"ConfigMap {name}"
            if claim := source.get("persistentVolumeClaim"):
                yield f"PersistentVolumeClaim {claim.get('claimName')}"


def _waiting(containers: Sequence[Json]) -> Iterator[tuple[str, str, str]]:
    for container in containers:
        waiting = _state(container).get("waiting") or {}
        if waiting.get("reason"):
            yield str(container.get("name")), waiting["reason"], waiting.get("message") or ""


def _has_started(container: Json) -> bool:
    state = _state(container)
    return bool(state.get("running") or state.get("terminated") or container.get("lastState"))


def _state(container: Json) -> Json:
    state: Json = container.get("state") or {}
    return state
