"""When the waiting jobs of a snapshot start, in sampled futures under the active policy.

Each future is a simulation (`partita_policies.simulator`) that continues from the snapshot: the
run times of all jobs are drawn from what ended runs show, later arrivals come at the recent rate
and are drawn from the recent ones, and the policy itself decides. Predicting queue waits by
simulating the scheduler with predicted run times is the method of W. Smith, V. Taylor and
I. Foster, "Using Run-Time Predictions to Estimate Queue Wait Times and Improve Scheduler
Performance" (JSSPP 1999); sampling them instead of one prediction gives an interval.

Lasting jobs, which policies do not see, start in the futures as in the operator. Not in the
futures: what a policy makes of `Job.bypasses`, reservations for jobs that were passed over too
often, preemption, quotas, a limit of services other than the default, changes of GPUs, failures,
memory above a guarantee, and the phases of a profile (its mean counts).
`partita_policies.start_times.calibration` corrects intervals by what came.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from operator import attrgetter
from random import Random
from statistics import fmean, mode, stdev
from time import perf_counter, thread_time

from partita_policies.forecast import assumed_sm_share
from partita_policies.interference import SM_SATURATION
from partita_policies.running_jobs import waiting_job
from partita_policies.simulator.engine import Simulation
from partita_policies.simulator.tasks import Application, Task, mean_step
from partita_policies.start_times.history import Past
from partita_policies.types import Job, Policy, RunningJob, Snapshot, Step

__all__ = ["FARTHEST", "NOTICEABLE", "PROBABILITY", "Futures", "Outlook", "StartInterval", "Unsaid"]

PROBABILITY = 0.9
"""Probability with which an interval shall hold."""
FUTURES = 20
"""Most futures: the calibration corrects what more of them would change."""
LEAST_FUTURES = 8
"""Fewer futures say nothing. An assumption."""
FUTURES_OF_ONE = 11
"""Most if the start of one job alone is wanted: their extremes are as good as quantiles of 20."""
FEW_FUTURES = 3
"""Least of these: if it takes so long to simulate, the start depends on many run times, and is
taken as normally distributed."""
_DEVIATIONS = {3: 3.37, 4: 2.63, 5: 2.34, 6: 2.18, 7: 2.08}
"""Standard deviations from the mean of so few starts to the ends of the interval that another one
is in, by Student's t distribution."""
MOST_WAITING = 1000
"""The first jobs of the queue that are simulated: it bounds the time of one decision."""
MOST_LASTING = 50
"""Those of them that do not end by themselves: each event of a future tries to place all of them.
"""
_MOST_ARRIVALS = 300
"""Later arrivals in one future."""
_MORE = 0.5
"""Jobs arrive in a future for so much longer than the waiting jobs waited in earlier ones."""

_Future = Mapping[str, tuple[float, str]]
"""The start of each job, and the job whose run ended last before it."""
_NEVER = (inf, "")
NOTICEABLE = 0.8
"""A start is noticeably sooner after this part of the wait, or less. An assumption."""
FARTHEST = 10 * 365 * 86400.0
"""Seconds after which a start counts as never: an expectedDuration may be thousands of years, and
no client reads a time after the year 2999."""


class Unsaid(StrEnum):
    """Why nothing can be said about a job."""

    NO_GPU = "no GPU of the partition is ready"
    RUN_TIMES = "how long the jobs here run is unknown: none has ended yet, and they have neither an expectedDuration nor an ApplicationProfile"  # noqa: E501
    TOO_FAR = "too many wait before it: its start was not reached in the simulated time"
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
    not_before: Mapping[str, float] = field(default_factory=dict)
    """When some of these jobs start at the earliest, with the probability of an interval's end."""
    sampled: Sequence[_Future] = ()

    def awaited(self, job_id: str) -> str:
        """Return the job with whose end a job starts in most futures; empty if there is none."""
        ended = [starts.get(job_id, _NEVER)[1] for starts in self.sampled]
        most = mode(ended or [""])
        return most if 2 * ended.count(most) > len(ended) else ""

    def is_sooner(self, job_id: str, changed: str) -> bool:
        """Return whether a job starts noticeably sooner if changed, in nearly all futures."""
        tried = [starts for starts in self.sampled if changed in starts]
        sooner = [_is_sooner(starts, job_id, changed, self.time) for starts in tried]
        return sum(sooner) >= PROBABILITY * len(sooner)


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


