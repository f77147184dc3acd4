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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NoReturn, TypeVar

from partita_policies.types import GPU, Job, Node, Step
from partita_research.simulator.tasks import MIB, Application, Task

if TYPE_CHECKING:
    from _csv import Reader as _Reader

__all__ = [
    "GPU_MEMORY",
    "TraceError",
    "TraceNode",
    "TraceTask",
    "cluster_of",
    "draw",
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

T = TypeVar("T")

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_TASK_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


class TraceError(ValueError):
    """A trace cannot be read; the message has the file, the line and what was expected."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of the trace."""

    name: str
    cpu: int
    """Thousandths."""
    memory: int
    """Bytes."""
    gpus: int
    product: str


@dataclass(frozen=True, slots=True)
class TraceTask:
    """A task of the trace."""

    name: str
    cpu: int
    """Thousandths."""
    memory: int
    """Bytes of the node's memory."""
    gpus: int
    milli: int
    """Thousandths requested of each of its GPUs."""
    products: tuple[str, ...] = ()
    """GPU products on which the task can run; empty for any."""
    created: float | None = None
    scheduled: float | None = None
    deleted: float | None = None

    @property
    def milli_in_all(self) -> int:
        """Thousandths requested on all its GPUs together."""
        return self.gpus * self.milli

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end, at least 1; None if the trace does not have them."""
        start = self.created if self.scheduled is None else self.scheduled
        return None if start is None or self.deleted is None else max(1.0, self.deleted - start)


def read_nodes(path: Path) -> tuple[TraceNode, ...]:
    """Read a list of nodes.

    Raises
    ------
    TraceError
        The file cannot be read.
    """
    return _read(path, _NODE_COLUMNS, _node)


def read_tasks(path: Path) -> tuple[TraceTask, ...]:
    """Read a list of tasks; the columns of GPU products and times are optional.

    Raises
    ------
    TraceError
        The file cannot be read.
    """
    return _read(path, _TASK_COLUMNS, _task)


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


def draw(tasks: Sequence[TraceTask], count: int, seed: int, *, gap: float = 0.0) -> list[Task]:
    """Draw tasks of a trace at random, with replacement, for a simulation.

    Parameters
    ----------
    tasks
        The trace; only tasks with a GPU and a known duration are drawn.
    count
        Number of tasks to draw.
    seed
        The same seed gives the same tasks.
    gap
        Mean seconds between arrivals (exponential); 0 if all tasks arrive at once.

    Raises
    ------
    ValueError
        No task has both a GPU and a duration.
    """
    known = [task for task in tasks if task.gpus and task.duration is not None]
    if not known:
        raise ValueError("no task of the trace has both a GPU and a duration")
    random, arrival, drawn = Random(f"openb {seed}"), 0.0, []  # noqa: S311 - repeatable, not secret
    for number in range(count):
        task = random.choice(known)
        drawn.append(simulated(task, f"{task.name}-{number}", arrival))
        arrival += random.expovariate(1 / gap) if gap else 0.0
    return drawn


class _Row:
    """One line of a file, with checks of its values."""

    def __init__(self, fields: Mapping[str, str], place: str) -> None:
        self._fields = fields
        self._place = place

    def text(self, column: str) -> str:
        """Return a text; empty if the column is missing."""
        return self._fields.get(column, "")

    def name(self, column: str) -> str:
        """Return a text that is not empty."""
        return self.text(column) or self._refuse(column, "a name")

    def count(self, column: str, most: int = _LARGEST) -> int:
        """Return a whole number of at least 0."""
        try:
            number = int(self.text(column))
        except ValueError:
            number = -1
        if not 0 <= number <= most:
            self._refuse(column, f"a whole number, 0 to {most}")
        return number

    def seconds(self, column: str) -> float | None:
        """Return a time; None if the value is empty."""
        text = self.text(column)
        try:
            seconds = float(text or "nan")
        except ValueError:
            seconds = inf
        if abs(seconds) > _LARGEST:
            self._refuse(column, f"seconds, at most {_LARGEST}, or nothing")
        return None if isnan(seconds) else seconds

    def check(self, column: str, expected: str, *, holds: bool) -> None:
        """Reject the line unless a condition holds."""
        if not holds:
            self._refuse(column, expected)

    def _refuse(self, column: str, expected: str) -> NoReturn:
        said = f"expected {expected}, not {self.text(column)!r}"
        raise TraceError(f"{self._place}: {column}: {said}")


def _node(row: _Row) -> TraceNode:
    return TraceNode(
        name=row.name("sn"),
        cpu=row.count("cpu_milli"),
        memory=row.count("memory_mib") * MIB,
        gpus=row.count("gpu"),
        product=row.text("model"),
    )


def _task(row: _Row) -> TraceTask:
    gpus, milli = row.count("num_gpu"), row.count("gpu_milli", _WHOLE)
    if gpus == 0:
        row.check("gpu_milli", "0 of a task without a GPU", holds=milli == 0)
    elif gpus == 1:
        row.check("gpu_milli", "1 to 1000 of a task with a GPU", holds=milli > 0)
    else:
        row.check("gpu_milli", "1000 of a task with several GPUs", holds=milli == _WHOLE)
    created, deleted = row.seconds("creation_time"), row.seconds("deletion_time")
    scheduled = row.seconds("scheduled_time")
    began = created if scheduled is None else scheduled
    in_order = began is None or deleted is None or began <= deleted
    row.check("deletion_time", "a time after the task's start", holds=in_order)
    return TraceTask(
        name=row.name("name"),
        cpu=row.count("cpu_milli"),
        memory=row.count("memory_mib") * MIB,
        gpus=gpus,
        milli=milli,
        products=tuple(filter(None, row.text("gpu_spec").split("|"))),
        created=created,
        scheduled=scheduled,
        deleted=deleted,
    )


def _read(path: Path, columns: Sequence[str], parse: Callable[[_Row], T]) -> tuple[T, ...]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return tuple(_rows(path, csv.reader(file, strict=True), columns, parse))
    except OSError as error:
        raise TraceError(f"{path}: expected a file that can be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: expected a CSV file in UTF-8") from error


def _rows(
    path: Path, lines: "_Reader", columns: Sequence[str], parse: Callable[[_Row], T]
) -> Iterator[T]:
    header: list[str] | None = None
    try:
        for line in lines:
            place = f"{path}:{lines.line_num}"
            if header is None:
                header = line
                if missing := [column for column in columns if column not in header]:
                    expected = f"the columns {', '.join(columns)}"
                    raise TraceError(f"{place}: expected {expected}; lacking {', '.join(missing)}")
            elif line and len(line) != len(header):
                raise TraceError(f"{place}: expected {len(header)} fields, not {len(line)}")
            elif line:
                yield parse(_Row(dict(zip(header, line, strict=True)), place))
    except csv.Error as error:
        raise TraceError(f"{path}:{lines.line_num}: expected CSV: {error}") from error
    if header is None:
        raise TraceError(f"{path}:1: expected the columns {', '.join(columns)}, not an empty file")
