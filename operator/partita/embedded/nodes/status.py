"""What kubelet and agent write: Pods', Nodes' and GPUServers' status as JSON, without I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from partita.models.base import Condition, set_condition

__all__ = [
    "Exit",
    "conditions_with",
    "format_second",
    "node_status",
    "pod_ended",
    "pod_running",
    "pod_unschedulable",
]

HEALTHY_NODE: Final = {
    "Ready": ("True", "KubeletReady"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
}
PLENTY: Final = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "1000"}
"""What of a simulated node never runs out."""
NODE_INFO: Final = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "osImage": "simulated",
    "kernelVersion": "simulated",
    "containerRuntimeVersion": "simulated://1",
    "kubeletVersion": "v0.0.0-partita",
    "kubeProxyVersion": "",
    "machineID": "",
    "systemUUID": "",
    "bootID": "",
}

Body = dict[str, Any]


def format_second(time: datetime) -> str:
    """Write a time as Kubernetes' Time is: whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a Pod ended: its containers' exit code, reason and message, and what kubelet says of it.

    Where no container was started at all, there is only what kubelet says.
    """

    code: int
    reason: str = "Error"
    message: str = ""
    pod_reason: str = ""
    pod_message: str = ""
    started: bool = True

    @classmethod
    def of_program(cls, code: int, message: str) -> Self:
        """Name an exit code as kubelet does."""
        return cls(code, "Error" if code else "Completed", message)

    @classmethod
    def refused(cls, reason: str, message: str) -> Self:
        """Say why kubelet does not let a Pod in."""
        return cls(1, pod_reason=reason, pod_message=message, started=False)


def pod_running(uid: str, containers: Sequence[Mapping[str, Any]], started: datetime) -> Body:
    """Patch of a Pod whose containers all run."""
    at = format_second(started)
    return _pod_patch(
        uid,
        phase="Running",
        startTime=at,
        conditions=_pod_conditions("True", at, ""),
        containerStatuses=_containers(containers, {"running": {"startedAt": at}}, up=True),
    )


def pod_ended(
    uid: str,
    containers: Sequence[Mapping[str, Any]],
    started: datetime,
    finished: datetime,
    end: Exit,
) -> Body:
    """Patch of a Pod whose containers have ended, or could not be started at all."""
    phase = "Failed" if end.code else "Succeeded"
    at = format_second(finished)
    kubelet = {"reason": end.pod_reason, "message": end.pod_message} if end.pod_reason else {}
    if not end.started:
        return _pod_patch(uid, phase=phase, startTime=at, **kubelet)
    terminated = {
        "exitCode": end.code,
        "reason": end.reason,
        "startedAt": format_second(started),
        "finishedAt": at,
    } | ({"message": end.message} if end.message else {})
    return _pod_patch(
        uid,
        **kubelet,
        phase=phase,
        startTime=format_second(started),
        conditions=_pod_conditions("False", at, "PodFailed" if end.code else "PodCompleted"),
        containerStatuses=_containers(containers, {"terminated": terminated}, up=False),
    )


def pod_unschedulable(uid: str, message: str, now: datetime) -> Body:
    """Patch of a Pod that no node can take."""
    condition = _condition("PodScheduled", "False", format_second(now), "Unschedulable", message)
    return _pod_patch(uid, conditions=[condition])


def _pod_patch(uid: str, **status: Any) -> Body:
    return {"metadata": {"uid": uid}, "status": status}


def _pod_conditions(ready: str, at: str, reason: str) -> list[Body]:
    return [
        _condition("PodScheduled", "True", at),
        _condition("Initialized", "True", at),
        _condition("ContainersReady", ready, at, reason),
        _condition("Ready", ready, at, reason),
    ]


def _condition(kind: str, status: str, at: str, reason: str = "", message: str = "") -> Body:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    }


def _containers(containers: Iterable[Mapping[str, Any]], state: Body, *, up: bool) -> list[Body]:
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": up,
            "started": up,
            "restartCount": 0,
            "state": state,
        }
        for container in containers
    ]


def node_status(
    offers: Mapping[str, tuple[int, int]], withdrawn: Iterable[str], now: datetime
) -> Body:
    """Patch of a Node.

    Parameters
    ----------
    offers
        By resource: how many there are, and how many of them are healthy.
    withdrawn
        Resources that the node once had and has no more.
    now
        When it was healthy last.
    """
    gone = dict.fromkeys(withdrawn)
    at = format_second(now)
    return {
        "status": {
            "capacity": PLENTY | gone | {name: str(count) for name, (count, _) in offers.items()},
            "allocatable": PLENTY | gone | {name: str(ok) for name, (_, ok) in offers.items()},
            "conditions": [
                _condition(kind, status, at, reason) | {"lastHeartbeatTime": at}
                for kind, (status, reason) in HEALTHY_NODE.items()
            ],
            "nodeInfo": NODE_INFO,
        }
    }


def conditions_with(
    present: Sequence[Mapping[str, Any]], new: Iterable[Condition], now: datetime
) -> list[Body]:
    """Put conditions beside those that others have set, as a merge patch needs them: all."""
    conditions = tuple(Condition.model_validate(c) for c in present)
    for condition in new:
        conditions = set_condition(conditions, condition, now)
    return [condition.dump() for condition in conditions]
