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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from partita_policies.interference import TYPICAL_CACHE
from partita_policies.types import GPU, Step
from partita_research.simulator.jitter import jitter
from partita_research.simulator.reading import Entry, InputError, parse, read
from partita_research.simulator.tasks import MIB, Application, Task, task_of

__all__ = [
    "STUDY_WORKLOADS",
    "InputError",
    "Workload",
    "jitter",
    "parse_workload",
    "read_workload",
    "study_applications",
    "study_workload",
]

STUDY_WORKLOADS = ("gpu-heavy", "gpu-light", "memory-heavy", "memory-light", "random")
"""Names of the study's workloads, in the order of the study."""
_DATA = files("partita_research") / "data"
_MEGABYTE = 10**6
_MAX_JOBS = 16


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs to simulate, and their GPUs."""

    name: str
    tasks: tuple[Task, ...]
    gpus: tuple[GPU, ...]
    speeds: Mapping[str, float]
    """Speed by GPU product, relative to the product to which durations refer."""


def read_workload(path: Path) -> Workload:
    """Read a workload file.

    Raises
    ------
    InputError
        The content is invalid; the message has the file, the line and what was expected.
    """
    return _workload(path.stem, read(path))


def parse_workload(text: str, source: str = "workload") -> Workload:
    """Read a workload from text; errors are those of `read_workload`."""
    return _workload(source, parse(text, source))


@cache
def study_applications() -> Mapping[str, Application]:
    """Return the eleven applications of the study, by name."""
    document = _parse_data("applications.yaml").fields(["applications"])
    return _applications(document["applications"], {})


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
    return _workload(name, _parse_data(f"workloads/{name}.yaml"))


def _parse_data(name: str) -> Entry:
    return parse((_DATA / name).read_text(encoding="utf-8"), name)


def _workload(name: str, document: Entry) -> Workload:
    fields = document.fields(["jobs"], ["applications", "gpus"])
    applications = study_applications()
    if "applications" in fields:
        applications = {**applications, **_applications(fields["applications"], {})}
    if "gpus" in fields:
        gpus, speeds = _gpus(fields["gpus"])
    else:
        gpus, speeds = study_workload(STUDY_WORKLOADS[0]).gpus, {}
    largest = max(gpu.memory for gpu in gpus)
    tasks: dict[str, Task] = {}
    for entry in fields["jobs"].items("jobs"):
        for task in _jobs(entry, applications, tasks, largest):
            tasks[task.job.id] = task
    return Workload(name, tuple(tasks.values()), gpus, speeds)


def _applications(entries: Entry, found: dict[str, Application]) -> dict[str, Application]:
    for entry in entries.items("applications"):
        fields = entry.fields(["name", "duration", "steps"], ["cache"])
        name = fields["name"].text()
        if name in found:
            raise fields["name"].error(f"{name}: expected a name that no other application has")
        found[name] = Application(
            name,
            fields["duration"].number(above=True),
            tuple(step for row in fields["steps"].items("steps") for step in _steps(row)),
            fields["cache"].number(most=1) if "cache" in fields else TYPICAL_CACHE,
        )
    return found


def _steps(entry: Entry) -> list[Step]:
    fields = entry.fields(["gpu", "memory"], ["core", "pcie", "repeat"])
    step = Step(
        gpu=fields["gpu"].number(most=100),
        memory=round(fields["memory"].number() * MIB),
        core=fields["core"].number(most=100) if "core" in fields else 0.0,
        pcie=fields["pcie"].number() * _MEGABYTE if "pcie" in fields else 0.0,
    )
    return [step] * (fields["repeat"].whole() if "repeat" in fields else 1)


def _gpus(entries: Entry) -> tuple[tuple[GPU, ...], dict[str, float]]:
    gpus: list[GPU] = []
    speeds: dict[str, float] = {}
    for number, entry in enumerate(entries.items("gpus")):
        optional = ["count", "pcie", "speed", "max_jobs", "node"]
        fields = entry.fields(["product", "memory"], optional)
        product = fields["product"].text()
        speed = fields["speed"].number(above=True) if "speed" in fields else 1.0
        if speeds.setdefault(product, speed) != speed:
            raise entry.error(f"product {product}: expected one speed, not {speeds[product]:g} too")
        gpu = GPU(
            id="",
            node=fields["node"].text() if "node" in fields else f"node-{number}",
            memory=round(fields["memory"].number(above=True) * MIB),
            max_jobs=fields["max_jobs"].whole() if "max_jobs" in fields else _MAX_JOBS,
            product=product,
            pcie_bandwidth=round(fields["pcie"].number() * _MEGABYTE) if "pcie" in fields else 0,
        )
        count = fields["count"].whole() if "count" in fields else 1
        gpus += [replace(gpu, id=f"gpu-{len(gpus) + index}") for index in range(count)]
    return tuple(gpus), speeds


def _jobs(
    entry: Entry, applications: Mapping[str, Application], taken: Mapping[str, Task], largest: int
) -> list[Task]:
    optional = ["name", "count", "memory", "memory_limit", "at", "every"]
    fields = entry.fields(["application"], [*optional, "namespace", "priority", "gpus", "lasting"])
    application = applications.get(fields["application"].text())
    if application is None:
        known = ", ".join(applications)
        raise fields["application"].error(
            f"{fields['application'].text()}: unknown; expected one of {known}"
        )
    count = fields["count"].whole() if "count" in fields else 1
    name = fields["name"].text() if "name" in fields else application.name
    start = fields["at"].number() if "at" in fields else 0.0
    every = fields["every"].number() if "every" in fields else 0.0
    memory = round(fields["memory"].number(above=True) * MIB) if "memory" in fields else None
    limit = _memory_limit(fields["memory_limit"], memory) if "memory_limit" in fields else 0
    tasks = []
    for index in range(count):
        job_id = name if "name" in fields and count == 1 else f"{name}-{index}"
        if job_id in taken:
            raise entry.error(f"job {job_id}: expected a name that no other job has; set `name`")
        task = task_of(
            application,
            job_id,
            memory=memory,
            memory_limit=limit,
            largest=largest,
            submitted=start + index * every,
            namespace=fields["namespace"].text() if "namespace" in fields else "default",
            priority=_priority(fields["priority"]) if "priority" in fields else 0,
            lasting="lasting" in fields and fields["lasting"].flag(),
        )
        if "gpus" in fields:
            task = replace(task, job=replace(task.job, gpus=fields["gpus"].whole()))
        if task.job.lasting and task.job.gpus > 1:
            raise entry.error(f"job {job_id}: expected one GPU: a lasting job uses no more")
        tasks.append(task)
    return tasks


def _memory_limit(entry: Entry, memory: int | None) -> int:
    if memory is None:
        raise entry.error("expected the guaranteed `memory` of the job, too")
    return round(entry.number(least=memory / MIB) * MIB)


def _priority(entry: Entry) -> int:
    return entry.whole(least=-1_000_000)
