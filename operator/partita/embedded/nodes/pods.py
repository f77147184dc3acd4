"""Pods as a simulated node sees them: what they ask for, and what their annotations say they do.

Annotations that a Pod's author writes (all optional):

- `sim.partita.dev/duration`: how long it runs alone on a GPU, such as `20s` (10s).
- `sim.partita.dev/memory`: GPU memory that it really uses, an amount such as `2Gi` or amounts
  over equal parts of its run such as `1Gi,6Gi,6Gi` (half of what is booked, 1Gi without booking).
- `sim.partita.dev/gpu`: percent of the GPU that it uses alone, or such a list (30).
- `sim.partita.dev/exit-code` (0) and `sim.partita.dev/message`: how it ends.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar, get_args

from partita.constants import (
    ANNOTATION_JOB_UID,
    ANNOTATION_MEMORY,
    ANNOTATION_PROCESSES,
    COMPONENT_SERVER,
    DEVICE_RESOURCE_PREFIX,
    GPU_RESOURCE,
    LABEL_COMPONENT,
    LABEL_SERVER,
)
from partita.embedded.nodes.gpu import FULL, GIB, Mode, Work
from partita.embedded.nodes.scheduler import Wants
from partita.models.base import parse_duration, parse_memory, parse_time

__all__ = ["ENDED_PHASES", "BadAnnotationError", "Server", "SimulatedPod", "Task", "parse_pod"]

T = TypeVar("T")

ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})

_PREFIX: Final = "sim.partita.dev/"
_LIMIT: Final = re.compile(r"(\d+)=(\d+)([MG])B?")
_UNITS: Final = {"M": 1 << 20, "G": 1 << 30}
_MODES: Final[Mapping[str, Mode]] = {mode: mode for mode in get_args(Mode)}


class BadAnnotationError(ValueError):
    """An annotation or variable of a Pod cannot be read; the text says what to write."""


@dataclass(frozen=True, slots=True)
class Server:
    """What makes a Pod a server Pod: its GPUServer's name, how jobs share, and how many may."""

    name: str
    mode: Mode
    max_jobs: int


