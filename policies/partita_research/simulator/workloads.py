"""Workload files: applications, jobs and GPUs as YAML, including the five of the DqnGPU study.

applications:            # in addition to those of the study, which are known by name
  - name: train-small
    duration: 120        # seconds alone on a GPU of speed 1
    cache: 0.4           # sensitivity to the cache being shared, 0 to 1; optional
    steps:               # equal parts of its work: GPU %, memory MiB, SM occupancy %, PCIe MB/s
      - {gpu: 5, memory: 500}
      - {repeat: 9, gpu: 60, memory: 3000, core: 35, pcie: 200}
jobs:
  - {application: train-small, count: 20, every: 30}   # one each 30 s, from `at` (0) on
  - {application: vgg16, namespace: team-b, priority: 10, memory: 7600}   # allocated, MiB
  - {application: resnet50, lasting: true}   # a service: it starts first and never ends
  - {application: LAMMPS, memory: 4000, memory_limit: 9000}   # uses up to 9000 MiB if it is free
gpus:                    # optional: one Titan Xp
  - {product: a100, count: 2, memory: 40960, pcie: 64000, speed: 3.5, max_jobs: 8}
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from partita_policies.interference import TYPICAL_CACHE
from partita_policies.simulator.tasks import MIB, Application, Task, task_of
from partita_policies.types import GPU, Node, Sharing, Step
from partita_research.simulator.products import MAX_JOBS
from partita_research.simulator.reading import Entry, InputError, ParsedFile

__all__ = [
    "STUDY_WORKLOADS",
    "InputError",
    "Workload",
    "parse_workload",
    "read_workload",
    "study_applications",
    "study_workload",
]

STUDY_WORKLOADS = ("gpu-heavy", "gpu-light", "memory-heavy", "memory-light", "random")
"""Names of the study's workloads, in the order of the study."""
_DATA = files("partita_research") / "data"
_MEGABYTE = 10**6
_PRODUCTS_NAMED = 3
_LARGEST = 1e12
"""Upper bound of every number. As MiB, it fits in 64 bits as bytes; as seconds, it is 30,000
years."""

_Text = Annotated[str, Field(min_length=1)]
_Amount = Annotated[float, Field(ge=0, le=_LARGEST)]
_Positive = Annotated[float, Field(gt=0, le=_LARGEST)]
_Percent = Annotated[float, Field(ge=0, le=100)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs to simulate, and their GPUs."""

    name: str
    tasks: Sequence[Task]
    gpus: Sequence[GPU]
    speeds: Mapping[str, float]
    """Speed by GPU product, relative to the product to which durations refer."""
    nodes: Sequence[Node] = ()
    """CPU and memory of nodes, as far as they are known."""
    sharing: Sharing = Sharing.MPS

    @property
    def title(self) -> str:
        """Jobs and GPUs in one line."""
        products = Counter(gpu.product or "GPU" for gpu in self.gpus)
        gpus = ", ".join(f"{count} x {product}" for product, count in products.items())
        if len(products) > _PRODUCTS_NAMED:
            gpus = f"{products.total():,} GPUs of {len(products)} products"
        return f"{self.name}: {len(self.tasks):,} jobs on {gpus}, {self.sharing}"


class _Steps(Entry):
    gpu: _Percent
    memory: _Amount
    core: _Percent = 0.0
    pcie: _Amount = 0.0
    repeat: _Count = 1


class _Application(Entry):
    name: _Text
    duration: _Positive
    steps: list[_Steps] = Field(min_length=1)
    cache: Annotated[float, Field(ge=0, le=1)] = TYPICAL_CACHE


class _Jobs(Entry):
    application: _Text
    name: _Text | None = None
    count: _Count = 1
    memory: _Positive | None = None
    memory_limit: _Amount | None = None
    at: _Amount = 0.0
    every: _Amount = 0.0
    namespace: _Text = "default"
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    gpus: _Count = 1
    lasting: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.memory_limit is not None and self.memory is None:
            raise ValueError("memory_limit: expected the guaranteed `memory` of the job, too")
        if self.memory and self.memory_limit is not None and self.memory_limit < self.memory:
            raise ValueError(f"memory_limit: expected at least `memory`, {self.memory:g}")
        if self.lasting and self.gpus > 1:
            raise ValueError("gpus: expected one GPU: a lasting job uses no more")
        return self


class _GPUs(Entry):
    product: _Text
    memory: _Positive
    count: _Count = 1
    pcie: _Amount = 0.0
    speed: _Positive = 1.0
    max_jobs: _Count = MAX_JOBS
    node: _Text | None = None


class _StudyApplications(Entry):
    applications: list[_Application] = Field(min_length=1)


class _File(Entry):
    jobs: list[_Jobs] = Field(min_length=1)
    applications: list[_Application] = Field(default=[], min_length=1)
    gpus: list[_GPUs] = Field(default=[], min_length=1)


def read_workload(path: Path) -> Workload:
    """Read a workload file.

    Raises
    ------
    InputError
        The content is invalid; the message has the file, the line and what was expected.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}:1: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}:1: expected text in UTF-8") from error
    return replace(parse_workload(text, str(path)), name=path.stem)


