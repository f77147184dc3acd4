"""Reads the openb traces: GPU nodes of a production cluster, and tasks that share GPUs.

The format is that of Alibaba's cluster-trace-gpu-v2023 (https://github.com/alibaba/clusterdata,
and `data/README.md` of https://github.com/hkust-adsl/kubernetes-scheduler-simulator): CPU in
thousandths, memory in MiB, a GPU in thousandths of itself (`gpu_milli`), times in seconds.

A thousandth of a GPU is taken as a thousandth of its memory, and all GPUs as equally large: the
trace does not contain the GPU memory of a task, and a task does not request more on a smaller GPU.
A task on several GPUs has them exclusively. A task without a GPU uses only CPU and memory of a
node.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from partita_policies.simulator.tasks import MIB, Application, Task
from partita_policies.types import GPU, Job, Node, Step

__all__ = [
    "GPU_MEMORY",
    "TraceError",
    "TraceNode",
    "TraceTask",
    "cluster_of",
    "job_of",
    "read_nodes",
    "read_tasks",
    "simulated",
]

GPU_MEMORY = 16_000 * MIB
"""Bytes that represent a whole GPU: an assumption. It affects only the readability of figures,
since every amount is a share of it."""
_WHOLE = 1000
_LARGEST = 10**12
"""Upper bound of every number: as MiB, it fits in 64 bits as bytes."""
_MAX_JOBS = 1000
"""Jobs on one GPU. The trace has no limit; 1000 requests of a thousandth each fill a GPU."""

Row = TypeVar("Row")
_Name = Annotated[str, Field(min_length=1)]
_Amount = Annotated[int, Field(ge=0, le=_LARGEST)]
_MemoryMiB = Annotated[_Amount, AfterValidator(lambda amount: amount * MIB)]
_Names = Annotated[tuple[str, ...], BeforeValidator(lambda text: filter(None, text.split("|")))]
_Time = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
_Seconds = Annotated[_Time | None, BeforeValidator(lambda text: text or None)]


class TraceError(ValueError):
    """A trace cannot be read; the message has the file, the line and what was expected."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of the trace. The aliases are the columns."""

    name: Annotated[_Name, Field(alias="sn")]
    cpu: Annotated[_Amount, Field(alias="cpu_milli")]
    """Thousandths."""
    memory: Annotated[_MemoryMiB, Field(alias="memory_mib")]
    """Bytes."""
    gpus: Annotated[_Amount, Field(alias="gpu")]
    product: Annotated[str, Field(alias="model")] = ""