@dataclass(frozen=True, slots=True)
class Task:
    """What a job's Pod does: its work on each of its GPUs, its clients, and how it ends."""

    work: Work
    processes: int
    exit_code: int
    message: str


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """A Pod, as far as a node that only pretends to run it needs it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(repr=False)
    annotations: Mapping[str, str] = field(repr=False)
    spec: Mapping[str, Any] = field(repr=False)
    wants: Wants
    started: datetime | None
    """When its containers started, if they run already."""

    @property
    def path(self) -> str:
        """Path of the Pod in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def job_uid(self) -> str:
        """UID under which its use is reported: the job's, else its own."""
        return self.annotations.get(ANNOTATION_JOB_UID, self.uid)

    @property
    def is_server(self) -> bool:
        """Whether it is a server Pod, which runs until it is deleted."""
        return self.labels.get(LABEL_COMPONENT) == COMPONENT_SERVER

    def server(self) -> Server:
        """Read what a server Pod's containers are told.

        Raises
        ------
        BadAnnotationError
            If a label or variable is missing or wrong.
        """
        env = _env(self.spec)
        name = self.labels.get(LABEL_SERVER)
        if not name:
            raise BadAnnotationError(f"label {LABEL_SERVER}: write the name of its GPUServer")
        mode = _MODES.get(env.get("PARTITA_MODE", "MPS"))
        if mode is None:
            raise BadAnnotationError(f"PARTITA_MODE: write one of {', '.join(_MODES)}")
        max_jobs = env.get("PARTITA_MAX_JOBS", "16")
        if not max_jobs.isdecimal() or not int(max_jobs):
            raise BadAnnotationError(f"PARTITA_MAX_JOBS={max_jobs}: write a number above 0")
        return Server(name, mode, int(max_jobs))

    def task(self, mode: Mode, gpus: int) -> Task:
        """Read what a job's Pod does.

        Parameters
        ----------
        mode
            How its GPUs are shared; the limits in its environment hold under MPS only.
        gpus
            How many GPUs its memory is spread over.

        Raises
        ------
        BadAnnotationError
            If an annotation cannot be read.
        """
        booked = self._read(ANNOTATION_MEMORY, parse_memory, str(2 * GIB), "an amount such as 4Gi")
        processes = self._read(ANNOTATION_PROCESSES, _count, "1", "a number above 0")
        memory = self._read(
            _PREFIX + "memory",
            _list_of(parse_memory),
            str(booked // 2),
            "an amount such as 2Gi, or amounts over equal parts of the run such as 1Gi,6Gi,6Gi",
        )
        utilisation = self._read(
            _PREFIX + "gpu",
            _list_of(_percent),
            "30",
            "a percentage from 0 to 100 such as 40, or a list such as 20,80",
        )
        every = _env(self.spec)
        env = every if mode == "MPS" else {}
        limit = _memory_limit(env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
        work = Work(
            key=self.uid,
            duration=self._read(
                _PREFIX + "duration", parse_duration, "10s", "a duration such as 20s or 1m30s"
            ),
            memory=tuple(amount // gpus for amount in memory),
            utilisation=utilisation,
            memory_limit=limit * processes if limit is not None else None,
            thread_percent=_thread_percent(env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")),
            managed=every.get("TF_FORCE_UNIFIED_MEMORY") in {"1", "true"},
        )
        exit_code = self._read(_PREFIX + "exit-code", _exit_code, "0", "a number from 0 to 255")
        message = self.annotations.get(_PREFIX + "message", "")
        return Task(work, processes, exit_code, message)

    def _read(self, name: str, parse: Callable[[str], T], default: str, expected: str) -> T:
        text = self.annotations.get(name, default)
        try:
            return parse(text)
        except ValueError as error:
            raise BadAnnotationError(f"annotation {name}: {text!r}; write {expected}") from error


def parse_pod(body: Mapping[str, Any]) -> SimulatedPod:
    """Read a Pod of the API server, which has validated it."""
    meta, spec = body["metadata"], body["spec"]
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    status = body.get("status") or {}
    return SimulatedPod(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        spec=spec,
        wants=Wants(
            resources=_resources(spec),
            node_selector=spec.get("nodeSelector") or {},
            tolerations=spec.get("tolerations") or (),
            affinity=affinity.get("nodeSelectorTerms") or (),
        ),
        started=parse_time(status["startTime"])
        if status.get("phase") == "Running" and status.get("startTime")
        else None,
    )


def _resources(spec: Mapping[str, Any]) -> dict[str, int]:
    """Count the GPU resources of a Pod: its containers' sum; limits of these equal requests."""
    counts: dict[str, int] = {}
    for container in spec["containers"]:
        for name, count in ((container.get("resources") or {}).get("limits") or {}).items():
            if name == GPU_RESOURCE or name.startswith(DEVICE_RESOURCE_PREFIX):
                counts[name] = counts.get(name, 0) + int(count)
    return counts


def _env(spec: Mapping[str, Any]) -> dict[str, str]:
    """Collect the plain variables of all containers; the first to set one wins."""
    return {
        variable["name"]: variable.get("value", "")
        for container in reversed(spec["containers"])
        for variable in container.get("env") or ()
    }


def _memory_limit(text: str) -> int | None:
    """Read a process's limit in bytes from `0=4096M`, the form of NVIDIA's documentation.

    An entry that names no visible device drops every limit, as it does on a real GPU.
    https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html
    """
    limits: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        match = _LIMIT.fullmatch(entry.strip())
        if match is None:
            return None
        limits[match[1]] = int(match[2]) * _UNITS[match[3]]
    return limits.get("0")


def _thread_percent(text: str) -> float:
    return min(FULL, float(text)) if re.fullmatch(r"\d+(\.\d+)?", text) and float(text) else FULL


def _list_of(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    return lambda text: tuple(parse(part.strip()) for part in text.split(","))


def _percent(text: str) -> float:
    value = float(text)
    if not 0 <= value <= FULL:
        raise ValueError("not a percentage")
    return value


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError("below 1")
    return int(text)


def _exit_code(text: str) -> int:
    if not 0 <= int(text) <= 255:
        raise ValueError("no exit code")
    return int(text)