def parse_workload(text: str, source: str = "workload") -> Workload:
    """Read a workload from text; errors are those of `read_workload`."""
    document = ParsedFile(_File, text, source)
    file = document.content
    applications = {**study_applications(), **_applications(document, file.applications)}
    gpus, speeds = _gpus(document, file.gpus)
    largest = max(gpu.memory for gpu in gpus)
    tasks: dict[str, Task] = {}
    for index, jobs in enumerate(file.jobs):
        for task in _tasks(document, index, jobs, applications, largest):
            if task.job.id in tasks:
                problem = f"job {task.job.id}: expected a name that no other job has; set `name`"
                raise document.error(("jobs", index), problem)
            tasks[task.job.id] = task
    return Workload(source, tuple(tasks.values()), gpus, speeds)


@cache
def study_applications() -> Mapping[str, Application]:
    """Return the eleven applications of the study, by name."""
    document = ParsedFile(_StudyApplications, _study("applications.yaml"), "applications.yaml")
    return _applications(document, document.content.applications)


@cache
def study_workload(name: str) -> Workload:
    """Return one of the study's workloads.

    Raises
    ------
    ValueError
        The study has no workload with this name.
    """
    if name not in STUDY_WORKLOADS:
        raise ValueError(f"workload {name}: expected {', '.join(STUDY_WORKLOADS)}")
    return parse_workload(_study(f"workloads/{name}.yaml"), name)


def _study(name: str) -> str:
    return (_DATA / name).read_text(encoding="utf-8")


def _applications(document: ParsedFile[Any], entries: list[_Application]) -> dict[str, Application]:
    found: dict[str, Application] = {}
    for index, entry in enumerate(entries):
        if entry.name in found:
            problem = f"{entry.name}: expected a name that no other application has"
            raise document.error(("applications", index, "name"), problem)
        steps = [step for row in entry.steps for step in [_step(row)] * row.repeat]
        found[entry.name] = Application(entry.name, entry.duration, tuple(steps), entry.cache)
    return found


def _step(row: _Steps) -> Step:
    return Step(row.gpu, round(row.memory * MIB), row.core, row.pcie * _MEGABYTE)


def _gpus(
    document: ParsedFile[_File], entries: list[_GPUs]
) -> tuple[Sequence[GPU], dict[str, float]]:
    """Return the GPUs and the speeds of products; without entries, the GPUs of the study."""
    if not entries:
        return study_workload(STUDY_WORKLOADS[0]).gpus, {}
    gpus: list[GPU] = []
    speeds: dict[str, float] = {}
    for number, entry in enumerate(entries):
        speed = speeds.setdefault(entry.product, entry.speed)
        if speed != entry.speed:
            problem = f"product {entry.product}: expected one speed, not {speed:g} too"
            raise document.error(("gpus", number), problem)
        gpu = GPU(
            id="",
            node=entry.node or f"node-{number}",
            memory=round(entry.memory * MIB),
            max_jobs=entry.max_jobs,
            product=entry.product,
            pcie_bandwidth=round(entry.pcie * _MEGABYTE),
        )
        gpus += [replace(gpu, id=f"gpu-{len(gpus) + index}") for index in range(entry.count)]
    return tuple(gpus), speeds


def _tasks(
    document: ParsedFile[_File],
    number: int,
    entry: _Jobs,
    applications: Mapping[str, Application],
    largest: int,
) -> list[Task]:
    application = applications.get(entry.application)
    if application is None:
        problem = f"{entry.application}: unknown; expected one of {', '.join(applications)}"
        raise document.error(("jobs", number, "application"), problem)
    name = entry.name or application.name
    tasks = []
    for index in range(entry.count):
        task = task_of(
            application,
            name if entry.name and entry.count == 1 else f"{name}-{index}",
            memory=None if entry.memory is None else round(entry.memory * MIB),
            memory_limit=round((entry.memory_limit or 0) * MIB),
            largest=largest,
            submitted=entry.at + index * entry.every,
            namespace=entry.namespace,
            priority=entry.priority,
            lasting=entry.lasting,
        )
        tasks.append(replace(task, job=replace(task.job, gpus=entry.gpus)))
    return tasks
