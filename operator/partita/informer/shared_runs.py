"""Compares the runs of an ApplicationProfile beside other jobs with their prediction."""

from collections.abc import Callable, Iterator, Mapping

from partita.models.profile import Measurement, SharedRun
from partita_policies import types as policy
from partita_policies.co_runs import ObservedRun, co_runs
from partita_policies.forecast import mean_load, phases_of
from partita_policies.interference import Load, slowdowns

__all__ = ["Neighbour", "evidence_of"]

Neighbour = tuple[str, policy.Profile]
"""The name of an application beside a run, and its profile without co-runs."""
_LEAST_KNOWN = 0.9
"""Least part of a run of which the neighbours are known. An assumption."""


def evidence_of(
    profile: policy.Profile, measured: Measurement, find: Callable[[str], Neighbour | None]
) -> tuple[policy.CoRun, ...]:
    """Return what runs beside other jobs say about the prediction for these pairs.

    The runs are kept as they were measured. They are compared with today's profiles and model, so
    the evidence never refers to an earlier prediction.

    Parameters
    ----------
    profile
        The profile for policies.
    measured
        The measurement that it was made from. It says nothing without an undisturbed run.
    find
        Returns the application of a hash; None if it has no profile.
    """
    if measured.undisturbed is None or not measured.shared_runs:
        return ()
    where, undisturbed = measured.environment, measured.undisturbed.duration
    gpu = policy.GPU(
        id=where.product,
        node=where.node,
        memory=where.memory,
        max_jobs=1,
        sm_count=where.sm_count,
        pcie_bandwidth=where.pcie_bandwidth,
    )

    def load(found: policy.Profile) -> Load:
        return mean_load(phases_of(found, gpu))

    def observed(run: SharedRun, there: Mapping[str, Neighbour | None]) -> Iterator[ObservedRun]:
        known, work = run.alone, run.alone
        parts: list[tuple[str, float]] = []
        for group in run.beside:
            others = [one for key in group.applications if (one := there[key]) is not None]
            if others and len(others) == len(group.applications):
                loads = [load(profile), *(load(other) for _, other in others)]
                known += group.part
                work += group.part / slowdowns(loads, policy.Sharing.MPS)[0]
                parts += [(name, group.part) for name, _ in others]
        if undisturbed > 0 and work > 0 and known >= _LEAST_KNOWN:
            yield ObservedRun(run.duration / undisturbed, known / work, tuple(parts))

    runs = measured.shared_runs
    keys = {key for run in runs for group in run.beside for key in group.applications}
    there = {key: find(key) for key in keys}
    return co_runs(found for run in runs for found in observed(run, there))