@dataclass(frozen=True, slots=True)
class TraceTask:
    """A task of the trace. The aliases are the columns."""

    name: _Name
    cpu: Annotated[_Amount, Field(alias="cpu_milli")]
    """Thousandths."""
    memory: Annotated[_MemoryMiB, Field(alias="memory_mib")]
    """Bytes of the node's memory."""
    gpus: Annotated[_Amount, Field(alias="num_gpu")]
    milli: Annotated[int, Field(ge=0, le=_WHOLE, alias="gpu_milli")]
    """Thousandths requested of each of its GPUs."""
    products: Annotated[_Names, Field(alias="gpu_spec")] = ()
    """GPU products on which the task can run; empty for any."""
    created: Annotated[_Seconds, Field(alias="creation_time")] = None
    scheduled: Annotated[_Seconds, Field(alias="scheduled_time")] = None
    deleted: Annotated[_Seconds, Field(alias="deletion_time")] = None

    @property
    def milli_in_all(self) -> int:
        """Thousandths requested on all its GPUs together."""
        return self.gpus * self.milli

    @property
    def started(self) -> float | None:
        """When it started; None if the trace does not tell."""
        return self.created if self.scheduled is None else self.scheduled

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end, at least 1; None if the trace does not have them."""
        start = self.started
        return None if start is None or self.deleted is None else max(1.0, self.deleted - start)


def read_nodes(path: Path) -> tuple[TraceNode, ...]:
    """Read a list of nodes.

    Raises
    ------
    TraceError
        The file cannot be read.
    """
    return _read(path, TypeAdapter(TraceNode))


def read_tasks(path: Path) -> tuple[TraceTask, ...]:
    """Read a list of tasks; the columns of GPU products and times are optional.

    Raises
    ------
    TraceError
        The file cannot be read.
    """
    return _read(path, TypeAdapter(Annotated[TraceTask, AfterValidator(_checked)]))


def _checked(task: TraceTask) -> TraceTask:
    if task.gpus == 0 and task.milli:
        raise ValueError("gpu_milli: expected 0 of a task without a GPU")
    if task.gpus == 1 and not task.milli:
        raise ValueError("gpu_milli: expected 1 to 1000 of a task with a GPU")
    if task.gpus > 1 and task.milli < _WHOLE:
        raise ValueError("gpu_milli: expected 1000 of a task with several GPUs")
    if task.started is not None and task.deleted is not None and task.started > task.deleted:
        raise ValueError("deletion_time: expected a time after the task's start")
    return task


def cluster_of(nodes: Iterable[TraceNode]) -> tuple[tuple[GPU, ...], tuple[Node, ...]]:
    """Return the GPUs of nodes, empty, and the CPU and memory of the nodes."""
    found = [
        GPU(f"{node.name}-{number}", node.name, GPU_MEMORY, _MAX_JOBS, _MAX_JOBS, node.product)
        for node in nodes
        for number in range(node.gpus)
    ]
    return tuple(found), tuple(Node(node.name, node.cpu, node.memory) for node in nodes)


def job_of(task: TraceTask, job_id: str, submitted: float = 0.0) -> Job:
    """Return a task as a job for policies; one without a GPU as a job of no memory on one GPU."""
    return Job(
        id=job_id,
        name=task.name,
        namespace="openb",
        memory=task.milli * GPU_MEMORY // _WHOLE,
        gpus=max(task.gpus, 1),
        duration=task.duration,
        submitted=submitted,
        cpu=task.cpu,
        host_memory=task.memory,
        products=task.products,
    )


def simulated(task: TraceTask, job_id: str, submitted: float = 0.0) -> Task:
    """Return a task with a GPU as a task of the simulator.

    Notes
    -----
    The trace does not contain the GPU utilisation of a task. The task is assumed to use its
    requested share of GPU utilisation and memory all the time. A task of unknown duration takes
    one second.
    """
    job = job_of(task, job_id, submitted)
    step = Step(task.milli * 100 / _WHOLE, job.memory)
    truth = Application(task.name, task.duration or 1.0, (step,))
    return Task(replace(job, application=task.name, profile=truth.profile()), truth)


def _read(path: Path, row: TypeAdapter[Row]) -> tuple[Row, ...]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return tuple(_rows(path, csv.DictReader(file, strict=True), row))
    except OSError as error:
        raise TraceError(f"{path}: expected a file that can be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: expected a CSV file in UTF-8") from error


def _rows(path: Path, lines: "csv.DictReader[str]", row: TypeAdapter[Row]) -> Iterator[Row]:
    columns = row.json_schema()["required"]
    try:
        if missing := [name for name in columns if name not in (lines.fieldnames or ())]:
            expected = f"the columns {', '.join(columns)}"
            raise TraceError(f"{path}:1: expected {expected}; lacking {', '.join(missing)}")
        for line in lines:
            if None in line or None in line.values():
                count = len(lines.fieldnames or ())
                raise TraceError(f"{path}:{lines.line_num}: expected {count} fields")
            yield row.validate_python(line)
    except csv.Error as error:
        raise TraceError(f"{path}:{lines.reader.line_num}: expected CSV: {error}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = f"{path}:{lines.line_num}: "
        if problem["loc"]:
            where += f"{problem['loc'][0]}: "
        said = problem["msg"].removeprefix("Value error, ").replace("Input", repr(problem["input"]))
        raise TraceError(where + said) from error
