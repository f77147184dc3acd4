"""Compares the runs of an ApplicationProfile beside other jobs with their prediction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import geometric_mean

from partita.models.profile import Measurement
from partita_policies import types as policy
from partita_policies.co_runs import ObservedRun, co_runs
from partita_policies.forecast import mean_load, phases_of
from partita_policies.interference import slowdowns

__all__ = ["Neighbour", "evidence_of"]

Neighbour = tuple[str, policy.Profile]
"""The name of an application beside a run, and its profile without co-runs."""
_LEAST_KNOWN = 0.9
"""Least part of a run of which the neighbours are known. An assumption."""
_LEAST_RUNS = 3
"""Runs beside other jobs that show how long an application takes alone if it never was. With fewer
each would mostly be compared with itself. An assumption."""


@dataclass(frozen=True, slots=True)
class _Predicted:
    """A run with its predicted slowdown."""

    duration: float
    slowdown: float
    parts: tuple[tuple[str, float], ...]


def evidence_of(
    profile: policy.Profile, measured: Measurement, find: Callable[[str], Neighbour | None]
) -> policy.Profile:
    """Return a profile with what runs beside other jobs say about the prediction for these pairs.

    The runs are kept as they were measured. They are compared with today's profiles and model, so
    the evidence never refers to an earlier prediction.

    An application that never had a GPU to itself is taken to need alone what its runs lead to when
    their predicted slowdowns are taken off. Then the evidence of a pair is relative to that of
    the other pairs.

    Parameters
    ----------
    profile
        The profile for policies.
    measured
        The measurement that it was made from.
    find
        Returns the application of a hash; None if it has no profile.
    """
    alone = measured.duration if measured.undisturbed else 0.0
    keys = {key for run in measured.shared_runs for one in run.beside for key in one.applications}
    there = {key: neighbour for key in keys if (neighbour := find(key)) is not None}
    runs = _predicted(profile, measured, there)
    if not alone and len(runs) >= _LEAST_RUNS:
        alone = geometric_mean(run.duration / run.slowdown for run in runs)
    if not alone:
        return profile
    evidence = (ObservedRun(run.duration / alone, run.slowdown, run.parts) for run in runs)
    return replace(profile, duration=alone, co_runs=co_runs(evidence))


def _predicted(
    profile: policy.Profile, measured: Measurement, there: Mapping[str, Neighbour]
) -> list[_Predicted]:
    """Predict the runs of which nearly all neighbours are known."""
    if not there:
        return []
    where = measured.environment
    gpu = policy.GPU(
        id=where.product,
        node=where.node,
        memory=where.memory,
        max_jobs=1,
        sm_count=where.sm_count,
        pcie_bandwidth=where.pcie_bandwidth,
    )
    own = mean_load(phases_of(profile, gpu))
    loads = {key: mean_load(phases_of(found, gpu)) for key, (_, found) in there.items()}
    runs = []
    for run in measured.shared_runs:
        known, work = run.alone, run.alone
        parts: list[tuple[str, float]] = []
        for group in run.beside:
            if group.applications and there.keys() >= set(group.applications):
                beside = [loads[key] for key in group.applications]
                known += group.part
                work += group.part / slowdowns([own, *beside], policy.Sharing.MPS)[0]
                parts += [(there[key][0], group.part) for key in group.applications]
        if run.duration > 0 and work > 0 and known >= _LEAST_KNOWN:
            runs.append(_Predicted(run.duration, known / work, tuple(parts)))
    return runs
