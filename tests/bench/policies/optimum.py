"""How far from the optimum a schedule can be, on GPUs of one kind.

By OR-tools, which nothing else needs and which is imported where it is used. Both methods look at
sets of jobs that may share a GPU, and at how fast each of them then goes
(`interference.slowdowns`, with what the applications really are):

- `mixture_bound`: a lower bound on the makespan of every schedule. It chooses for how long each
  set runs, such that all work is done, and ignores in which order: jobs may be interrupted, and
  the phases of a job come in any order. A linear programme, good for the study's workloads.
- `small_optimum`: of a few jobs on one GPU, started once each and never interrupted, with their
  phases in order. CP-SAT; a lower bound, and the optimum itself where no phase was simplified.

Simplified: where an application has more phases than can be told apart, neighbouring ones become
one that asks for the least of each resource, or a phase is left out, as if done in no time. Runs
of one application become alike: each takes the least of what any of them takes. No slowdown grows
when somebody asks for less (tested), so what is found stays a lower bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from bench.policies.bounds import bounds, finishable
from partita_policies.interference import Load, load_of, slowdowns
from partita_policies.types import GPU, Sharing
from partita_research.simulator.tasks import Task

__all__ = ["Optimum", "TooLargeError", "mixture_bound", "small_optimum"]

_MOST_PHASES = 6
_MOST_SETS = 30_000
_TICK = 0.01
"""Seconds: small_optimum counts in whole ticks."""
_SCALE = 10_000
"""Paces are counted in whole parts of this."""


class TooLargeError(ValueError):
    """There are more sets of jobs that may share a GPU than can be looked at."""


class Optimum(NamedTuple):
    """What is known of the shortest makespan, seconds."""

    bound: float
    """No schedule of the real jobs is shorter."""
    found: float
    """Length of the best schedule found of the simplified jobs; real ones may take longer."""


class _Phase(NamedTuple):
    load: Load
    work: float
    """Seconds, of all its jobs together."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Jobs alike."""

    jobs: int
    memory: int
    slots: int
    clients: int
    alone: bool
    phases: tuple[_Phase, ...]

    def coarser(self) -> "_Group":
        """Return it with one phase less, where that loses least."""
        options = []
        for index, (first, second) in enumerate(pairwise(self.phases)):
            both = _Phase(_least(first.load, second.load), first.work + second.work)
            lost = _weight(first) + _weight(second) - _weight(both)
            options.append((lost, (*self.phases[:index], both, *self.phases[index + 2 :])))
        for index, phase in enumerate(self.phases):
            options.append((_weight(phase), self.phases[:index] + self.phases[index + 1 :]))
        _, phases = min(options, key=lambda option: option[0])
        return _Group(self.jobs, self.memory, self.slots, self.clients, self.alone, phases)


def _coarse(group: _Group, phases: int) -> _Group:
    while len(group.phases) > phases:
        group = group.coarser()
    return group


_Member = tuple[int, int]
"""A group and a phase of it."""
_Set = tuple[tuple[_Member, ...], tuple[float, ...]]
"""Who runs together, one entry a job, and at which pace each."""


def mixture_bound(
    tasks: Sequence[Task], gpus: Sequence[GPU], *, sharing: Sharing = Sharing.MPS
) -> float:
    """Bound the makespan of every schedule that finishes all jobs that can, from below.

    Parameters
    ----------
    tasks
        Jobs of one GPU; when they arrive does not matter.
    gpus
        GPUs of one kind and of speed 1.
    sharing
        How jobs share a GPU.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    TooLargeError
        Too many sets of jobs may share a GPU.
    ValueError
        The GPUs are not of one kind, or a job asks for more than one.
    """
    from ortools.linear_solver import (
        pywraplp,
    )

    groups, sets = _simplified(_groups(tasks, gpus, sharing), gpus[0], sharing)
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
    if not done:
        return 0.0
    solver.Solve()
    # What the multipliers prove, whatever the solver's tolerances: by them no set does more work
    # in a second than `worth`.
    price = {member: max(constraint.dual_value(), 0.0) for member, constraint in done.items()}
    worth = max(
        sum(price[member] * pace for member, pace in zip(*entry, strict=True)) for entry in sets
    )
    work = sum(price[number, place] * groups[number].phases[place].work for number, place in done)
    return float(work / max(worth, 1e-12) / len(gpus))


