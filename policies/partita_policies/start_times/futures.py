"""When the waiting jobs of a snapshot start, in sampled futures under the active policy.

Each future is a simulation (`partita_policies.simulator`) that continues from the snapshot: the
run times of all jobs are drawn from what ended runs show, later arrivals come at the recent rate
and are drawn from the recent ones, and the policy itself decides. Predicting queue waits by
simulating the scheduler with predicted run times is the method of W. Smith, V. Taylor and
I. Foster, "Using Run-Time Predictions to Estimate Queue Wait Times and Improve Scheduler
Performance" (JSSPP 1999); sampling them instead of one prediction gives an interval.

Not in the futures: reservations for jobs that were passed over too often, preemption, quotas,
changes of GPUs, failures, memory above a guarantee, and the phases of a profile (its mean counts).
`partita_policies.start_times.calibration` corrects intervals by what came.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from random import Random
from time import perf_counter, thread_time

from partita_policies.interference import SM_SATURATION
from partita_policies.simulator.engine import Simulation
from partita_policies.simulator.lasting import mean_step
from partita_policies.simulator.tasks import Application, Task
from partita_policies.start_times.history import Past
from partita_policies.types import Job, Policy, RunningJob, Snapshot, Step

__all__ = ["PROBABILITY", "Outlook", "StartInterval", "Unsaid", "expected_starts"]

PROBABILITY = 0.9
"""Probability with which an interval shall hold."""
FUTURES = 20
"""Most futures: the calibration corrects what more of them would change."""
LEAST_FUTURES = 8
"""Fewer futures say nothing. An assumption."""
MOST_WAITING = 1000
"""The first jobs of the queue that are simulated: it bounds the time of one decision."""
_MOST_ARRIVALS = 300
"""Later arrivals in one future."""
_MORE = 0.5
"""Jobs arrive in a future for so much longer than the waiting jobs waited in earlier ones."""


class Unsaid(StrEnum):
    """Why nothing can be said about a job."""

    RUN_TIMES = "how long the jobs here run is unknown: none has ended yet, and they have neither an expectedDuration nor an ApplicationProfile"  # noqa: E501
    TOO_FAR = "it is too far back in the queue to be simulated"
    NEVER = "it does not start in most of the simulated futures: its room is not released"
    POLICY = "the policy cannot be simulated"


@dataclass(frozen=True, slots=True)
class StartInterval:
    """When a job starts, as `Snapshot.time`."""

    earliest: float
    middle: float
    latest: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the futures of a snapshot say about its waiting jobs."""

    time: float
    """That of the snapshot."""
    starts: Mapping[str, StartInterval]
    """By id of the job."""
    unsaid: Mapping[str, Unsaid]
    """By id of each other job."""
    futures: int = 0


class _Budget:
    """CPU time of this thread, which is read only once as much time has passed: that is slow."""

    def __init__(self, seconds: float) -> None:
        self._deadline = thread_time() + seconds
        self._check = perf_counter() + seconds

    @property
    def over(self) -> bool:
        if perf_counter() < self._check:
            return False
        left = self._deadline - thread_time()
        self._check = perf_counter() + left
        return left <= 0


