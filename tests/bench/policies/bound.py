"""A lower bound on the makespan of every schedule, on GPUs of one kind.

It looks at sets of jobs that may share a GPU, and at how fast each of them then goes
(`interference.slowdowns`, with what the applications really are), and chooses for how long each set
runs, such that all work is done. It ignores in which order: jobs may be interrupted, and the phases
of a job come in any order. A linear programme, by OR-tools; good for the study's workloads.

Simplified: where an application has more phases than can be told apart, neighbouring ones become
one that asks for the least of each resource, or a phase is left out, as if done in no time. Runs
of one application become alike: each takes the least of what any of them takes. No slowdown grows
when somebody asks for less, so what is found stays a lower bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import NamedTuple

from ortools.linear_solver import pywraplp

from partita_policies.interference import Load, load_of, slowdowns
from partita_policies.types import GPU, Sharing
from partita_research.simulator.tasks import Task

__all__ = ["TooLargeError", "mixture_bound"]

_MOST_PHASES = 6
_MOST_SETS = 30_000


class TooLargeError(ValueError):
    """There are more sets of jobs that may share a GPU than can be looked at."""


class _Phase(NamedTuple):
    load: Load
    work: float
    """Seconds, of all its jobs together."""

    @property
    def weight(self) -> float:
        return self.work * (self.load.sm + self.load.cache * self.load.busy)


@dataclass(frozen=True, slots=True)
class _Group:
    """Jobs alike."""

    jobs: int
    memory: int
    slots: int
    clients: int
    alone: bool
    phases: tuple[_Phase, ...]

    def coarse(self, most: int) -> "_Group":
        """Return it with fewer phases, each step where that loses least."""
        phases = self.phases
        while len(phases) > most:
            options = []
            for index, (first, second) in enumerate(pairwise(phases)):
                both = _Phase(_least(first.load, second.load), first.work + second.work)
                lost = first.weight + second.weight - both.weight
                options.append((lost, (*phases[:index], both, *phases[index + 2 :])))
            for index, phase in enumerate(phases):
                options.append((phase.weight, phases[:index] + phases[index + 1 :]))
            _, phases = min(options, key=lambda option: option[0])
        return replace(self, phases=phases)


_Member = tuple[int, int]
"""A group and a phase of it."""
_Set = tuple[tuple[_Member, ...], tuple[float, ...]]
"""Who runs together, one entry a job, and at which pace each."""


def mixture_bound(tasks: Sequence[Task], gpus: Sequence[GPU]) -> float:
    """Bound the makespan of every schedule under MPS that finishes all jobs, in seconds.

    Parameters
    ----------
    tasks
        Jobs of one GPU, each of which fits; when they arrive does not matter.
    gpus
        GPUs of one kind and of speed 1.

    Raises
    ------
    TooLargeError
        Too many sets of jobs may share a GPU.
    """
    groups, sets = _simplified(_groups(tasks, gpus[0]), gpus[0])
    solver = pywraplp.Solver.CreateSolver("GLOP")
    done = {
        (number, place): solver.Constraint(phase.work, solver.infinity())
        for number, group in enumerate(groups)
        for place, phase in enumerate(group.phases)
    }
    solver.Objective().SetMinimization()
    for members, paces in sets:
        seconds = solver.NumVar(0, solver.infinity(), "")
        solver.Objective().SetCoefficient(seconds, 1)
        progress: dict[_Member, float] = {}
        for member, pace in zip(members, paces, strict=True):
            progress[member] = progress.get(member, 0.0) + pace
        for member, pace in progress.items():
            done[member].SetCoefficient(seconds, pace)
    solver.Solve()
    # What the multipliers prove, whatever the solver's tolerances: by them no set does more work
    # in a second than `worth`.
    price = {member: max(constraint.dual_value(), 0.0) for member, constraint in done.items()}
    worth = max(
        sum(price[member] * pace for member, pace in zip(*entry, strict=True)) for entry in sets
    )
    work = sum(price[number, place] * groups[number].phases[place].work for number, place in done)
    return float(work / max(worth, 1e-12) / len(gpus))


def _groups(tasks: Sequence[Task], gpu: GPU) -> list[_Group]:
    alike: dict[tuple[str, int, bool, int], list[Task]] = {}
    for task in tasks:
        key = (task.truth.name, len(task.truth.steps), task.job.alone, task.job.thread_percent)
        alike.setdefault(key, []).append(task)
    return [_group(members, gpu) for members in alike.values()]


def _group(tasks: Sequence[Task], gpu: GPU) -> _Group:
    job = tasks[0].job
    threads = 100 if job.alone else job.thread_percent
    steps = len(tasks[0].truth.steps)
    work = sum(task.truth.duration for task in tasks) / steps
    loads = [
        _least(
            *(
                load_of(t.truth.steps[place], gpu, cache=t.truth.cache, thread_percent=threads)
                for t in tasks
            )
        )
        for place in range(steps)
    ]
    return _Group(
        jobs=len(tasks),
        # Who finishes has allocated its real peak.
        memory=min(max(task.job.memory, task.truth.peak_memory) for task in tasks),
        slots=min(task.job.slots for task in tasks),
        clients=min(task.job.clients for task in tasks),
        alone=job.alone,
        phases=tuple(_Phase(load, work * len([*equal])) for load, equal in groupby(loads)),
    )


def _simplified(groups: list[_Group], gpu: GPU) -> tuple[list[_Group], list[_Set]]:
    """Return the groups with as many phases as can be looked at, and the sets of them."""
    phases = max(len(group.phases) for group in groups)
    for most in range(min(phases, _MOST_PHASES), 0, -1):
        groups = [group.coarse(most) for group in groups]
        together = []
        for inside in _together(groups, gpu):
            together.append(inside)
            if len(together) > _MOST_SETS:
                break
        else:
            return groups, [(inside, _paces(inside, groups)) for inside in together]
    raise TooLargeError(f"more than {_MOST_SETS} sets of jobs may share a GPU")


def _paces(inside: Sequence[_Member], groups: Sequence[_Group]) -> tuple[float, ...]:
    loads = [groups[number].phases[place].load for number, place in inside]
    return tuple(1 / each for each in slowdowns(loads, Sharing.MPS))


def _together(groups: Sequence[_Group], gpu: GPU) -> Iterator[tuple[_Member, ...]]:
    """Yield all sets of jobs that may be on a GPU together."""
    members = [
        (number, place) for number, group in enumerate(groups) for place in range(len(group.phases))
    ]
    # Each entry: who is in, from which member on to add, and what is left.
    stack: list[tuple[tuple[_Member, ...], int, int, int, int]]
    stack = [((), 0, gpu.memory, gpu.max_jobs, gpu.max_clients)]
    while stack:
        inside, start, memory, slots, clients = stack.pop()
        if inside:
            yield inside
            if groups[inside[0][0]].alone:
                continue
        for index in range(start, len(members)):
            number = members[index][0]
            group = groups[number]
            if (
                group.memory <= memory
                and group.slots <= slots
                and group.clients <= clients
                and not (inside and group.alone)
                and sum(other == number for other, _ in inside) < group.jobs
            ):
                left = (memory - group.memory, slots - group.slots, clients - group.clients)
                stack.append(((*inside, members[index]), index, *left))


def _least(*loads: Load) -> Load:
    least = {
        name: min(getattr(load, name) for load in loads)
        for name in ("busy", "sm", "pcie", "memory", "cache")
    }
    return Load(**least, limit=max(load.limit for load in loads))
