"""Small worlds for the tests of what the operator decides: objects as the API server has them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from partita.constants import ALLOCATION_GATE
from partita.models import Allocation, GPUPartition, GPUServer, SharedGPUJob
from partita.models.quantities import format_memory, format_time
from partita.store.state import State
from partita.store.views import PodView

GIB = 2**30
SERVER_NAMESPACE = "partita-system"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example.org/train:1"}]}}

_versions = count(1)


def seconds(amount: float) -> timedelta:
    return timedelta(seconds=amount)


def at(amount: float) -> datetime:
    """So many seconds after the beginning of the test's time."""
    return START + seconds(amount)


def meta(name: str, uid: str | None = None, /, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(next(_versions)),
        "generation": 1,
        **fields,
    }


def job_body(
    name: str = "train",
    *,
    namespace: str = "team-a",
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    own = {"namespace": namespace, "creationTimestamp": format_time(START), **(metadata or {})}
    return {
        "metadata": meta(name, **own),
        "spec": {"partition": "shared", "gpuMemory": "8Gi", "template": TEMPLATE, **spec},
        "status": status or {},
    }


def a_job(name: str = "train", **fields: Any) -> SharedGPUJob:
    return SharedGPUJob.parse(job_body(name, **fields))


def partition_body(
    name: str = "shared", *, metadata: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {"metadata": meta(name, **(metadata or {})), "spec": {"gpus": 1, **spec}}


def a_partition(name: str = "shared", **fields: Any) -> GPUPartition:
    return GPUPartition.parse(partition_body(name, **fields))


def server_body(
    name: str = "shared-0",
    *,
    partition: str = "shared",
    node: str = "node-1",
    memory: str = "40Gi",
    conditions: dict[str, str] | None = None,
    allocations: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    shown = {"Ready": "True"} if conditions is None else conditions
    return {
        "metadata": meta(name, **(metadata or {})),
        "spec": {"partition": partition, "mode": "MPS", "maxJobs": 16, **spec},
        "status": {
            "podUID": f"pod-{name}",
            "node": node,
            "uuid": f"GPU-{abs(hash(name)) % 16**8:08x}-0000-4000-8000-000000000000",
            "product": "NVIDIA A100-SXM4-40GB",
            "memory": memory,
            "conditions": [
                {
                    "type": t,
                    "status": s,
                    "reason": t,
                    "message": "",
                    "lastTransitionTime": format_time(START),
                }
                for t, s in shown.items()
            ],
            "allocations": allocations or {},
            **(status or {}),
        },
    }


def a_server(name: str = "shared-0", **fields: Any) -> GPUServer:
    return GPUServer.parse(server_body(name, **fields))


def allocation(
    name: str = "train",
    *,
    namespace: str = "team-a",
    attempt: int = 1,
    memory: int = 8 * GIB,
    since: datetime = START,
    **fields: Any,
) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "name": f"{name}-{attempt}.partita.dev",
        "job": name,
        "jobUID": f"uid-{name}",
        "pod": f"{name}-{attempt}",
        "podUID": f"pod-{name}-{attempt}",
        "memory": format_memory(memory),
        "since": format_time(since),
        **fields,
    }


def an_allocation(name: str = "train", **fields: Any) -> Allocation:
    return Allocation.model_validate(allocation(name, **fields))


def node_body(
    name: str = "node-1",
    *,
    uid: str | None = None,
    ready: bool = True,
    cordoned: bool = False,
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    allocatable: dict[str, str] | None = None,
) -> Any:
    status = "True" if ready else "False"
    return {
        "metadata": meta(name, uid, labels=labels or {}),
        "spec": {"taints": taints or [], **({"unschedulable": True} if cordoned else {})},
        "status": {
            "conditions": [{"type": "Ready", "status": status}],
            "allocatable": allocatable or {},
        },
    }


def owner(kind: str, name: str, uid: str = "") -> dict[str, Any]:
    """The reference that the operator gives the Pods it makes."""
    return {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": kind,
        "name": name,
        "uid": uid or f"uid-{name}",
        "controller": True,
    }


def server_pod_body(
    server: str, *, node: str = "node-1", phase: str = "Running", **own: Any
) -> Any:
    own = {"namespace": SERVER_NAMESPACE, "ownerReferences": [owner("GPUServer", server)], **own}
    return {
        "metadata": meta(server, **{"uid": f"pod-{server}", **own}),
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def pod_status(
    phase: str = "Pending",
    *,
    exit_code: int = 0,
    message: str = "",
    started: datetime | None = None,
    finished: datetime | None = None,
    **status: Any,
) -> dict[str, Any]:
    """What kubelet says of a Pod of one container."""
    state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
    if phase == "Running":
        state = {"running": {"startedAt": format_time(started or START)}}
    if phase in {"Succeeded", "Failed"}:
        ended: dict[str, Any] = {"exitCode": exit_code, "message": message}
        if started:
            ended["startedAt"] = format_time(started)
        if finished:
            ended["finishedAt"] = format_time(finished)
        state = {"terminated": ended}
    return {"phase": phase, "containerStatuses": [{"name": "main", "state": state}], **status}


def pod_body(
    job: str = "train",
    attempt: int = 1,
    *,
    namespace: str = "team-a",
    node: str = "node-1",
    gated: bool = False,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A Pod of a job; with `gated`, one that was created for an allocation."""
    name = f"{job}-{attempt}"
    gates = {"schedulingGates": [{"name": ALLOCATION_GATE}]}
    own = {
        "namespace": namespace,
        "ownerReferences": [owner("SharedGPUJob", job)],
        **(metadata or {}),
    }
    return {
        "metadata": meta(name, **{"uid": f"pod-{name}", **own}),
        "spec": gates if gated else {"nodeName": node} if node else {},
        "status": status if status is not None else pod_status(),
    }


def view_of(body: dict[str, Any]) -> PodView:
    """Return what the operator keeps of a Pod."""
    view = PodView.parse(body)
    assert view is not None
    return view


def a_pod(job: str = "train", attempt: int = 1, **fields: Any) -> PodView:
    return view_of(pod_body(job, attempt, **fields))


DELETING = {"deletionTimestamp": format_time(START)}


def a_state(*bodies: dict[str, Any]) -> State:
    """Return a cache that has taken these objects."""
    state = State(SERVER_NAMESPACE)
    for body in bodies:
        take(state, body)
    return state


def take(state: State, body: dict[str, Any], *, deleted: bool = False) -> None:
    """Have the cache take an object, whatever kind it is."""
    spec = body.get("spec") or {}
    if "template" in spec:
        state.apply_job(body, deleted=deleted)
    elif "gpus" in spec:
        state.apply_partition(body, deleted=deleted)
    elif "partition" in spec:
        state.apply_server(body, deleted=deleted)
    elif "application" in spec:
        state.apply_profile(body, deleted=deleted)
    elif "devices" in spec:
        state.apply_claim(body, deleted=deleted)
    elif "ownerReferences" in body["metadata"]:
        state.apply_pod(body, deleted=deleted)
    elif "conditions" in (body.get("status") or {}):
        state.apply_node(body, deleted=deleted)
    else:
        state.apply_namespace(body, deleted=deleted)


def gpus_up(*servers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """GPUServers with all that it takes to be ready: their nodes and their Pods."""
    for node in sorted({server["status"]["node"] for server in servers}):
        yield node_body(node)
    for server in servers:
        yield server
        yield server_pod_body(server["metadata"]["name"], node=server["status"]["node"])


def namespace_body(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": meta(name, labels=labels)}


def profile_body(
    application: str = "resnet",
    *,
    namespace: str = "team-a",
    peak: str = "4Gi",
    duration: str = "60s",
    name: str = "",
    runs: int = 1,
) -> dict[str, Any]:
    measured = {
        "duration": duration,
        "runs": runs,
        "steps": [{"gpuMemory": "1Gi"}, {"gpuMemory": peak}],
    }
    return {
        "metadata": meta(name or application, namespace=namespace),
        "spec": {"application": application, "measurements": [measured]},
    }


def has_keys(state: State) -> bool:
    """Tell whether the operator's loop has a key to process, now or later."""
    queues = (state.queues.jobs, state.queues.applications, state.queues.partitions)
    return any(queue.due_in() is not None for queue in queues)
