"""Discrete-event simulation of jobs on GPUs.

Time advances from event to event: a job arrives, or a run reaches a part of its profile with
another load, ends, or is killed. Only these events change the load of a GPU, so the paces of its
runs are recomputed only then, by `partita_policies.interference` from the true behaviour of the
applications. All simultaneous events are handled before the next decision of the policy.

Memory. Under MPS an allocation is a limit: only the job that requests more is killed. A job whose
ceiling (`Job.memory_limit`) is above its allocation borrows memory that is free, and is evicted if
another job needs that memory for its own allocation (`partita_policies.memory_pressure`). Without
limits, if the jobs of a GPU request more than its memory, the job that requested last is killed. A
killed job returns to the queue with the request that `requeue` computes, and starts over.

Lasting jobs (`Job.lasting`) start before each decision, as in the operator, and policies see them
as running jobs. Each has the mean load of its application until the end of the simulation.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import perf_counter
from types import MappingProxyType

from partita_policies.capacity import FreeCapacity
from partita_policies.memory_pressure import evicted_for
from partita_policies.misfits import shape_of, size_of
from partita_policies.simulator.lasting import place_lasting
from partita_policies.simulator.requeue import after_eviction, after_out_of_memory, bypassed
from partita_policies.simulator.results import (
    Result,
    SimulatedAttempt,
    SimulatedOutcome,
    job_result,
)
from partita_policies.simulator.runs import Device, Run, Runs, speed_of
from partita_policies.simulator.tasks import Task, check_tasks
from partita_policies.types import GPU, Job, Node, Objective, Placement, Policy, Sharing, Snapshot

__all__ = ["Simulation", "simulate"]

_EQUAL_SPEED: Mapping[str, float] = MappingProxyType({})


class Simulation:
    """A simulation of jobs on GPUs that stops at every decision.

    Parameters
    ----------
    tasks
        The jobs. With equal priority and arrival, the first one is the oldest.
    gpus
        The GPUs. They start empty: their `running` is ignored.
    sharing
        How jobs share a GPU.
    speeds
        Speed of each GPU product, relative to the product to which durations refer; 1 by default.
    nodes
        CPU and memory of nodes; those of nodes that are not listed are not checked.
    objective
        What the policy shall achieve.
    now
        When the simulation begins; jobs that have arrived before come by `resume`.
    counts_bypasses
        Whether `Job.bypasses` grows, which takes as long as the decisions if many jobs wait.

    Raises
    ------
    ValueError
        Two jobs or GPUs have the same id, an arrival is not a number of at least 0, or a speed is
        not a number above 0.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        gpus: Sequence[GPU],
        *,
        sharing: Sharing = Sharing.MPS,
        speeds: Mapping[str, float] = _EQUAL_SPEED,
        nodes: Sequence[Node] = (),
        objective: Objective = Objective.MAKESPAN,
        now: float = 0.0,
        counts_bypasses: bool = True,
    ) -> None:
        check_tasks(tasks)
        self.rejected = 0
        """Number of placements that exceeded a limit."""
        self.decisions = 0
        self.attempts: list[SimulatedAttempt] = []
        """Those that have ended."""
        self.lasting_since: dict[str, float] = {}
        """When each lasting job last started, by id."""
        self._sharing, self._counts_bypasses = sharing, counts_bypasses
        self._tasks = tasks
        empty = [replace(gpu, running=()) for gpu in gpus]
        devices = [Device(gpu, speed_of(gpu, speeds), row) for row, gpu in enumerate(empty)]
        self._devices = {device.gpu.id: device for device in devices}
        if len(self._devices) < len(empty):
            raise ValueError("GPUs: expected ids that differ")
        self._runs = Runs(tasks, devices, sharing, now)
        self._idle, self.capacity = FreeCapacity(empty, nodes), FreeCapacity(empty, nodes)
        """What is free on empty GPUs, and now: only the simulation changes it."""
        self._fixed = (sharing, True, tuple(nodes), objective)
        self._rank = {
            task.job.id: (-task.job.priority, task.job.submitted, order)
            for order, task in enumerate(tasks)
        }
        self._arrivals = sorted(tasks, key=lambda task: task.job.submitted, reverse=True)
        self._fits: dict[tuple[object, ...], bool] = {}
        """Whether a request fits empty GPUs."""
        self._waiting, self._waiting_lasting = list[Job](), list[Job]()
        self._news = False
        self._seconds_of_finished = 0.0
        self._lost: dict[str, SimulatedOutcome] = {}
        self._reclaims: Counter[str] = Counter()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._runs.now

    @property
    def work_total(self) -> float:
        """Seconds of work of all jobs that end."""
        return sum(task.truth.duration for task in self._tasks if not task.job.lasting)

    @property
    def seconds_in_system(self) -> float:
        """Seconds that jobs have waited and run so far, without lasting and lost ones."""
        jobs = [*self._waiting, *(run.job for run in self._runs.of.values() if not run.job.lasting)]
        return self._seconds_of_finished + sum([self.now - job.submitted for job in jobs])

    def next_decision(self) -> Snapshot | None:
        """Simulate until the next decision.

        Returns
        -------
        Snapshot or None
            A snapshot with waiting jobs: since the last decision, a job arrived or resources were
            released. None at the end of the simulation.
        """
        while not (self._news and self._waiting):
            if not self._advance():
                return None
            self._start_lasting()
        self._news = False
        self.decisions += 1
        jobs, gpus = tuple(self._waiting), tuple(self._runs.views())
        return Snapshot("simulated", self.now, jobs, gpus, *self._fixed)

    def resume(
        self, waiting: Sequence[Job], running: Sequence[tuple[Job, Sequence[str], float, float]]
    ) -> None:
        """Continue from a state in which jobs wait and run already.

        Parameters
        ----------
        waiting
            In queue order, which they keep: later arrivals of the same priority are behind them.
        running
            Each with the ids of its GPUs, the time of its start, and the seconds of its work that
            are done.
        """
        there = {job.id for job in waiting} | {job.id for job, *_ in running}
        self._arrivals = [task for task in self._arrivals if task.job.id not in there]
        for order, job in enumerate(waiting):
            self._rank[job.id] = (-job.priority, -1.0, order)
        self._waiting = [job for job in waiting if not job.lasting]
        self._waiting_lasting = [job for job in waiting if job.lasting]
        self._news = True
        for job, gpu_ids, since, done in running:
            self.capacity.allocate(job, gpu_ids)
            devices = [self._devices[gpu_id] for gpu_id in gpu_ids]
            self._runs.start(job, devices, since=since, done=done)
        self._settle()

    def apply(self, placements: Sequence[Placement]) -> set[str]:
        """Start jobs according to placements; reject placements that do not fit.

        Returns
        -------
        set of str
            Ids of the started jobs.
        """
        started, places = set[str](), self._places({placement.job for placement in placements})
        for placement in placements:
            place = places.get(placement.job)
            job = None if place is None else self._waiting[place]
            if job is None or self.capacity.why_not_together(job, placement.gpus) is not None:
                self.rejected += 1
                continue
            self.capacity.allocate(job, placement.gpus)
            self._runs.start(job, [self._devices[gpu_id] for gpu_id in placement.gpus])
            started.add(job.id)
        if started:
            self._leave_queue(sorted([places[job_id] for job_id in started]))
            self._settle()
        return started

    def _places(self, chosen: set[str]) -> dict[str, int]:
        """Return the places in the queue of these jobs, as far as they are there."""
        places: dict[str, int] = {}
        for place, job in enumerate(self._waiting if chosen else ()):
            if job.id in chosen:
                places[job.id] = place
                if len(places) == len(chosen):
                    break
        return places

    def _start_lasting(self) -> None:
        """Start the lasting jobs that can start."""
        if not self._waiting_lasting:
            return
        placed = place_lasting(
            self._waiting_lasting, self._runs.views(), self.capacity, self._sharing
        )
        for job, gpu_ids in placed:
            self._waiting_lasting.remove(job)
            self._runs.start(job, [self._devices[gpu_id] for gpu_id in gpu_ids])
            self.lasting_since[job.id] = self.now
        self._settle()

    def run(self, policy: Policy, tell: Callable[[float], None] = lambda _: None) -> Result:
        """Simulate to the end under a policy, whose exceptions propagate.

        Parameters
        ----------
        tell
            Called before each decision with the share of the jobs that have run.
        """
        seconds: list[float] = []
        while (snapshot := self.next_decision()) is not None:
            tell(min(len(self.attempts) / len(self._tasks), 1.0))
            start = perf_counter()
            placements = policy.decide(snapshot)
            seconds.append(perf_counter() - start)
            self.apply(placements)
        return self.result(seconds)

    def result(self, seconds: Sequence[float] = ()) -> Result:
        """Return the result so far.

        Parameters
        ----------
        seconds
            Latency of each decision.
        """
        lasting = [run for run in self._runs.of.values() if run.job.lasting]
        still = [self._attempt(run, SimulatedOutcome.RUNNING, self.now) for run in lasting]
        attempts = (*self.attempts, *still)
        by_job: dict[str, list[SimulatedAttempt]] = {}
        for attempt in attempts:
            by_job.setdefault(attempt.job, []).append(attempt)
        jobs = [task.job for task in self._tasks]
        return Result(
            gpus=tuple(device.gpu for device in self._devices.values()),
            jobs=tuple(
                [job_result(job, by_job.get(job.id, ()), self._lost.get(job.id)) for job in jobs]
            ),
            attempts=attempts,
            timeline=self._runs.timeline(),
            decisions=self.decisions,
            rejected=self.rejected,
            seconds=tuple(seconds),
        )

    def _advance(self) -> bool:
        """Handle events up to the next that may lead to a start; return whether there were any."""
        arrivals = self._arrivals
        until = arrivals[-1].job.submitted if arrivals else inf
        finishes = 0 if self._waiting_lasting else 1 if self._waiting else len(self._tasks)
        if not self._runs.advance(until, finishes):
            return False
        for run, time in self._runs.finished():
            self._seconds_of_finished += time - run.job.submitted
            self._end(run, SimulatedOutcome.FINISHED, time)
        while arrivals and arrivals[-1].job.submitted <= self._runs.horizon:
            self._arrive(arrivals.pop().job)
        self._settle()
        return True

    def _arrive(self, job: Job) -> None:
        if self._sharing is Sharing.EXCLUSIVE:
            job = replace(job, alone=True)
        if job.memory_limit:
            limit = min(job.memory_limit, self._most(job)) if self._sharing is Sharing.MPS else 0
            job = replace(job, memory_limit=limit)
        request = shape_of(job), size_of(job)
        fits = self._fits.get(request)
        if fits is None:
            fits = self._fits[request] = self._idle.first_fit(job) is not None
        if fits:
            self._queue(job)
        else:
            self._lost[job.id] = SimulatedOutcome.NEVER_FITS

    def _queue(self, job: Job) -> None:
        insort(self._waiting_lasting if job.lasting else self._waiting, job, key=self._place)
        self._news = True

    def _place(self, job: Job) -> tuple[int, bool, float, int]:
        """Return the sort key of the queue: by priority, reclaimed jobs first, then by age."""
        priority, submitted, order = self._rank[job.id]
        return priority, not job.reclaimed, submitted, order

    def _leave_queue(self, started: Sequence[int]) -> None:
        """Remove jobs by their places, in order; count a bypass for each ahead of one of them."""
        waiting = self._waiting
        if self._counts_bypasses:
            waiting[: started[-1]] = map(bypassed, waiting[: started[-1]])
        for place in reversed(started):
            del waiting[place]

    def _end(self, run: Run, outcome: SimulatedOutcome, time: float) -> None:
        self.capacity.give_back(run.job.id)
        self.attempts.append(self._attempt(run, outcome, time))
        self._news = True

    def _kill(self, run: Run, outcome: SimulatedOutcome) -> None:
        self._runs.end(run)
        self._end(run, outcome, self.now)

    def _attempt(self, run: Run, outcome: SimulatedOutcome, time: float) -> SimulatedAttempt:
        gpu_ids = tuple([device.gpu.id for device in run.devices])
        alone = run.seconds_alone(time)
        return SimulatedAttempt(
            run.job.id, gpu_ids, run.start, time, outcome, run.job.memory, alone
        )

    def _settle(self) -> None:
        """Let runs have the memory that they request, or kill those whose request fails."""
        while (run := self._runs.settle()) is not None:
            evicted = self._evicted_for(run)
            if evicted is None:
                self._refuse(run)
            else:
                for other in evicted:
                    self._reclaim(other, other.memory)

    def _evicted_for(self, run: Run) -> list[Run] | None:
        """Return the runs that are evicted for a memory request; None if the request fails."""
        evicted: dict[Run, None] = {}
        for device in run.devices:
            runs = device.runs.values()
            others = [other for other in runs if other is not run and other not in evicted]
            more = evicted_for(run.wanted, run, others, device.gpu.memory)
            if more is None:
                return None
            evicted.update(dict.fromkeys(more))
        return list(evicted)

    def _refuse(self, run: Run) -> None:
        job = run.job
        if self._sharing is Sharing.MPS and run.guarantee < run.wanted <= run.ceiling:
            self._reclaim(run, run.wanted)  # it may have that much, but none is free
            return
        self._kill(run, SimulatedOutcome.OUT_OF_MEMORY)
        had = min(device.gpu.memory for device in run.devices) if job.alone else job.memory
        larger = after_out_of_memory(job, had, self._most(job))
        if larger is None:
            self._lost[job.id] = SimulatedOutcome.OUT_OF_MEMORY
        else:
            self._queue(larger)

    def _most(self, job: Job) -> int:
        """Return the bytes of the largest GPU that a job can use."""
        return max((self._idle.reach(job, gpu_id) for gpu_id in self._devices), default=0)

    def _reclaim(self, run: Run, needed: int) -> None:
        """End a run of which other jobs need the memory above its guarantee."""
        self._kill(run, SimulatedOutcome.RECLAIMED)
        job_id = run.job.id
        self._reclaims[job_id] += 1
        self._queue(after_eviction(run.job, needed, self._reclaims[job_id]))


def simulate(
    tasks: Sequence[Task],
    gpus: Sequence[GPU],
    policy: Policy,
    *,
    sharing: Sharing = Sharing.MPS,
    speeds: Mapping[str, float] = _EQUAL_SPEED,
    nodes: Sequence[Node] = (),
    objective: Objective = Objective.MAKESPAN,
) -> Result:
    """Simulate jobs on GPUs under a policy to the end.

    Parameters and errors are those of `Simulation`. Exceptions of the policy propagate.
    """
    return Simulation(
        tasks, gpus, sharing=sharing, speeds=speeds, nodes=nodes, objective=objective
    ).run(policy)
