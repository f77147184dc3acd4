"""Plans for waiting jobs: which jobs start on which GPU, and when.

A plan is immutable, so that a search can extend it in several ways. Plans do not distinguish jobs
of one class (`partita_policies.forecast`) or GPUs of one type.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from partita_policies.capacity import FreeCapacity, FreeGPU
from partita_policies.forecast import Running
from partita_policies.lookahead.colocation import Colocation, JoinRule
from partita_policies.types import GPU, Job, RunningJob, Sharing

__all__ = ["PlanOutcome", "Plans", "Start", "StartPlan"]

Start = tuple[int, int]
"""Index of a GPU and of a job class: one job of the class starts on the GPU now."""


class StartPlan(NamedTuple):
    """A partial plan: the decisions up to some time."""

    when: tuple[float, ...]
    """Seconds from now until the next decision for each GPU; infinity if there is no other."""
    running: tuple[Running, ...]
    """Running jobs on each GPU at its next decision."""
    waiting: tuple[int, ...]
    """Number of waiting jobs of each class."""
    mask: int
    """The waiting classes, as bits."""
    end: float = 0.0
    """Time of the last end of a job so far."""
    total: float = 0.0
    """Sum of the end times of jobs so far."""
    now: tuple[Start, ...] = ()
    """Jobs that start now."""


class PlanOutcome(NamedTuple):
    """Result of a complete plan; the smallest is best."""

    makespan: float
    total: float
    now: tuple[Start, ...]


class Plans:
    """All plans for a group of GPUs and jobs waiting for them.

    Parameters
    ----------
    gpus
        The free capacity and the jobs of each GPU.
    jobs
        Waiting jobs that need one GPU each, in queue order.
    capacity
        The free capacity, which decides what can be placed now.
    since
        Seconds since each allocation, by job; without jobs that start now.
    typical
        Seconds of a job of unknown duration.
    window
        Maximum number of fitting classes compared for a GPU, from the front of the queue.
    """

    def __init__(
        self,
        gpus: Sequence[FreeGPU],
        jobs: Sequence[Job],
        sharing: Sharing,
        *,
        capacity: FreeCapacity,
        since: Mapping[str, float],
        typical: float,
        window: int,
    ) -> None:
        self.queues: list[list[Job]] = []
        """The waiting jobs of each class, the next job first."""
        self._like: list[Job | RunningJob] = []
        self._known: dict[tuple[object, ...], int] = {}
        for job in jobs:
            self.queues[self._class(job)].append(job)
        held = [
            [(self._class(one), since.get(job_id, 0.0)) for job_id, one in free.holders.items()]
            for free in gpus
        ]
        self._sorts: dict[tuple[object, ...], Colocation] = {}
        for free in gpus:
            if _alike(free.gpu) not in self._sorts:
                self._sorts[_alike(free.gpu)] = Colocation(
                    free.gpu, sharing, self._like, typical=typical, window=window
                )
        self._of = [self._sorts[_alike(free.gpu)] for free in gpus]
        self._open = [self._may_have(capacity, free.gpu.id) for free in gpus]
        mask = sum(1 << job_class for job_class, queue in enumerate(self.queues) if queue)
        root = StartPlan(
            when=(0.0,) * len(gpus),
            running=tuple(
                sort.forecast.caught_up(ones) for sort, ones in zip(self._of, held, strict=True)
            ),
            waiting=tuple(map(len, self.queues)),
            mask=mask,
        )
        self.empty = not any(self._open)
        """Whether nothing can be started now."""
        for place, open_to in enumerate(self._open):
            if not open_to:
                root = self.start(root, place, ())
        self.root = root

    @property
    def work(self) -> int:
        """Number of predictions so far."""
        return sum(sort.forecast.work for sort in self._sorts.values())

    def options(self, plan: StartPlan, most: int) -> Iterator[StartPlan]:
        """Yield the plan extended by each of the best combinations at its next decision."""
        when, place = min((when, place) for place, when in enumerate(plan.when))
        if when == inf or not plan.mask:
            return
        sort = self._of[place]
        classes = sort.forecast.classes(plan.running[place])
        for added in sort.options(classes, self._mask(plan.mask, when, place), plan.waiting, most):
            yield self.start(plan, place, added)

    def start(self, plan: StartPlan, place: int, added: Iterable[int]) -> StartPlan:
        """Return the plan extended by the next decision for a GPU: the jobs to start."""
        waiting, mask = list(plan.waiting), plan.mask
        when, now = plan.when[place], plan.now
        for job_class in added:
            waiting[job_class] -= 1
            if not waiting[job_class]:
                mask ^= 1 << job_class
            if not when:
                now = (*now, (place, job_class))
        forecast = self._of[place].forecast
        running = forecast.add(plan.running[place], added)
        end, total = plan.end, plan.total
        if forecast.is_busy(running):
            step, running, ended = forecast.until_end(running)
            when += step
            end, total = max(end, when), total + ended * when
        else:
            when = inf
        return StartPlan(
            (*plan.when[:place], when, *plan.when[place + 1 :]),
            (*plan.running[:place], running, *plan.running[place + 1 :]),
            tuple(waiting),
            mask,
            end,
            total,
            now,
        )

    def complete(self, plan: StartPlan, rule: JoinRule) -> PlanOutcome:
        """Complete a plan by a rule."""
        waiting, mask, running = list(plan.waiting), plan.mask, list(plan.running)
        end, total, now = plan.end, plan.total, list(plan.now)
        calendar = [(when, place) for place, when in enumerate(plan.when) if when < inf]
        heapify(calendar)
        while calendar:
            when, place = heappop(calendar)
            sort, here = self._of[place], running[place]
            if mask:
                added = self._filled(here, self._mask(mask, when, place), waiting, sort, rule)
                for job_class in added:
                    if not waiting[job_class]:
                        mask &= ~(1 << job_class)
                    if not when:
                        now.append((place, job_class))
                here = sort.forecast.add(here, added)
            if sort.forecast.is_busy(here):
                step, running[place], ended = sort.forecast.until_end(here)
                when += step
                total += ended * when
                end = max(end, when)
                heappush(calendar, (when, place))
        return PlanOutcome(end, total, tuple(now))

    def fill(self, rule: JoinRule) -> list[Start]:
        """Return the jobs to start now by a rule, without a search."""
        waiting, mask = list(self.root.waiting), self.root.mask
        now: list[Start] = []
        for place, sort in enumerate(self._of):
            here = self.root.running[place]
            if mask and self._open[place]:
                added = self._filled(here, self._mask(mask, 0.0, place), waiting, sort, rule)
                for job_class in added:
                    if not waiting[job_class]:
                        mask &= ~(1 << job_class)
                    now.append((place, job_class))
        return now

    def no_slower(self, now: Iterable[Start]) -> Iterator[Start]:
        """Yield the starts, except jobs that take longer beside the others on a GPU than after."""
        running = dict(enumerate(self.root.running))
        for place, job_class in sorted(now, key=lambda one: -self._seconds(one)):
            forecast = self._of[place].forecast
            here = running[place]
            joined = forecast.add(here, (job_class,))
            after = forecast.until_empty(here)
            after += forecast.seconds_after(forecast.classes(here), job_class)
            if not forecast.is_busy(here) or forecast.until_empty(joined) <= after:
                running[place] = joined
                yield place, job_class

    def _seconds(self, start: Start) -> float:
        place, job_class = start
        return self._of[place].forecast.durations[job_class]

    def _mask(self, mask: int, when: float, place: int) -> int:
        return mask if when else mask & self._open[place]

    @staticmethod
    def _filled(
        running: Running, mask: int, waiting: list[int], sort: Colocation, rule: JoinRule
    ) -> list[int]:
        """Remove jobs for a GPU from `waiting` and return their classes."""
        classes = sort.forecast.classes(running)
        added: list[int] = []
        while mask:
            job_class = sort.choice(classes, mask, rule)
            if job_class < 0:
                break
            waiting[job_class] -= 1
            if not waiting[job_class]:
                mask &= ~(1 << job_class)
            added.append(job_class)
            classes = tuple(sorted((*classes, job_class)))
        return added

    def _class(self, job: Job | RunningJob) -> int:
        profile = job.profile
        key = (
            job.memory,
            job.slots,
            job.clients,
            job.alone,
            job.lasting,
            job.thread_percent,
            job.duration,
            (job.products, job.nodes) if isinstance(job, Job) else (),
            (job.cpu, job.host_memory, job.host_storage),
            profile
            and (profile.application, profile.product, profile.duration, len(profile.steps)),
        )
        job_class = self._known.get(key)
        if job_class is None:
            job_class = self._known[key] = len(self._like)
            self._like.append(job)
            self.queues.append([])
        return job_class

    def _may_have(self, capacity: FreeCapacity, gpu_id: str) -> int:
        """Return the classes, as bits, whose next job fits a GPU now."""
        return sum(
            1 << job_class
            for job_class, queue in enumerate(self.queues)
            if queue and capacity.why_not(queue[0], gpu_id) is None
        )


def _alike(gpu: GPU) -> tuple[object, ...]:
    """Return a key that is equal for GPUs of the same type."""
    return (gpu.memory, gpu.max_jobs, gpu.max_clients, gpu.product, gpu.pcie_bandwidth)
