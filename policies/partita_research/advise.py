"""Which applications to put together on a GPU, which to keep apart, and how many at once.

The tool that "Analyzing GPU Performance on Containers" (Son, Kim, Han) asks for in its section
3.4: from what applications use it says beforehand whether sharing by MPS pays, for it does where
the GPU has room, and costs dearly where the caches are saturated.

Predictions are those of `partita_policies.interference`, for jobs that are always there, each at
any point of its run: the speed-up is the work done in a second, where one job after the other
does 1. What a profile does not tell is assumed, and the range tells what that may cost: it goes
from all as sensitive to the cache as the study's sensitive kernel to all as insensitive as its
other one (and, where no SM occupancy was measured, to kernels that leave all threads free).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import combinations_with_replacement
from math import sqrt

from partita_policies.forecast import LoadPhase, mean_load, phases_of
from partita_policies.interference import Load, slowdowns, stretches
from partita_policies.types import GPU, Profile, Sharing

__all__ = [
    "INSENSITIVE",
    "MOST_COLOCATED",
    "SENSITIVE",
    "WORTHWHILE",
    "Advice",
    "Copies",
    "Group",
    "Recommendation",
    "Strain",
    "Subject",
    "advise",
]

SENSITIVE, INSENSITIVE = 1.0, 0.11
"""Cache sensitivities of the two kernels of the study's Table 1 (the second one is fitted)."""
WORTHWHILE = 1.05
"""Speed-up from which sharing is worth it: an assumption, what one would notice."""
_NEARLY = 0.98
"""A smaller group that reaches so much of a larger one's speed-up is better: less can go wrong."""
_SAMPLES = 96
"""Alignments of the runs that a prediction is the mean of."""
_BEAM = 6
MOST_COLOCATED = 4
"""Jobs of the groups that are looked through: larger ones are alike, and seldom there together."""


class Recommendation(StrEnum):
    """What to do with a group."""

    TOGETHER = "Together"
    """By MPS it does more work in a second than one after the other."""
    BY_TURNS = "TimeSlicing"
    """By MPS it does not, but time slicing does: it fills the pauses, and spares the caches."""
    NO_GAIN = "NoGain"
    """It does about as much as one after the other: apart is simpler."""
    APART = "Apart"
    """It does less."""
    UNKNOWN = "Unknown"
    """It cannot be said without a measured SM occupancy."""
    NO_ROOM = "NoRoom"
    """Its memory, or its number of jobs, is more than the GPU takes."""


class Strain(StrEnum):
    """What slows a group down the most."""

    NOTHING = "Nothing"
    SM = "SM"
    PCIE = "PCIe"
    CACHE = "Cache"
    MEMORY = "Memory"


