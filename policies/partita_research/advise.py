"""Recommends which applications should share a GPU, which should not, and how many jobs at once.

"Analyzing GPU Performance on Containers" (Son, Kim, Han) asks for this tool in its section 3.4:
it predicts from the resource use of applications whether sharing by MPS pays off. Sharing pays
off if the GPU has free capacity, and costs much time if the caches are saturated.

`partita_policies.interference` makes the predictions. The jobs are assumed to run all the time,
each at an arbitrary point of its run. The speed-up is the work done in a second, relative to
running the jobs one after the other. Values that a profile does not contain are assumed, and the
range shows their effect. It extends from all jobs as sensitive to the cache as the study's
sensitive kernel to all as insensitive as its other kernel (and, if no SM occupancy was measured,
to kernels that leave all threads free).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations_with_replacement

from partita_policies.co_runs import pair_factors
from partita_policies.forecast import phases_of
from partita_policies.interference import Load, slowdowns, stretches
from partita_policies.types import GPU, Profile, Sharing
from partita_research.alignments import LoadCurve, mean_slowdowns

__all__ = [
    "INSENSITIVE",
    "MOST_COLOCATED",
    "SENSITIVE",
    "WORTHWHILE",
    "Advice",
    "Copies",
    "Group",
    "Recommendation",
    "SeenTogether",
    "Strain",
    "Subject",
    "advise",
]

SENSITIVE, INSENSITIVE = 1.0, 0.11
"""Cache sensitivities of the two kernels of the study's Table 1 (the second one is fitted)."""
WORTHWHILE = 1.05
"""Speed-up from which sharing is recommended: an assumption, a gain that users would notice."""
_NEARLY = 0.98
"""A smaller group that reaches this share of a larger group's speed-up is preferred, since it has
fewer risks."""
_BEAM = 6
MOST_COLOCATED = 4
"""Largest size of the groups that are searched. Larger groups behave alike, and their jobs rarely
run at the same time."""


class Recommendation(StrEnum):
    """Recommendation for a group."""

    TOGETHER = "Together"
    """Under MPS the group does more work in a second than its jobs one after the other."""
    BY_TURNS = "TimeSlicing"
    """Time slicing is faster, MPS is not. Time slicing fills pauses without sharing the caches."""
    NO_GAIN = "NoGain"
    """The group is about as fast as its jobs one after the other, which is simpler."""
    APART = "Apart"
    """The group is slower than its jobs one after the other."""
    UNKNOWN = "Unknown"
    """A recommendation requires a measured SM occupancy."""
    NO_ROOM = "NoRoom"
    """The GPU has too little memory, or permits too few jobs."""


class Strain(StrEnum):
    """The resource that slows a group down the most."""

    NOTHING = "Nothing"
    SM = "SM"
    PCIE = "PCIe"
    CACHE = "Cache"
    MEMORY = "Memory"


@dataclass(frozen=True, slots=True)
class Subject:
    """An application to advise on."""

    profile: Profile
    """Has at least one step."""
    memory: int
    """Bytes allocated for each of its jobs."""

    @property
    def name(self) -> str:
        """Name of the application."""
        return self.profile.application

    @property
    def measured(self) -> bool:
        """Whether the profile contains the SM occupancy."""
        return any(step.core for step in self.profile.steps)


@dataclass(frozen=True, slots=True)
class Group:
    """Several jobs on one GPU, and the prediction for them; none if they do not fit there."""

    applications: tuple[str, ...]
    """In ascending order; a name occurs once for each job."""
    verdict: Recommendation
    certain: bool
    """Whether the verdict holds for every assumption."""
    memory: int
    """Bytes."""
    speedup: float | None = None
    """Work in a second under MPS, relative to one job after the other."""
    low: float | None = None
    """The speed-up with the least favourable assumption: all are sensitive to the cache."""
    high: float | None = None
    """That with the most favourable one."""
    time_slicing: float | None = None
    """The speed-up by time slicing."""
    slowdowns: tuple[float, ...] | None = None
    """Run time of each job under MPS, relative to its run time alone."""
    strain: Strain = Strain.MEMORY


@dataclass(frozen=True, slots=True)
class Copies:
    """How many jobs of one application to run at once."""

    name: str
    at_once: int
    speedup: float
    """Work in a second, where one job after the other does 1."""
    slowdown: float
    """Run time of each against alone."""
    fitting: int
    """How many fit in the memory."""
    held_by: Strain
    """What limits them."""


