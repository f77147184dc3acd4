"""Compares the runs of an ApplicationProfile beside other jobs with their prediction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from partita.models.profile import Measurement, SharedRun
from partita_policies import types as policy
from partita_policies.co_runs import ObservedRun, co_runs
from partita_policies.forecast import mean_load, phases_of
from partita_policies.interference import slowdowns

__all__ = ["ComparedRun", "ComparedRuns", "Neighbour", "compared_runs", "evidence_of"]

Neighbour = tuple[str, policy.Profile]
"""The name of an application beside a run, and its profile without co-runs."""
_LEAST_KNOWN = 0.9
"""Least part of a run of which the neighbours are known. An assumption."""
_LEAST_RUNS = 3
"""Runs beside other jobs that show how long an application takes alone if it never was. With fewer
each would mostly be compared with itself. An assumption."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run beside other jobs, with its predicted slowdown."""

    run: SharedRun
    slowdown: float | None
    """None if too many of the jobs beside it have no profile."""
    parts: tuple[tuple[str, float], ...] = ()
    """The applications beside it that have a profile, each with the part of the run."""


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of an application beside other jobs, and how long it takes without any."""

    alone: float
    """Seconds; 0 if it is not known."""
    measured: int
    """Number of runs without other jobs from which `alone` was measured. 0: it is what the runs
    lead to when their predicted slowdowns are taken off."""
    runs: Sequence[ComparedRun]


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
    compared = compared_runs(profile, measured, find)
    if not compared.alone:
        return profile
    evidence = (
        ObservedRun(one.run.duration / compared.alone, one.slowdown, one.parts)
        for one in compared.runs
        if one.slowdown is not None
    )
    return replace(profile, duration=compared.alone, co_runs=co_runs(evidence))


def compared_runs(
    profile: policy.Profile, measured: Measurement, find: Callable[[str], Neighbour | None]
) -> ComparedRuns:
    """Return the runs beside other jobs; parameters as of `evidence_of`."""
    keys = {key for run in measured.shared_runs for one in run.beside for key in one.applications}
    there = {key: neighbour for key in keys if (neighbour := find(key)) is not None}
    runs = _predicted(profile, measured, there)
    alone = measured.duration if measured.undisturbed else 0.0
    undisturbed = [one.run.duration / one.slowdown for one in runs if one.slowdown is not None]
    if not alone and len(undisturbed) >= _LEAST_RUNS:
        alone = geometric_mean(undisturbed)
    return ComparedRuns(alone, measured.undisturbed, runs)


def _predicted(
    profile: policy.Profile, measured: Measurement, there: Mapping[str, Neighbour]
) -> list[ComparedRun]:
    """Predict the runs of which nearly all neighbours are known."""
    where = measured.environment
    gpu = policy.GPU(
        id=where.product,
        node=where.node,
        memory=where.memory,
        max_jobs=1,
        sm_count=where.sm_count,
        pcie_bandwidth=where.pcie_bandwidth,
    )
    own = [mean_load(phases_of(profile, gpu))] if there else []
    loads = {key: mean_load(phases_of(found, gpu)) for key, (_, found) in there.items()}
    runs = []
    for run in measured.shared_runs:
        known, work = run.alone, run.alone
        parts: list[tuple[str, float]] = []
        for group in run.beside:
            if group.applications and there.keys() >= set(group.applications):
                beside = [loads[key] for key in group.applications]
                known += group.part
                work += group.part / slowdowns([*own, *beside], policy.Sharing.MPS)[0]
                parts += [(there[key][0], group.part) for key in group.applications]
        enough = run.duration > 0 and work > 0 and known >= _LEAST_KNOWN
        runs.append(ComparedRun(run, known / work if enough else None, tuple(parts)))
    return runs
