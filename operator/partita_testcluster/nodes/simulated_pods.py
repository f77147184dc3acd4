"""Pods on simulated nodes: their requests and their work.

Annotations of a Pod, set by its author (all optional):

- `sim.partita.dev/duration`: how long it runs alone on a GPU, such as `20s` (10s). A program whose
  Pod has the restart policy `Always` begins again after that time, and never ends by itself.
- `sim.partita.dev/memory`: GPU memory that it really uses, an amount such as `2Gi` or amounts
  over equal parts of its run such as `1Gi,6Gi,6Gi` (half of its allocation; 1Gi if it has none).
- `sim.partita.dev/gpu`: percent of the GPU that it uses alone, or such a list (30).
- `sim.partita.dev/exit-code` (0) and `sim.partita.dev/message`: how it ends. With an exit code a
  program ends under every restart policy.
- `sim.partita.dev/not-starting`: it never starts, with this reason from kubelet, such as
  `ImagePullBackOff`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from partita.constants import (
    ANNOTATION_APPLICATION,
    ANNOTATION_JOB_UID,
    ANNOTATION_MEMORY,
    ANNOTATION_PROCESSES,
    COMPONENT_PROBE,
    GPU_RESOURCE,
    LABEL_COMPONENT,
)
from partita.models.quantities import MEBI, parse_duration, parse_memory, parse_time
from partita.pods.node_rules import NodeRules
from partita.pods.requests import effective_requests
from partita_policies.types import Sharing
from partita_testcluster.nodes.gpu import GIB, Work
from partita_testcluster.nodes.scheduler import COMMON, Wants

__all__ = [
    "GATED",
    "REQUIRED",
    "BadPodError",
    "Exit",
    "PodTask",
    "Server",
    "SimulatedPod",
    "owner_of",
    "parse_pod",
]

T = TypeVar("T")
Body = dict[str, Any]

_SIM: Final = "sim.partita.dev/"
_REQUEST: Final = "NVIDIA_GPU_MEMORY_REQUEST"
_LIMIT: Final = "NVIDIA_GPU_MEMORY_LIMIT"
_CONTEXT: Final = 512 * MEBI
"""GPU memory of a simulated process besides that of its work, in bytes."""
GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""The message that the API server writes for a new Pod (pkg/registry/core/pod/strategy.go)."""
_SCHEDULER: Final = "default-scheduler"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class BadPodError(ValueError):
    """An annotation or variable of a Pod is invalid; the message has the expected format."""


@dataclass(frozen=True, slots=True)
class Server:
    """Settings of a server Pod: name of its GPUServer, and kind of sharing."""

    name: str
    sharing: Sharing


@dataclass(frozen=True, slots=True)
class Exit:
    """How a Pod ended; if its node did not admit it (`admitted`), no container was started."""

    code: int
    message: str
    reason: str = ""
    admitted: bool = True


@dataclass(frozen=True, slots=True)
class PodTask:
    """Task of a Pod: its work on each of its GPUs, its MPS clients, and its exit."""

    work: Work
    processes: int
    exit: Exit