@dataclass(frozen=True, slots=True)
class SeenTogether:
    """What runs of an application beside another one say about the prediction."""

    name: str
    beside: str
    predicted: float
    """Slowdown of the application beside one job of the other, as predicted from the profiles."""
    observed: float
    """The slowdown that the runs had."""
    samples: float
    """Runs that it rests on."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Recommendations for one GPU."""

    gpu: GPU
    subjects: tuple[Subject, ...]
    copies: tuple[Copies, ...]
    """One entry for each application that fits on the GPU."""
    pairs: tuple[Group, ...]
    """All pairs, the best first."""
    colocations: tuple[Group, ...]
    """For each application, the best group that contains it, of at most `MOST_COLOCATED` jobs;
    applications that run best alone have no entry."""
    seen: tuple[SeenTogether, ...] = ()
    """What is known from runs beside other applications. The predictions take it into account."""


def advise(subjects: Sequence[Subject], gpu: GPU) -> Advice:
    """Recommend how applications should share one GPU.

    Parameters
    ----------
    subjects
        Applications with distinct names.
    gpu
        The GPU: its allocatable memory, its bandwidth and its maximum number of jobs are used.

    Raises
    ------
    ValueError
        Two applications have the same name, or a profile has no steps.
    """
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        raise ValueError(f"applications {', '.join(names)}: expected names that differ")
    for subject in subjects:
        if not subject.profile.steps:
            raise ValueError(f"application {subject.name}: its profile has no steps")
    predictor = _Predictor(sorted(subjects, key=lambda subject: subject.name), gpu)
    everyone = range(len(subjects))
    pairs = [predictor.group(pair) for pair in combinations_with_replacement(everyone, 2)]
    colocations = {predictor.best_colocation(one) for one in everyone}
    return Advice(
        gpu,
        tuple(predictor.subjects),
        tuple(copies for one in everyone if (copies := predictor.copies(one)) is not None),
        tuple(sorted(pairs, key=_rank)),
        tuple(sorted((group for group in colocations if len(group.applications) > 1), key=_rank)),
        tuple(predictor.seen()),
    )


_ORDER = tuple(Recommendation)


def _rank(group: Group) -> tuple[int, float, tuple[str, ...]]:
    return (_ORDER.index(group.verdict), -(group.speedup or 1.0), group.applications)