class Futures:
    """Sampled futures of a snapshot.

    The same arguments give the same futures, but how many there are may depend on the CPU time.

    Parameters
    ----------
    policy
        An object of its own, for it may be called in another thread than the active one.
    budget
        Seconds of CPU time of all futures, which one decision of the policy may exceed. If it does
        not suffice, the futures are fewer and shorter.
    only
        Id of the only waiting job whose start is wanted, which ends each future; empty: of all.
    changed
        That job as it may be instead, each with an id of its own. Each is tried at the decisions of
        the same futures at which it has room, and starts with the unchanged one at the latest: a
        policy is assumed to place the others in the same way until then.
    enough
        Seconds of CPU time in which the fewest futures that say something suffice.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        past: Past,
        *,
        seed: int = 0,
        budget: float = inf,
        only: str = "",
        changed: Sequence[Job] = (),
        enough: float = inf,
    ) -> None:
        self.seconds = 0.0
        """CPU time so far."""
        self._snapshot, self._policy, self._past = snapshot, policy, past
        self._seed, self._budget, self._enough, self._only = seed, budget, enough, only
        self._least, self._most = (
            (FEW_FUTURES, FUTURES_OF_ONE) if only else (LEAST_FUTURES, FUTURES)
        )
        self._sampled: list[_Future] = []
        self._reached = inf
        """How far they are simulated."""
        self._longest = inf
        """Until when jobs arrive: what comes after the last of the waiting jobs delays none."""
        self._steps: dict[tuple[int, int], Step] = {}
        where: dict[str, tuple[RunningJob, list[str]]] = {}
        for gpu in snapshot.gpus:
            for run in gpu.running:
                where.setdefault(run.job, (run, []))[1].append(gpu.id)
        since = [run.started for run, _ in where.values() if run.started is not None]
        wait = [job for job in snapshot.jobs if job.id not in where]
        lasting = [job for job in wait if job.lasting][:MOST_LASTING]
        waiting = [*[job for job in wait if not job.lasting][:MOST_WAITING], *lasting]
        # Time 0 of the simulations, which know no negative times.
        self._origin = min([snapshot.time, *since, *(job.submitted for job in waiting)])
        self._now = snapshot.time - self._origin
        self._waiting = [replace(job, submitted=job.submitted - self._origin) for job in waiting]
        self._wanted = [job for job in self._waiting if only in {"", job.id}]
        self._changed = [replace(job, submitted=job.submitted - self._origin) for job in changed]
        # Those that have started noticeably sooner in all futures: of so few, all must show it.
        self._hopeful = self._changed
        # Drawn in this order, the last job, however it is changed, leaves the run times of others.
        self._by_age = sorted(self._waiting, key=attrgetter("submitted"))
        self._running = [self._resumed(run, gpu_ids) for run, gpu_ids in where.values()]
        self._why = self._why_none([*waiting, *(run for run, _ in where.values())])

    def _why_none(self, jobs: Sequence[Job | RunningJob]) -> Unsaid | None:
        """Return why nothing can be said about any job."""
        if not self._snapshot.gpus:
            return Unsaid.NO_GPU
        return None if all(self._past.times.known(job) for job in jobs) else Unsaid.RUN_TIMES

    def draw(self) -> bool:
        """Sample one more future; return whether another one is wanted."""
        if self._why is not None or not self._wanted:
            return False
        began, number = thread_time(), len(self._sampled)
        # The first one decides how far all of them are simulated.
        left = self._budget - self.seconds if number else self._budget / (1.5 * self._least)
        try:
            starts, reached = self._future(number, _Budget(left))
        except Exception:  # noqa: BLE001 - whatever a policy raises; the cycle reports it
            self._why = Unsaid.POLICY
            return False
        self.seconds += thread_time() - began
        if number == 0:
            self._reached = reached
        elif reached < self._reached:  # the budget is used up
            return False
        self._sampled.append(starts)
        now = self._snapshot.time
        self._hopeful = [
            job
            for job in self._hopeful
            if job.id not in starts or _is_sooner(starts, self._only, job.id, now)
        ]
        count = len(self._sampled)
        in_time = self.seconds * (count + 1) <= self._enough * count
        return count < (self._most if in_time else self._least) and self.seconds < self._budget

    def complete(self) -> Outlook:
        """Sample all that are wanted, and return what they say."""
        while self.draw():
            pass
        return self.outlook()

    def outlook(self) -> Outlook:
        """Return what the futures so far say."""
        time, ids = self._snapshot.time, [job.id for job in self._snapshot.jobs]
        last = time + FARTHEST
        if self._only:
            ids = [self._only, *(job.id for job in self._changed)]
        if self._why is None and self._wanted and len(self._sampled) < self._least:
            self._why = Unsaid.TOO_FAR
        if self._why is not None:
            return Outlook(time, {}, dict.fromkeys(ids, self._why))
        said = [*self._wanted, *self._changed] if self._wanted else []
        found = {job.id: _interval(job.id, self._sampled, time) for job in said}
        starts = {job_id: one for job_id, one in found.items() if one.latest < last}
        why = Unsaid.NEVER if self._reached == inf else Unsaid.TOO_FAR
        unsaid = {i: why if i in found else Unsaid.TOO_FAR for i in ids if i not in starts}
        reached = self._reached + self._origin
        earliest = {i: min(one.earliest, reached) for i, one in found.items() if i not in starts}
        not_before = {job_id: found for job_id, found in earliest.items() if found < last}
        return Outlook(time, starts, unsaid, not_before, self._sampled)

    def _resumed(
        self, run: RunningJob, gpu_ids: Sequence[str]
    ) -> tuple[Job, tuple[str, ...], float, float]:
        since = (self._snapshot.time if run.started is None else run.started) - self._origin
        done = self._past.progress.get(run.job, run.elapsed(self._snapshot.time))
        job = waiting_job(run, gpus=len(gpu_ids), submitted=since)
        return job, tuple(gpu_ids), since, done

    def _future(self, number: int, budget: _Budget) -> tuple[_Future, float]:
        """Return the starts of the waiting jobs in one future, and how far it was simulated."""
        random = Random(f"future {self._seed} {number}")  # noqa: S311 - repeatable, not secret
        running = [Task(job, self._truth(job, random, done)) for job, *_, done in self._running]
        waiting = [Task(job, self._truth(job, random)) for job in self._by_age]
        snapshot, starts = self._snapshot, dict[str, tuple[float, str]]()
        simulation = Simulation(
            [*waiting, *running, *self._arrivals(random)],
            snapshot.gpus,
            sharing=snapshot.sharing,
            nodes=snapshot.nodes,
            objective=snapshot.objective,
            now=self._now,
            counts_bypasses=False,
        )
        simulation.resume(self._waiting, self._running)
        left, hopeful = {job.id for job in self._wanted}, self._hopeful
        reached = inf
        while left and (state := simulation.next_decision()) is not None:
            if state.time > self._reached:
                reached = self._reached
                break
            room = simulation.capacity
            fits_any = next(room.candidates(state.jobs), None) is not None
            placements = self._policy.decide(state) if fits_any else ()
            fitting = [job for job in hopeful if room.first_fit(job) is not None]
            tried = self._starting(fitting, state) if fitting else set()
            started = simulation.apply(placements) & left
            if self._only in started:
                tried |= {job.id for job in self._changed if job.id not in starts}
            hopeful = [job for job in hopeful if job.id not in tried]
            ended = simulation.attempts[-1].job if simulation.attempts else ""
            starts.update(dict.fromkeys(started | tried, (state.time + self._origin, ended)))
            left -= started | simulation.lasting_since.keys()
            if left and budget.over:
                reached = state.time
                break
        for job_id, since in simulation.lasting_since.items():
            if since <= reached:
                starts[job_id] = since + self._origin, ""
        last = simulation.now
        if self._longest == inf or last > self._longest:
            self._longest = last + _MORE * (last - self._now)
        return starts, reached

    def _starting(self, fitting: Sequence[Job], state: Snapshot) -> set[str]:
        """Return with which of its changes the only job starts at a decision."""
        jobs = state.jobs
        place = next(n for n in reversed(range(len(jobs))) if jobs[n].id == self._only)
        before, after = jobs[:place], jobs[place + 1 :]
        found = set[str]()
        for job in fitting:
            turn = bisect_right(before, -job.priority, key=lambda other: -other.priority)
            asked = replace(state, jobs=(*before[:turn], job, *before[turn:], *after))
            if any(placed.job == job.id for placed in self._policy.decide(asked)):
                found.add(job.id)
        return found

    def _truth(self, job: Job, random: Random, done: float = 0.0) -> Application:
        work = 1.0 if job.lasting else self._past.times.draw(job, random, done)
        return Application(job.application or job.id, work, (self._step(job),))

    def _step(self, job: Job) -> Step:
        """Return the mean use of a job; without a profile, as `partita_policies.forecast` does."""
        profile = job.profile
        if profile is None or not profile.steps:
            share = assumed_sm_share(job, self._snapshot.gpus[0])
            return Step(100.0, job.memory, 100 * SM_SATURATION * share)
        key = id(profile), job.memory
        if key not in self._steps:
            step = mean_step(profile)
            self._steps[key] = replace(step, memory=min(step.memory, job.memory))
        return self._steps[key]

    def _arrivals(self, random: Random) -> list[Task]:
        rate = self._past.arrivals_per_second
        like = [job for job in self._past.arrived if self._past.times.known(job)]
        tasks: list[Task] = []
        time = self._now
        while like and rate and len(tasks) < _MOST_ARRIVALS:
            time += random.expovariate(rate)
            if time > self._longest:
                break
            job = replace(
                random.choice(like), id=f"arrival {len(tasks)}", submitted=time, bypasses=0
            )
            tasks.append(Task(job, self._truth(job, random)))
        return tasks


def _is_sooner(starts: _Future, job_id: str, changed: str, now: float) -> bool:
    """Return whether a job starts noticeably sooner in a future if changed."""
    return starts[changed][0] - now < NOTICEABLE * (starts.get(job_id, _NEVER)[0] - now)


def _interval(job_id: str, sampled: Sequence[_Future], now: float) -> StartInterval:
    """Return quantiles of the starts of a job; a future without its start counts as infinite."""
    ordered = sorted([starts.get(job_id, _NEVER)[0] for starts in sampled])
    if len(ordered) in _DEVIATIONS and ordered[-1] < inf:
        mean, margin = fmean(ordered), _DEVIATIONS[len(ordered)] * stdev(ordered)
        return StartInterval(max(mean - margin, now), mean, mean + margin)
    last, tail = len(ordered) - 1, (1 - PROBABILITY) / 2
    return StartInterval(*[ordered[round(share * last)] for share in (tail, 0.5, 1 - tail)])