@dataclass(frozen=True, slots=True)
class Subject:
    """An application to advise on."""

    profile: Profile
    """With at least one step."""
    memory: int
    """Bytes that each of its jobs allocates."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.profile.application

    @property
    def measured(self) -> bool:
        """Whether its SM occupancy is known."""
        return any(step.core for step in self.profile.steps)


@dataclass(frozen=True, slots=True)
class Group:
    """Some jobs on one GPU, and what to expect of it."""

    names: tuple[str, ...]
    """Their applications, ascending; one may be there several times."""
    verdict: Recommendation
    memory: int
    """Bytes allocated, all together."""
    speedup: float = 1.0
    """Work in a second under MPS; one job after the other does 1."""
    low: float = 1.0
    high: float = 1.0
    """The ends of its range: all sensitive to the cache, all insensitive."""
    slicing: float = 1.0
    """The same under time slicing."""
    slowdowns: tuple[float, ...] = ()
    """Of each under MPS, in terms of its time alone."""
    strain: Strain = Strain.NOTHING

    @property
    def certain(self) -> bool:
        """Whether the verdict holds over the whole range."""
        if self.verdict is Recommendation.TOGETHER:
            return self.low >= 1
        return self.verdict is Recommendation.NO_ROOM or self.high < WORTHWHILE


@dataclass(frozen=True, slots=True)
class Copies:
    """How many jobs of one application to run at once."""

    name: str
    best: int
    speedup: float
    slowdown: float
    fitting: int
    """How many fit, if it were for room alone."""
    strain: Strain
    """What keeps more from being better; `MEMORY` for room."""


@dataclass(frozen=True, slots=True)
class Advice:
    """All there is to say for one GPU."""

    gpu: GPU
    subjects: tuple[Subject, ...]
    copies: tuple[Copies, ...]
    """One for each application that fits at all."""
    pairs: tuple[Group, ...]
    """All of them, the best first."""
    colocations: tuple[Group, ...]
    """For each application the best group with it of at most `MOST_COLOCATED` jobs; none for
    those that are best alone."""


def advise(subjects: Sequence[Subject], gpu: GPU, *, most: int | None = None) -> Advice:
    """Advise on applications for one GPU.

    Parameters
    ----------
    subjects
        Applications of different names.
    gpu
        What may be allocated on it, its bandwidth and how many jobs it takes.
    most
        Jobs at once at the most; by default what the GPU takes.

    Raises
    ------
    ValueError
        Two applications have one name, or a profile has no steps.
    """
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        raise ValueError(f"applications {', '.join(names)}: expected names that differ")
    for subject in subjects:
        if not subject.profile.steps:
            raise ValueError(f"application {subject.name}: its profile has no steps")
    limit = min(gpu.max_jobs, gpu.max_clients, *(() if most is None else (most,)))
    bench = _Bench(sorted(subjects, key=lambda subject: subject.name), gpu, limit)
    everyone = range(len(subjects))
    pairs = [bench.group(pair) for pair in combinations_with_replacement(everyone, 2)]
    colocations = {bench.best_colocation(one) for one in everyone}
    return Advice(
        gpu,
        tuple(bench.subjects),
        tuple(copies for one in everyone if (copies := bench.copies(one)) is not None),
        tuple(sorted(pairs, key=_rank)),
        tuple(sorted((group for group in colocations if len(group.names) > 1), key=_rank)),
    )


_ORDER = tuple(Recommendation)


def _rank(group: Group) -> tuple[int, float, tuple[str, ...]]:
    return (_ORDER.index(group.verdict), -group.speedup, group.names)


class _Bench:
    """Predicts groups of some applications on one GPU."""

    def __init__(self, subjects: Sequence[Subject], gpu: GPU, limit: int) -> None:
        self.subjects = subjects
        self._gpu = gpu
        self._limit = limit
        self._runs = [_Course(phases_of(subject.profile, gpu)) for subject in subjects]
        self._known: dict[tuple[int, ...], list[float]] = {}

    def group(self, members: tuple[int, ...]) -> Group:
        """Return all there is to say of a group, its members ascending."""
        subjects = [self.subjects[one] for one in members]
        names = tuple(subject.name for subject in subjects)
        memory = sum(subject.memory for subject in subjects)
        if not self._fits(members):
            return Group(names, Recommendation.NO_ROOM, memory, strain=Strain.MEMORY)
        slower = self._slower(members)
        speedup = _work(slower)
        runs = [self._runs[one] for one in members]
        guesses = [subject.measured for subject in subjects]
        low = _work(_means([run.with_cache(SENSITIVE) for run in runs], Sharing.MPS))
        best = [
            run.with_cache(INSENSITIVE, free=not measured)
            for run, measured in zip(runs, guesses, strict=True)
        ]
        high = _work(_means(best, Sharing.MPS))
        slicing = _work(_means(runs, Sharing.TIME_SLICING))
        return Group(
            names,
            _verdict(speedup, high, slicing, known=all(guesses)),
            memory,
            speedup,
            min(low, speedup),
            max(high, speedup),
            slicing,
            tuple(slower),
            _strain([run.mean for run in runs]),
        )

    def copies(self, one: int) -> Copies | None:
        """Return how many of one application to run at once; None when not even one fits."""
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
        """Return the group with one application that does the most work in a second."""
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

    def _slower(self, members: tuple[int, ...]) -> list[float]:
        found = self._known.get(members)
        if found is None:
            runs = [self._runs[one] for one in members]
            found = self._known[members] = _means(runs, Sharing.MPS)
        return found

    def _fits(self, members: Sequence[int]) -> bool:
        memory = sum(self.subjects[one].memory for one in members)
        return len(members) <= self._limit and memory <= self._gpu.memory


class _Course:
    """The run of an application alone: what it asks for from 0, its beginning, to 1, its end."""

    def __init__(self, phases: Sequence[LoadPhase]) -> None:
        self._phases = phases
        total = sum(phase.seconds for phase in phases)
        self._ends: list[float] = []
        for phase in phases:
            self._ends.append((self._ends[-1] if self._ends else 0.0) + phase.seconds / total)

    @cached_property
    def mean(self) -> Load:
        """What it asks for on average."""
        return mean_load(self._phases)

    def at(self, share: float) -> Load:
        """Return what it asks for at a point of its run."""
        for end, phase in zip(self._ends, self._phases, strict=True):
            if share < end:
                return phase.load
        return self._phases[-1].load

    def with_cache(self, cache: float, *, free: bool = False) -> "_Course":
        """Return the same with another cache sensitivity, and with hardly a thread in use."""
        return _Course(
            [
                replace(
                    phase,
                    load=phase.load._replace(cache=cache, sm=0.0 if free else phase.load.sm),
                )
                for phase in self._phases
            ]
        )


def _means(runs: Sequence[_Course], sharing: Sharing) -> list[float]:
    """Return the mean slowdown of each, over evenly spread alignments of their runs."""
    totals = [0.0] * len(runs)
    steps = [sqrt(prime) for prime in _primes(len(runs))]
    for sample in range(_SAMPLES):
        loads = [run.at((0.5 + sample * step) % 1) for run, step in zip(runs, steps, strict=True)]
        for index, much in enumerate(slowdowns(loads, sharing)):
            totals[index] += much
    return [total / _SAMPLES for total in totals]


def _primes(count: int) -> Iterator[int]:
    """Yield the first primes: their roots have no common measure, so no alignment is favoured."""
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
            yield number
        number += 1


def _work(slower: Sequence[float]) -> float:
    return sum(1 / much for much in slower)


def _verdict(speedup: float, high: float, slicing: float, *, known: bool) -> Recommendation:
    if speedup >= WORTHWHILE:
        return Recommendation.TOGETHER
    if not known and high >= WORTHWHILE:
        return Recommendation.UNKNOWN
    if slicing >= WORTHWHILE:
        return Recommendation.BY_TURNS
    return Recommendation.NO_GAIN if speedup >= 1 else Recommendation.APART


def _strain(loads: Sequence[Load]) -> Strain:
    """Return what adds the most to the time of a group, by its mean loads."""
    by_sm = sum(stretches([load.sm for load in loads])) - len(loads)
    by_link = sum(stretches([load.pcie for load in loads])) - len(loads)
    by_cache = sum(slowdowns(loads, Sharing.MPS)) - len(loads) - by_sm - by_link
    worst, strain = max(
        (by_sm, Strain.SM), (by_link, Strain.PCIE), (by_cache, Strain.CACHE), key=lambda one: one[0]
    )
    return strain if worst > _NOTICED * len(loads) else Strain.NOTHING


_NOTICED = 0.01
"""Mean slowdown from which something strains a group."""
