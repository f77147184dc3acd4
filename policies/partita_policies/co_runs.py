"""What a cluster's own co-runs say about the prediction of interference.

`partita_policies.interference` predicts slowdowns from profiles. Profiles do not show everything
that jobs share, such as memory bandwidth. So each run beside other jobs is compared with its
prediction, and the mean ratio of each pair of applications corrects later predictions:

    slowdown_i = max(1, predicted_i * product over j of factor_ij)

The evidence is a row of an application's own profile: it changes the predicted slowdown of this
application's jobs, not that of other jobs. So a false profile has no more influence than a profile
with a false load.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

from partita_policies.types import CoRun, Profile

__all__ = [
    "MOST",
    "PRIOR_RUNS",
    "SPREAD",
    "ObservedRun",
    "co_runs",
    "factor",
    "margin",
    "pair_factors",
    "spread",
]

SPREAD = 0.15
"""Standard deviation of the logarithm of observed / predicted slowdown of two busy jobs without
evidence. An assumption; on the pairs that Lucid measured it is 0.152 where the product of both
shares of busy time is at least 0.25, and 0.083 elsewhere
(docs/interference.md)."""
PRIOR_RUNS = 2.0
"""Runs that count as much as the prediction: the evidence of n runs is weighed n / (n + this). An
assumption: the length of a run varies about as much as predictions miss (see `SPREAD`), and its
undisturbed length is a mean of few runs as well."""
MOST = 2.0
"""Most by which the co-runs of a pair may raise or lower a prediction. An assumption; the largest
factor on the pairs that Lucid measured is 1.9. It bounds the effect of a false profile."""
_LEAST_PART = 0.1
"""Least part of a run beside an application. What less of it says is lost in the run's noise: an
assumption."""


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A run beside other jobs."""

    observed: float
    """Its length, relative to that of runs without other jobs."""
    predicted: float
    """The prediction of this slowdown for the jobs that were beside it."""
    parts: tuple[tuple[str, float], ...]
    """The applications beside it, each with the part of the run (0 to 1). Two jobs of one
    application that ran at the same time add up to at most 2."""


def co_runs(runs: Iterable[ObservedRun]) -> tuple[CoRun, ...]:
    """Return the evidence of runs on each pair; their order does not matter.

    The deviation of a run from its prediction is divided among the jobs beside it, in proportion to
    the time that each was there. A run without a finite positive ratio says nothing.
    """
    totals: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        deviation, parts = _deviation(run), _parts(run)
        if deviation is None or not parts:
            continue
        squares, whole = sum(part * part for part in parts.values()), sum(parts.values())
        for application, part in parts.items():
            # The smallest deviations of the pairs that explain that of the run.
            pair = (min(1.0, part * part / whole), _bounded(deviation * part / squares))
            totals.setdefault(application, []).append(pair)
    return tuple(_mean(application, totals[application]) for application in sorted(totals))


def _parts(run: ObservedRun) -> dict[str, float]:
    """Return the part of the run beside each application, if it was long enough."""
    parts: dict[str, float] = {}
    for application, part in run.parts:
        if application and 0 < part <= 1:
            parts[application] = parts.get(application, 0.0) + part
    return {application: part for application, part in parts.items() if part >= _LEAST_PART}


def _deviation(run: ObservedRun) -> float | None:
    """Return the logarithm of observed / predicted, bounded; None if there is none."""
    if not (0 < run.observed < inf and 0 < run.predicted < inf):
        return None
    return _bounded(log(run.observed) - log(run.predicted))


def _bounded(deviation: float) -> float:
    return max(-log(MOST), min(log(MOST), deviation))


def _mean(application: str, found: Sequence[tuple[float, float]]) -> CoRun:
    found = sorted(found)  # floating-point sums depend on the order
    samples = sum(share for share, _ in found)
    mean = sum(share * deviation for share, deviation in found) / samples
    return CoRun(application, exp(_bounded(mean)), samples)


def factor(profile: Profile | None, other: str) -> float:
    """Return by how much an application is slower beside another one than predicted.

    Parameters
    ----------
    profile
        Profile of the application; None if it has none.
    other
        The other application.

    Returns
    -------
    float
        1 without evidence, and the nearer to it the less evidence there is.
    """
    deviation, samples = _evidence(profile, other)
    return exp(deviation * samples / (samples + PRIOR_RUNS))


def spread(profile: Profile | None, other: str) -> float:
    """Return how uncertain the corrected prediction for a pair is.

    Returns
    -------
    float
        Standard deviation of the logarithm of the slowdown: `SPREAD` without evidence.
    """
    _, samples = _evidence(profile, other)
    return SPREAD * sqrt(PRIOR_RUNS / (PRIOR_RUNS + samples))


def margin(profile: Profile | None, other: str, busy: float, other_busy: float) -> float:
    """Return the factor of a predicted slowdown that allows for what is not known of a pair.

    One standard deviation, in proportion to the time in which both are busy: jobs that are hardly
    busy cannot slow each other much. So a budget for slowdowns does not keep all applications
    apart of which nothing is known; then nothing would ever be.

    Parameters
    ----------
    busy, other_busy
        Shares of the time in which a kernel of each job runs, 0 to 1.
    """
    return 1 + spread(profile, other) * busy * other_busy


def _evidence(profile: Profile | None, other: str) -> tuple[float, float]:
    """Return the mean deviation of a pair and its number of runs."""
    for found in profile.co_runs if profile is not None and other else ():
        if found.application == other and 0 < found.ratio < inf and 0 < found.samples < inf:
            return _bounded(log(found.ratio)), found.samples
    return 0.0, 0.0


def pair_factors(profiles: Sequence[Profile | None]) -> list[float] | None:
    """Return `factor` of each job beside each other one, for `interference.slowdowns`.

    Parameters
    ----------
    profiles
        The profiles of the jobs on one GPU.

    Returns
    -------
    list of float or None
        Row by row: first those of the first job. A job has 1 beside itself. None if there is no
        evidence.
    """
    if not any(profile is not None and profile.co_runs for profile in profiles):
        return None
    names = [profile.application if profile is not None else "" for profile in profiles]
    return [
        1.0 if i == j else factor(profile, other)
        for i, profile in enumerate(profiles)
        for j, other in enumerate(names)
    ]