def small_optimum(
    tasks: Sequence[Task],
    gpu: GPU,
    *,
    sharing: Sharing = Sharing.MPS,
    phases: int = 1,
    seconds: float = 10.0,
) -> Optimum:
    """Find the shortest makespan of a few jobs that are all there from the start.

    It is exact where every job asks for the same all the time. Of others, `mixture_bound` often
    tells more, and the larger of the two is returned.

    Parameters
    ----------
    tasks
        Jobs of one GPU; six are many.
    gpu
        The GPU, of speed 1.
    sharing
        How they share it.
    phases
        How many phases of a job to tell apart. With one, six jobs take seconds; with more, four
        may take minutes.
    seconds
        How long to search; the bound holds whenever it ends.

    Raises
    ------
    TooLargeError, ValueError
        As in `mixture_bound`.
    """
    from ortools.sat.python import cp_model

    groups = [group for task in tasks for group in _groups([task], [gpu], sharing)]
    groups = [_coarse(group, phases) for group in groups]
    sets = _sets(groups, gpu, sharing)
    # A schedule changes only where a job starts or a phase ends.
    periods = range(len(groups) + sum(len(group.phases) for group in groups))
    horizon = int(sum(phase.work for group in groups for phase in group.phases) / _TICK) + 1
    model = cp_model.CpModel()
    runs = [[model.new_bool_var("") for _ in sets] for _ in periods]
    ticks = [[model.new_int_var(0, horizon, "") for _ in sets] for _ in periods]
    for period in periods:
        model.add_at_most_one(runs[period])
        if period:
            model.add(sum(runs[period]) <= sum(runs[period - 1]))
        for run, length in zip(runs[period], ticks[period], strict=True):
            model.add(length <= horizon * run)
    for number, group in enumerate(groups):
        places = range(len(group.phases))
        within = [
            [_present(runs[period], sets, (number, place)) for place in places]
            for period in periods
        ]
        for place in places:
            model.add(
                sum(
                    int(pace * _SCALE) * length + length
                    for period in periods
                    for (members, paces), length in zip(sets, ticks[period], strict=True)
                    for member, pace in zip(members, paces, strict=True)
                    if member == (number, place)
                )
                >= int(group.phases[place].work / _TICK * _SCALE)
            )
        starts = []
        for period in periods:
            start = model.new_bool_var("")
            before = sum(within[period - 1]) if period else 0
            model.add(start >= sum(within[period]) - before)
            starts.append(start)
        model.add_at_most_one(starts)
        for period in periods[1:]:
            for later in places:
                for earlier in places[:later]:
                    model.add(within[period - 1][later] + within[period][earlier] <= 1)
    model.minimize(sum(length for period in periods for length in ticks[period]))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    found = solver.status_name(status) in {"OPTIMAL", "FEASIBLE"}
    # Rounding each period up to whole ticks makes a schedule longer by less than one each.
    proven = (solver.best_objective_bound - len(periods)) * _TICK
    simple = bounds(tasks, [gpu], sharing=sharing).best
    bound = max(proven, simple, mixture_bound(tasks, [gpu], sharing=sharing))
    return Optimum(bound, solver.objective_value * _TICK if found else horizon * _TICK)


def _present(runs: Sequence[Any], sets: Sequence[_Set], member: _Member) -> Any:
    return sum(run for run, (members, _) in zip(runs, sets, strict=True) if member in members)


def _groups(tasks: Sequence[Task], gpus: Sequence[GPU], sharing: Sharing) -> list[_Group]:
    kinds = {(gpu.memory, gpu.max_jobs, gpu.max_clients, gpu.pcie_bandwidth) for gpu in gpus}
    if len(kinds) != 1:
        raise ValueError("GPUs: expected some of one kind")
    able = finishable(tasks, gpus)
    if any(task.job.gpus > 1 for task in able):
        raise ValueError("jobs: expected jobs of one GPU")
    alike: dict[tuple[str, int, bool, int], list[Task]] = {}
    for task in able:
        key = (task.truth.name, len(task.truth.steps), task.job.alone, task.job.thread_percent)
        alike.setdefault(key, []).append(task)
    return [_group(members, gpus[0], sharing) for members in alike.values()]


def _group(tasks: Sequence[Task], gpu: GPU, sharing: Sharing) -> _Group:
    job = tasks[0].job
    threads = 100 if job.alone else job.thread_percent
    total = sum(task.truth.duration for task in tasks)
    steps = len(tasks[0].truth.steps)
    phases: list[_Phase] = []
    for place in range(steps):
        loads = [
            load_of(task.truth.steps[place], gpu, cache=task.truth.cache, thread_percent=threads)
            for task in tasks
        ]
        load = _least(*loads)
        if phases and phases[-1].load == load:
            phases[-1] = _Phase(load, phases[-1].work + total / steps)
        else:
            phases.append(_Phase(load, total / steps))
    allocated = [task.job.memory for task in tasks]
    if sharing is Sharing.MPS:  # who finishes has allocated its real peak
        allocated = [max(task.job.memory, task.truth.peak_memory) for task in tasks]
    return _Group(
        jobs=len(tasks),
        memory=min(allocated),
        slots=min(task.job.slots for task in tasks),
        clients=min(task.job.clients for task in tasks),
        alone=job.alone,
        phases=tuple(phases),
    )


def _simplified(
    groups: list[_Group], gpu: GPU, sharing: Sharing
) -> tuple[list[_Group], list[_Set]]:
    """Return the groups with as many phases as can be looked at, and the sets of them."""
    phases = max((len(group.phases) for group in groups), default=1)
    for most in range(min(phases, _MOST_PHASES), 0, -1):
        groups = [_coarse(group, most) for group in groups]
        try:
            return groups, _sets(groups, gpu, sharing)
        except TooLargeError:
            continue
    raise TooLargeError(f"more than {_MOST_SETS} sets of jobs may share a GPU")


def _sets(groups: Sequence[_Group], gpu: GPU, sharing: Sharing) -> list[_Set]:
    """Return all sets of jobs that may be on a GPU together."""
    found = []
    for inside in _together(groups, gpu, sharing):
        found.append(inside)
        if len(found) > _MOST_SETS:
            raise TooLargeError(f"more than {_MOST_SETS} sets of jobs may share a GPU")
    sets = []
    for inside in found:
        slow = slowdowns([groups[number].phases[place].load for number, place in inside], sharing)
        sets.append((inside, tuple(1 / each for each in slow)))
    return sets


def _together(
    groups: Sequence[_Group], gpu: GPU, sharing: Sharing
) -> Iterator[tuple[_Member, ...]]:
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
            if sharing is Sharing.EXCLUSIVE or groups[inside[0][0]].alone:
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
    return Load(
        busy=min(load.busy for load in loads),
        sm=min(load.sm for load in loads),
        pcie=min(load.pcie for load in loads),
        memory=min(load.memory for load in loads),
        cache=min(load.cache for load in loads),
        limit=max(load.limit for load in loads),
    )


def _weight(phase: _Phase) -> float:
    load = phase.load
    return phase.work * (load.sm + load.cache * load.busy)