@dataclass(slots=True)
class _Sampler:
    """Draws and simulates futures of a snapshot."""

    snapshot: Snapshot
    policy: Policy
    past: Past
    seed: int
    origin: float = field(init=False)
    """Time 0 of the simulations: they know no negative times."""
    waiting: list[Job] = field(init=False)
    running: list[tuple[Job, tuple[str, ...], float, float]] = field(init=False)
    longest: float = inf
    """Until when jobs arrive: what comes after the last of the waiting jobs delays none of them."""
    _steps: dict[tuple[int, int], Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        where: dict[str, tuple[RunningJob, list[str]]] = {}
        for gpu in snapshot.gpus:
            for run in gpu.running:
                where.setdefault(run.job, (run, []))[1].append(gpu.id)
        since = [run.started for run, _ in where.values() if run.started is not None]
        waiting = [job for job in snapshot.jobs if job.id not in where][:MOST_WAITING]
        self.origin = min([snapshot.time, *since, *(job.submitted for job in waiting)])
        self.waiting = [replace(job, submitted=job.submitted - self.origin) for job in waiting]
        self.running = [self._resumed(run, gpu_ids) for run, gpu_ids in where.values()]

    def _resumed(
        self, run: RunningJob, gpu_ids: Sequence[str]
    ) -> tuple[Job, tuple[str, ...], float, float]:
        since = (self.snapshot.time if run.started is None else run.started) - self.origin
        done = self.past.progress.get(run.job, run.elapsed(self.snapshot.time))
        job = Job(
            id=run.job,
            name=run.job,
            namespace=run.namespace,
            memory=run.memory,
            memory_limit=run.memory_limit,
            application=run.application,
            thread_percent=run.thread_percent,
            gpus=len(gpu_ids),
            slots=run.slots,
            clients=run.clients,
            alone=run.alone,
            priority=run.priority,
            duration=run.duration,
            submitted=since,
            profile=run.profile,
            cpu=run.cpu,
            host_memory=run.host_memory,
            host_storage=run.host_storage,
            lasting=run.lasting,
        )
        return job, tuple(gpu_ids), since, done

    @property
    def now(self) -> float:
        return self.snapshot.time - self.origin

    def future(self, number: int, budget: _Budget, until: float) -> tuple[dict[str, float], float]:
        """Return the starts of the waiting jobs in one future, and how far it was simulated."""
        random = Random(f"future {self.seed} {number}")  # noqa: S311 - repeatable, not secret
        running = [Task(job, self._truth(job, random, done)) for job, *_, done in self.running]
        waiting = [Task(job, self._truth(job, random)) for job in self.waiting]
        snapshot, starts = self.snapshot, dict[str, float]()
        simulation = Simulation(
            [*waiting, *running, *self._arrivals(random)],
            snapshot.gpus,
            sharing=snapshot.sharing,
            nodes=snapshot.nodes,
            objective=snapshot.objective,
            now=self.now,
        )
        simulation.resume(self.waiting, self.running)
        left = {job.id for job in self.waiting}
        reached = inf
        while left and (state := simulation.next_decision()) is not None:
            if state.time > until:
                reached = until
                break
            started = simulation.apply(self.policy.decide(state)) & left
            left -= started
            starts.update(dict.fromkeys(started, state.time + self.origin))
            if left and budget.over:
                reached = state.time
                break
        last = simulation.now
        if self.longest == inf or last > self.longest:
            self.longest = last + _MORE * (last - self.now)
        return starts, reached

    def _truth(self, job: Job, random: Random, done: float = 0.0) -> Application:
        work = 1.0 if job.lasting else self.past.times.draw(job, random, done)
        return Application(job.application or job.id, work, (self._step(job),))

    def _step(self, job: Job) -> Step:
        """Return the mean use of a job; without a profile, as `partita_policies.forecast` does."""
        profile, whole = job.profile, self.snapshot.gpus[0].memory
        if profile is None or not profile.steps:
            share = job.memory / whole if whole and not job.alone else 1.0
            return Step(100.0, job.memory, 100 * SM_SATURATION * min(share, 1.0))
        key = id(profile), job.memory
        if key not in self._steps:
            step = mean_step(profile)
            self._steps[key] = replace(step, memory=min(step.memory, job.memory))
        return self._steps[key]

    def _arrivals(self, random: Random) -> list[Task]:
        rate = self.past.arrivals_per_second
        like = [job for job in self.past.arrived if self.past.times.known(job)]
        tasks: list[Task] = []
        time = self.now
        while like and rate and len(tasks) < _MOST_ARRIVALS:
            time += random.expovariate(rate)
            if time > self.longest:
                break
            job = replace(
                random.choice(like), id=f"arrival {len(tasks)}", submitted=time, bypasses=0
            )
            tasks.append(Task(job, self._truth(job, random)))
        return tasks


def expected_starts(
    snapshot: Snapshot,
    policy: Policy,
    past: Past,
    *,
    seed: int = 0,
    budget: float = inf,
    futures: int = FUTURES,
    probability: float = PROBABILITY,
) -> Outlook:
    """Return when the waiting jobs of a snapshot start.

    The same arguments give the same answer, unless the budget is used up.

    Parameters
    ----------
    policy
        An object of its own, for it may be called in another thread than the active one.
    budget
        Seconds of CPU time, which one decision of the policy may exceed. If it does not suffice,
        the futures are fewer and shorter.
    futures
        Most futures.
    """
    ids = [job.id for job in snapshot.jobs]
    jobs: list[Job | RunningJob] = [*snapshot.jobs[:MOST_WAITING]]
    jobs += [run for gpu in snapshot.gpus for run in gpu.running]
    if not ids or not snapshot.gpus:
        return Outlook(snapshot.time, {}, dict.fromkeys(ids, Unsaid.NEVER))
    if not all(past.times.known(job) for job in jobs):
        return Outlook(snapshot.time, {}, dict.fromkeys(ids, Unsaid.RUN_TIMES))
    whole, part = _Budget(budget), _Budget(budget / (2 * LEAST_FUTURES))
    sampler = _Sampler(snapshot, policy, past, seed)
    sampled: list[dict[str, float]] = []
    try:
        first, until = sampler.future(0, part, inf)
        sampled.append(first)
        for number in range(1, futures):
            starts, reached = sampler.future(number, whole, until)
            if reached < until:  # the budget is used up
                break
            sampled.append(starts)
    except Exception:  # noqa: BLE001 - whatever a policy raises; the cycle reports it
        return Outlook(snapshot.time, {}, dict.fromkeys(ids, Unsaid.POLICY))
    if len(sampled) < LEAST_FUTURES:
        return Outlook(snapshot.time, {}, dict.fromkeys(ids, Unsaid.TOO_FAR), len(sampled))
    intervals = {job.id: _interval(job.id, sampled, probability) for job in sampler.waiting}
    starts_of = {job_id: found for job_id, found in intervals.items() if found.latest < inf}
    why = Unsaid.NEVER if until == inf else Unsaid.TOO_FAR
    unsaid = {i: why if i in intervals else Unsaid.TOO_FAR for i in ids if i not in starts_of}
    return Outlook(snapshot.time, starts_of, unsaid, len(sampled))


def _interval(
    job_id: str, sampled: Sequence[Mapping[str, float]], probability: float
) -> StartInterval:
    """Return quantiles of the starts of a job; a future without its start counts as infinite."""
    ordered = sorted([starts.get(job_id, inf) for starts in sampled])
    last, tail = len(ordered) - 1, (1 - probability) / 2
    return StartInterval(*[ordered[round(share * last)] for share in (tail, 0.5, 1 - tail)])
