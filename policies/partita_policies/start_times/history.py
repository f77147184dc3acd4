"""What the decisions of one partition show: how long runs last, how far they are, who arrives.

Work is in seconds of a run alone on its GPU. A run is as far as the predicted slowdowns since its
start let it be (`partita_policies.interference`), so a run time beside other jobs says something
about a run beside others.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from partita_policies.forecast import known_duration, slowdowns_together
from partita_policies.types import GPU, Job, RunningJob, Sharing, Snapshot

__all__ = ["PartitionHistory", "Past", "RunTimes"]

_RUNS = 1000
"""Ended runs that are kept."""
_ARRIVALS = 300
"""Arrivals that are kept: those of the recent rate."""
_LEAST_TIME = 60.0
"""Seconds in which arrivals came at least: many are submitted at once. An assumption."""
_ENOUGH = 5
"""Least runs that stand for others. An assumption."""
_EXACT = 0.1
"""Largest part of a run between the decisions before and after its end: of a run that may have
ended anywhere in a longer time nothing is learnt. An assumption."""
_ASSUMED_RATIOS = (0.75, 0.9, 1.0, 1.1, 1.35)
"""Assumed run times, in terms of the expected one, while no run has ended."""

_Application = tuple[str, str]


@dataclass(slots=True)
class _Observed:
    """A running job, as far as it was known at a time."""

    holder: RunningJob
    done: float
    time: float
    pace: float
    """Seconds that a second of its work takes from then on."""

    def progress(self, time: float) -> float:
        return self.done + max(time - self.time, 0.0) / self.pace


@dataclass(frozen=True, slots=True)
class RunTimes:
    """From which the work of jobs is drawn."""

    ratios: Mapping[_Application, Sequence[float]]
    """Work of the ended runs of an application, in terms of what was expected of each; sorted."""
    work: Mapping[_Application, Sequence[float]]
    """Work of its ended runs of which nothing was expected, in seconds; sorted."""
    all_ratios: Sequence[float]
    all_work: Sequence[float]

    def known(self, job: Job | RunningJob) -> bool:
        """Return whether anything is known of how long a job runs."""
        return job.lasting or known_duration(job) is not None or bool(self._samples(job))

    def draw(self, job: Job | RunningJob, random: Random, done: float = 0.0) -> float:
        """Return the seconds of work of a job in one future, more than what is done.

        A run that has outlasted all known ones is assumed to go on for up to as long again.
        """
        expected = known_duration(job)
        scale = 1.0 if expected is None else max(expected, 1e-3)
        samples = self._samples(job)
        longer = bisect_right(samples, done / scale)
        if longer == len(samples):
            return max(done, scale) * random.uniform(1.0, 2.0)
        return scale * samples[random.randrange(longer, len(samples))]

    def _samples(self, job: Job | RunningJob) -> Sequence[float]:
        application = (job.namespace, job.application)
        if known_duration(job) is None:
            own, everyone = self.work.get(application, ()), self.all_work
            return own if len(own) >= _ENOUGH or len(everyone) < _ENOUGH else everyone
        own = self.ratios.get(application, ())
        if len(own) >= _ENOUGH:
            return own
        return self.all_ratios if len(self.all_ratios) >= _ENOUGH else _ASSUMED_RATIOS


@dataclass(frozen=True, slots=True)
class Past:
    """What the history of a partition says about its future."""

    times: RunTimes
    progress: Mapping[str, float]
    """Seconds of work that each running job has done, by id."""
    arrived: Sequence[Job]
    """The jobs that arrived last."""
    arrivals_per_second: float
    """How many arrive, of late."""


@dataclass(slots=True)
class PartitionHistory:
    """The history of one partition, bounded, from the snapshots of its decisions."""

    _time: float | None = None
    _began: float = 0.0
    _gpus: dict[str, GPU] = field(default_factory=dict)
    _runs: dict[str, _Observed] = field(default_factory=dict)
    _waiting: frozenset[str] = frozenset()
    _ended: deque[tuple[_Application, float | None, float]] = field(
        default_factory=lambda: deque(maxlen=_RUNS)
    )
    """Application, expected seconds, and work of each ended run."""
    _arrived: deque[tuple[float, Job]] = field(default_factory=lambda: deque(maxlen=_ARRIVALS))

    def observe(self, snapshot: Snapshot) -> None:
        """Learn from the snapshot of a decision; of a clock that was set back, time stands still.

        A GPU that is missing is not Ready: of the runs there nothing is learnt.
        """
        before = snapshot.time if self._time is None else self._time
        time = max(snapshot.time, before)
        gpus = {gpu.id: gpu for gpu in snapshot.gpus}
        changed = [gpu for gpu in snapshot.gpus if self._gpus.get(gpu.id) is not gpu]
        there = {run.job for gpu in changed for run in gpu.running}
        gone: dict[str, bool] = {}
        for old in self._gpus.values():
            if gpus.get(old.id) is not old:
                for run in old.running:
                    if run.job not in there:
                        gone[run.job] = gone.get(run.job, True) and old.id in gpus
        for job_id, ended in gone.items():
            run_of = self._runs.pop(job_id, None)
            if run_of is not None and ended:
                self._note_end(run_of, before, time)
        paces: dict[str, float] = {}
        for gpu in changed:
            for run, pace in zip(gpu.running, _paces(gpu, snapshot.sharing), strict=True):
                paces[run.job] = max(pace, paces.get(run.job, 1.0))
                known = self._runs.get(run.job)
                done = run.elapsed(time) / pace if known is None else known.progress(time)
                self._runs[run.job] = _Observed(run, done, time, paces[run.job])
        waiting = frozenset([job.id for job in snapshot.jobs])
        if self._time is None:
            self._began = time
        elif waiting != self._waiting:
            before_now = self._waiting.union(job.id for _, job in self._arrived)
            new = [job for job in snapshot.jobs if job.id not in before_now and not job.lasting]
            self._arrived.extend([(time, job) for job in new])
        self._time, self._gpus, self._waiting = time, gpus, waiting

    def past(self) -> Past:
        """Return what is known at the last snapshot; later ones do not change it."""
        time = self._time or 0.0
        rate = 0.0
        if self._arrived:
            full = len(self._arrived) == self._arrived.maxlen
            since = self._arrived[0][0] if full else self._began
            rate = len(self._arrived) / max(time - since, _LEAST_TIME)
        progress = {job_id: run.progress(time) for job_id, run in self._runs.items()}
        return Past(self._run_times(), progress, [job for _, job in self._arrived], rate)

    def _run_times(self) -> RunTimes:
        ratios: dict[_Application, list[float]] = {}
        work: dict[_Application, list[float]] = {}
        for application, expected, seconds in self._ended:
            if expected:
                ratios.setdefault(application, []).append(seconds / expected)
            else:
                work.setdefault(application, []).append(seconds)
        everything = sorted(seconds for *_, seconds in self._ended)
        found = {key: sorted(samples) for key, samples in ratios.items()}
        every_ratio = sorted(ratio for samples in found.values() for ratio in samples)
        alone = {key: sorted(samples) for key, samples in work.items()}
        return RunTimes(found, alone, every_ratio, everything)

    def _note_end(self, run: _Observed, before: float, time: float) -> None:
        job = run.holder
        done = run.progress((before + time) / 2)
        if not job.lasting and (time - before) / run.pace <= _EXACT * done:
            self._ended.append(((job.namespace, job.application), known_duration(job), done))


def _paces(gpu: GPU, sharing: Sharing) -> list[float]:
    return [slower for slower, _ in slowdowns_together(gpu.running, gpu, sharing)]