class _Predictor:
    """Predicts the performance of groups of applications on one GPU."""

    def __init__(self, subjects: Sequence[Subject], gpu: GPU) -> None:
        self.subjects = subjects
        self._gpu = gpu
        self._limit = min(gpu.max_jobs, gpu.max_clients)
        self._runs = [LoadCurve(phases_of(subject.profile, gpu)) for subject in subjects]
        self._known: dict[tuple[int, ...], list[float]] = {}

    def group(self, members: tuple[int, ...]) -> Group:
        """Return the prediction for a group; members are in ascending order."""
        subjects = [self.subjects[one] for one in members]
        names = tuple(subject.name for subject in subjects)
        memory = sum(subject.memory for subject in subjects)
        if not self._fits(members):
            return Group(names, Recommendation.NO_ROOM, certain=True, memory=memory)
        slower = self._slower(members)
        speedup = _work(slower)
        runs = [self._runs[one] for one in members]
        guesses = [subject.measured for subject in subjects]
        factors = pair_factors([subject.profile for subject in subjects])
        worst, best = (
            [
                run.assuming(cache, None if measured else sm_of_busy)
                for run, measured in zip(runs, guesses, strict=True)
            ]
            for cache, sm_of_busy in ((SENSITIVE, 1.0), (INSENSITIVE, 0.0))
        )
        low = _work(mean_slowdowns(worst, Sharing.MPS, factors))
        high = _work(mean_slowdowns(best, Sharing.MPS, factors))
        slicing = _work(mean_slowdowns(runs, Sharing.TIME_SLICING))
        verdict = _verdict(speedup, low, high, slicing, known=all(guesses))
        low, high = min(low, speedup), max(high, speedup)
        certain = low >= 1 if verdict is Recommendation.TOGETHER else high < WORTHWHILE
        strain = _strain([run.mean for run in runs])
        figures = speedup, low, high, slicing, tuple(slower)
        return Group(names, verdict, certain, memory, *figures, strain)

    def copies(self, one: int) -> Copies | None:
        """Return the best number of jobs of one application; None if not even one fits."""
        fitting = 0
        while fitting < self._limit and self._fits((one,) * (fitting + 1)):
            fitting += 1
        if not fitting:
            return None
        speedups = [self.speedup((one,) * number) for number in range(1, fitting + 1)]
        enough = _NEARLY * max(speedups)
        best = next(i for i, speedup in enumerate(speedups, 1) if speedup >= enough)
        if speedups[best - 1] < WORTHWHILE:
            best = 1
        more = (one,) * (best + 1)
        strain = _strain([self._runs[one].mean] * (best + 1)) if self._fits(more) else Strain.MEMORY
        slower = self._slower((one,) * best)[0]
        return Copies(self.subjects[one].name, best, speedups[best - 1], slower, fitting, strain)

    def best_colocation(self, one: int) -> Group:
        """Return the group containing one application that does the most work in a second."""
        best: tuple[int, ...] = (one,)
        best_speedup, level = 1.0, [best]
        while level:
            larger = sorted(
                {
                    tuple(sorted((*members, other)))
                    for members in level
                    for other in range(len(self.subjects))
                }
            )
            small = (group for group in larger if len(group) <= MOST_COLOCATED)
            fitting = filter(self._fits, small)
            speedups = {group: self.speedup(group) for group in fitting}
            level = sorted(speedups, key=lambda group: (-speedups[group], group))[:_BEAM]
            if not level or speedups[level[0]] * _NEARLY <= best_speedup:
                break
            best, best_speedup = level[0], speedups[level[0]]
        return self.group(best)

    def speedup(self, members: tuple[int, ...]) -> float:
        """Return the work that a group does in a second under MPS."""
        return _work(self._slower(members))

    def seen(self) -> Iterator[SeenTogether]:
        """Return what is known from co-runs of these applications, in order of their names."""
        place = {subject.name: number for number, subject in enumerate(self.subjects)}
        for number, subject in enumerate(self.subjects):
            for found in subject.profile.co_runs:
                other = place.get(found.application)
                if other is not None:
                    much = mean_slowdowns([self._runs[number], self._runs[other]], Sharing.MPS)[0]
                    there = (subject.name, found.application, much, much * found.ratio)
                    yield SeenTogether(*there, found.samples)

    def _slower(self, members: tuple[int, ...]) -> list[float]:
        found = self._known.get(members)
        if found is None:
            runs = [self._runs[one] for one in members]
            factors = pair_factors([self.subjects[one].profile for one in members])
            found = self._known[members] = mean_slowdowns(runs, Sharing.MPS, factors)
        return found

    def _fits(self, members: Sequence[int]) -> bool:
        memory = sum(self.subjects[one].memory for one in members)
        return len(members) <= self._limit and memory <= self._gpu.memory


def _work(slower: Sequence[float]) -> float:
    return sum(1 / much for much in slower)


def _verdict(
    speedup: float, low: float, high: float, slicing: float, *, known: bool
) -> Recommendation:
    if not known and low < WORTHWHILE <= high:
        return Recommendation.UNKNOWN
    if speedup >= WORTHWHILE:
        return Recommendation.TOGETHER
    if slicing >= WORTHWHILE:
        return Recommendation.BY_TURNS
    return Recommendation.NO_GAIN if speedup >= 1 else Recommendation.APART


def _strain(loads: Sequence[Load]) -> Strain:
    """Return the resource that adds the most to the run time of a group with these mean loads."""
    by_sm = sum(stretches([load.sm for load in loads])) - len(loads)
    by_link = sum(stretches([load.pcie for load in loads])) - len(loads)
    by_cache = sum(slowdowns(loads, Sharing.MPS)) - len(loads) - by_sm - by_link
    worst, strain = max(
        (by_sm, Strain.SM), (by_link, Strain.PCIE), (by_cache, Strain.CACHE), key=lambda one: one[0]
    )
    return strain if worst > _NOTICED * len(loads) else Strain.NOTHING


_NOTICED = 0.01
"""Mean slowdown above which a resource counts as limiting a group."""
