"""Mean slowdowns of runs on one GPU that are each at an arbitrary point."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import sqrt

from partita_policies.forecast import LoadPhase, mean_load
from partita_policies.interference import Load, slowdowns
from partita_policies.types import Sharing

__all__ = ["LoadCurve", "mean_slowdowns"]

_SAMPLES = 96
"""Number of alignments of the runs over which a prediction is averaged."""


class LoadCurve:
    """Load of an application over its run alone, from 0 (start) to 1 (end)."""

    def __init__(self, phases: Sequence[LoadPhase]) -> None:
        self._phases = phases
        total = sum(phase.seconds for phase in phases)
        self._ends: list[float] = []
        for phase in phases:
            self._ends.append((self._ends[-1] if self._ends else 0.0) + phase.seconds / total)

    @cached_property
    def mean(self) -> Load:
        """Mean load."""
        return mean_load(self._phases)

    def at(self, share: float) -> Load:
        """Return the load at a point of the run."""
        for end, phase in zip(self._ends, self._phases, strict=True):
            if share < end:
                return phase.load
        return self._phases[-1].load

    def assuming(self, cache: float, sm_of_busy: float | None) -> "LoadCurve":
        """Return a copy with another cache sensitivity and, unless None, another use of the SMs."""
        phases = []
        for phase in self._phases:
            load = phase.load._replace(cache=cache)
            if sm_of_busy is not None:
                load = load._replace(sm=sm_of_busy * load.busy)
            phases.append(replace(phase, load=load))
        return LoadCurve(phases)


def mean_slowdowns(
    runs: Sequence[LoadCurve], sharing: Sharing, factors: Sequence[float] | None = None
) -> list[float]:
    """Return the mean slowdown of each run over evenly spread alignments of the runs."""
    totals = [0.0] * len(runs)
    steps = [sqrt(prime) for prime in _primes(len(runs))]
    for sample in range(_SAMPLES):
        loads = [run.at((0.5 + sample * step) % 1) for run, step in zip(runs, steps, strict=True)]
        for index, much in enumerate(slowdowns(loads, sharing, factors)):
            totals[index] += much
    return [total / _SAMPLES for total in totals]


def _primes(count: int) -> Iterator[int]:
    """Yield the first primes. Ratios of their square roots are irrational: no alignment repeats."""
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
            yield number
        number += 1
