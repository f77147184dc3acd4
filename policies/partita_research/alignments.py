"""Mean slowdowns of runs on one GPU that are each at an arbitrary point."""

from bisect import bisect_right
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

        self._sampled: dict[float, list[Load]] = {}

    @cached_property
    def mean(self) -> Load:
        """Mean load."""
        return mean_load(self._phases)

    def samples(self, step: float) -> list[Load]:
        """Return the loads at points of the run that are `step` runs apart."""
        if step not in self._sampled:
            shares = ((0.5 + sample * step) % 1 for sample in range(_SAMPLES))
            self._sampled[step] = [self._at(share) for share in shares]
        return self._sampled[step]

    def _at(self, share: float) -> Load:
        found = bisect_right(self._ends, share)
        return self._phases[min(found, len(self._phases) - 1)].load

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
    samples = [
        run.samples(sqrt(prime)) for run, prime in zip(runs, _primes(len(runs)), strict=True)
    ]
    found = [slowdowns(loads, sharing, factors) for loads in zip(*samples, strict=True)]
    return [sum(much) / _SAMPLES for much in zip(*found, strict=True)]


def _primes(count: int) -> Iterator[int]:
    """Yield the first primes. Ratios of their square roots are irrational: no alignment repeats."""
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
            yield number
        number += 1