def owner_of(body: Mapping[str, Any], kind: str) -> Mapping[str, str]:
    """Return the owner reference of a Pod's controller; empty unless it is of this kind."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((o for o in owners if o.get("controller") and o["kind"] == kind), {})


class SimulatedPod:
    """The properties of a Pod that a simulated node needs.

    Attributes
    ----------
    version
        Its resource version.
    node
        Node that it is bound to; empty if none.
    for_default_scheduler
        Whether its scheduler is kube-scheduler.
    job_uid
        UID under which its usage is reported: that of the job, or else its own.
    application
        Application under which its history is kept; empty if none is kept.
    server_name
        Its GPUServer if it is a server Pod, which runs until it is deleted; otherwise empty.
    probed_server
        Its GPUServer if it is a probe Pod, which runs until it is deleted; otherwise empty.
    wants
        Its requests to a node.
    claim_names
        Name of each of its claims; empty for one that is not made yet.
    body
        The Pod as the API server has it.
    restart_policy
        `Always`, `OnFailure` or `Never`.
    gated
        Whether it has scheduling gates.
    not_starting
        Why it never starts; empty if it does.
    deleted
        Whether it is being deleted.
    ended
        Whether it has ended.
    disrupted
        Its condition that says why it is evicted; None if it is not.
    unschedulable
        Last written reason why no node fits; empty if none was written.
    started
        Start time of the Pod, if its containers are running.
    restarts
        How often its containers were restarted.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
        self.body = body
        self.uid: str = meta["uid"]
        self.version: str = meta.get("resourceVersion", "")
        self.namespace: str = meta["namespace"]
        self.name: str = meta["name"]
        self.annotations: Mapping[str, str] = meta.get("annotations") or {}
        self.containers: Sequence[Mapping[str, Any]] = spec["containers"]
        self.node: str = spec.get("nodeName") or ""
        self.for_default_scheduler = spec.get("schedulerName", _SCHEDULER) == _SCHEDULER
        owner = owner_of(body, "GPUServer").get("name", "")
        is_probe = (meta.get("labels") or {}).get(LABEL_COMPONENT) == COMPONENT_PROBE
        self.probed_server = owner if is_probe else ""
        self.server_name = "" if self.probed_server else owner
        self.job_uid = owner_of(body, "SharedGPUJob").get("uid") or self.annotations.get(
            ANNOTATION_JOB_UID, self.uid
        )
        self.application = self.annotations.get(ANNOTATION_APPLICATION, "")
        self.wants = _wants(spec)
        self.claim_names = _claim_names(spec, status)
        self.restart_policy: str = spec.get("restartPolicy", "Never")
        self.gated = bool(spec.get("schedulingGates"))
        self.not_starting: str = self.annotations.get(_SIM + "not-starting", "")
        self.deleted = "deletionTimestamp" in meta
        self.ended = status.get("phase") in {"Succeeded", "Failed"}
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        self.disrupted: Mapping[str, Any] | None = conditions.get("DisruptionTarget")
        scheduled = conditions.get("PodScheduled", {})
        refused = scheduled.get("status") == "False"
        self.unschedulable: str = scheduled.get("message", "") if refused else ""
        running = status.get("phase") == "Running" and status.get("startTime")
        self.started = parse_time(status["startTime"]) if running else None
        containers = status.get("containerStatuses") or ()
        self.restarts: int = max((one.get("restartCount", 0) for one in containers), default=0)

    @property
    def path(self) -> str:
        """Path of the Pod in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def program(self) -> str:
        """Program of its first container: its command, or else its image."""
        container = self.containers[0]
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        return " ".join(words) or str(container.get("image", ""))

    @property
    def _env(self) -> dict[str, str]:
        """The plain variables of all containers; the first container takes precedence."""
        return {
            variable["name"]: variable.get("value", "")
            for container in reversed(self.containers)
            for variable in container.get("env") or ()
        }

    def server(self) -> Server:
        """Read the settings of a server Pod's containers.

        Raises
        ------
        BadPodError
            If a variable is wrong.
        """
        env = self._env
        modes = ", ".join(Sharing)
        sharing = _read("PARTITA_MODE", env.get("PARTITA_MODE", "MPS"), Sharing, f"one of {modes}")
        return Server(self.server_name, sharing)

    def task(
        self,
        sharing: Sharing,
        gpus: int,
        *,
        allocated: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> PodTask:
        """Read the task of a Pod.

        Parameters
        ----------
        sharing
            How its GPUs are shared; the limits in its environment apply under MPS only.
        gpus
            Number of GPUs over which its memory is distributed.
        allocated
            Bytes that are allocated to it; by default as in its annotation.
        variables
            The variables that its claims set, in addition to its own.

        Raises
        ------
        BadPodError
            If an annotation cannot be read.
        """

        def read(name: str, parse: Callable[[str], T], default: str, expected: str) -> T:
            return _read(f"annotation {name}", self.annotations.get(name, default), parse, expected)

        amounts = "an amount such as 2Gi, or amounts over equal parts of the run: 1Gi,6Gi,6Gi"
        percents = "a percentage from 0 to 100 such as 40, or a list such as 20,80"
        time = "a duration such as 20s or 1m30s"
        default = str(2 * GIB if allocated is None else allocated)
        allocated = read(ANNOTATION_MEMORY, parse_memory, default, "an amount such as 4Gi")
        processes = int(read(ANNOTATION_PROCESSES, _between(1, 999), "1", "a number above 0"))
        memory = read(_SIM + "memory", _list_of(parse_memory), str(allocated // 2), amounts)
        utilisation = read(_SIM + "gpu", _list_of(_between(0, 100)), "30", percents)
        duration = read(_SIM + "duration", parse_duration, "10s", time)
        code = int(read(_SIM + "exit-code", _between(0, 255), "0", "a number from 0 to 255"))
        # Per process, in the form that the operator writes.
        # https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html
        env = self._env | dict(variables or {}) if sharing is Sharing.MPS else {}
        limit = re.fullmatch(r"0=(\d+)M", env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
        allowed = int(limit[1]) * MEBI * processes if limit else None
        guarantee = None
        if env.get(_LIMIT):
            # The driver's limits are for the container, and include the contexts of its processes.
            guarantee, allowed = (
                int(env[name]) * MEBI - _CONTEXT * processes for name in (_REQUEST, _LIMIT)
            )
        percent = env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")
        threads = int(percent) if percent.isdecimal() else 100
        each = tuple(amount // gpus for amount in memory)
        work = Work(
            self.uid,
            duration,
            each,
            utilisation,
            allowed,
            threads,
            guarantee,
            repeats=self.restart_policy == "Always" and code == 0,
        )
        return PodTask(work, processes, Exit(code, self.annotations.get(_SIM + "message", "")))


def parse_pod(body: Mapping[str, Any]) -> SimulatedPod:
    """Read a Pod that the API server has validated."""
    return SimulatedPod(body)


def _claim_names(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Sequence[str]:
    statuses = status.get("resourceClaimStatuses") or ()
    made = {one["name"]: one.get("resourceClaimName", "") for one in statuses}
    entries = spec.get("resourceClaims") or ()
    return [e.get("resourceClaimName") or made.get(e["name"], "") for e in entries]


def _wants(spec: Mapping[str, Any]) -> Wants:
    asked = {
        name: amount
        for name, amount in effective_requests(spec).items()
        if name in COMMON or name.startswith(GPU_RESOURCE)
    }
    pods = (spec.get("affinity") or {}).get("podAffinity") or {}
    return Wants(asked, NodeRules.read(spec), bool(pods.get(REQUIRED)))


def _read(what: str, text: str, parse: Callable[[str], T], expected: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise BadPodError(f"{what}: {text!r}; write {expected}") from error


def _list_of(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    return lambda text: tuple(parse(part.strip()) for part in text.split(","))


def _between(low: int, high: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(f"not from {low} to {high}")
        return value

    return parse
