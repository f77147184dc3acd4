"""How much what shares a GPU slows a job or workload down: predicted, and as observed. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import geometric_mean
from typing import Final

from partita.claims.workload_view import WorkloadView
from partita.models import GPUServer, Phase
from partita.models.profile import SharedRun, application_hash
from partita.models.quantities import format_duration, seconds_since
from partita.scheduling.snapshot import gpu_of
from partita.store.shared_runs import ComparedRun
from partita.store.state import State
from partita_policies.forecast import slowdowns_together
from partita_policies.types import GPU, Job, RunningJob, Sharing

__all__ = [
    "ObservedSlowdown",
    "Slowdown",
    "holder_id",
    "observed_slowdown",
    "predicted_slowdown",
    "slowest",
    "slowness",
]

_NEVER_ALONE: Final = "not observed: no run of its application alone was measured yet"
_SAME: Final = 0.5
"""Least part of a run beside the same applications as now for it to count as a run beside them. An
assumption."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A predicted slowdown by the jobs on the same GPU."""

    factor: float
    """Duration relative to a run alone on the GPU; at least 1."""
    measured: bool
    """Whether all jobs on the GPU have a profile; otherwise a part of the load is assumed."""


@dataclass(frozen=True, slots=True)
class ObservedSlowdown:
    """How much longer runs of an application beside others took than its runs without any."""

    factor: float | None
    """Duration relative to a run alone: the geometric mean; None without such a run, or if a run
    alone was never measured."""
    predicted: float | None
    """The prediction for the same runs; None if something beside them has no profile."""
    runs: int
    """Number of these runs."""
    alone: float | None
    """Seconds of a run alone; None if that was never measured."""
    same: bool
    """Whether they are runs beside the same applications as now; of a job that has ended, whether
    it is its own run."""


def predicted_slowdown(uid: str, servers: Sequence[GPUServer], state: State) -> Slowdown | None:
    """Predict how much a job or claim is slowed down by those on its GPUs; None without a GPU.

    Parameters
    ----------
    servers
        Its GPUs.
    """
    partition = state.partitions.get(servers[0].spec.partition) if servers else None
    if partition is None:
        return None
    cap = partition.spec.priority_cap
    gpus = [gpu_of(server, partition, state, cap) for server in servers]
    there = {gpu: list[Job | RunningJob](gpu.running) for gpu in gpus}
    return slowest(state.holder(uid), there, Sharing(partition.spec.sharing.mode))


def slowest(
    uid: str, there: Mapping[GPU, Sequence[Job | RunningJob]], sharing: Sharing
) -> Slowdown | None:
    """Return the largest slowdown of a job on any of its GPUs, with what runs on each of them."""
    found = []
    for gpu, jobs in there.items():
        own = zip(jobs, slowdowns_together(jobs, gpu, sharing), strict=True)
        found += [Slowdown(*predicted) for job, predicted in own if holder_id(job) == uid]
    return max(found, key=lambda one: one.factor, default=None)


def holder_id(job: Job | RunningJob) -> str:
    """Return the ID of a job or claim that waits or runs."""
    return job.id if isinstance(job, Job) else job.job


def observed_slowdown(
    view: WorkloadView,
    servers: Sequence[GPUServer],
    state: State,
    beside: Collection[str],
    pods: Collection[str],
) -> ObservedSlowdown | None:
    """Return what earlier runs of its application show; None if it has no profile.

    Parameters
    ----------
    servers
        Its GPUs.
    beside
        UIDs of the claims on the same GPUs.
    pods
        UIDs of the Pods of its attempts.
    """
    product = servers[0].status.product if servers else ""
    compared = state.profiles.compared_runs(view.namespace, view.application, product)
    if compared is None:
        return None
    entries = {uid: entry for one in servers for uid, entry in one.status.allocations.items()}
    now = {
        application_hash(entries[uid].namespace, entries[uid].application)
        for uid in beside
        if uid in entries
    }
    runs = [one for one in compared.runs if one.run.duration > 0]
    if view.ended:
        runs = same = [one for one in runs if one.run.pod_uid and one.run.pod_uid in pods]
    else:
        same = [one for one in runs if _part_beside(now, one.run) >= _SAME]
    alone = (compared.alone or None) if compared.measured else None
    return _mean(same or runs, alone, same=bool(same))


def _part_beside(applications: Collection[str], run: SharedRun) -> float:
    """Return the part of a run in which just these applications were beside it."""
    return sum(group.part for group in run.beside if set(group.applications) == set(applications))


def _mean(runs: Sequence[ComparedRun], alone: float | None, *, same: bool) -> ObservedSlowdown:
    predicted = [one.slowdown for one in runs if one.slowdown is not None]
    return ObservedSlowdown(
        factor=geometric_mean(one.run.duration / alone for one in runs) if runs and alone else None,
        predicted=geometric_mean(predicted) if runs and len(predicted) == len(runs) else None,
        runs=len(runs),
        alone=alone,
        same=same,
    )


def slowness(
    view: WorkloadView,
    predicted: Slowdown | None,
    observed: ObservedSlowdown | None,
    beside: int | None,
    now: datetime,
) -> str:
    """Return as a sentence whether a job or workload is slowed down; empty if nothing is known.

    Parameters
    ----------
    beside
        Number of others that have a slice of its GPU; None if that is not known.
    """
    if view.ended:
        return _of_ended(observed)
    if view.place is None:
        return ""
    if beside == 0:
        said = ["none now: nothing runs beside it"]
    elif predicted is None:
        said = []
    elif predicted.measured:
        said = [f"predicted to take {predicted.factor:.2f} times as long as alone"]
    else:
        said = ["not predicted: no profile is known of an application on its GPU"]
    if observed is not None and observed.factor is not None:
        said.append(_of_runs(observed))
    elif beside and view.lasting:
        said.append("not observed: it never ends by itself, so no duration can be compared")
    elif beside and (observed is None or observed.alone is None):
        said.append(_NEVER_ALONE)
    elif beside:
        said.append("not observed: no run beside others was measured yet")
    ran = seconds_since(view.place.since, now)
    starts = not view.is_job or view.phase != Phase.RUNNING
    alone = observed.alone if observed is not None else None
    if alone is not None and ran > alone and not starts:
        said.append(f"it runs for {_time(ran)} now, alone it takes {_time(alone)}")
    return "; ".join(said)


def _of_ended(observed: ObservedSlowdown | None) -> str:
    if observed is None or not observed.runs:
        return ""
    guess = observed.predicted
    if observed.factor is None or observed.alone is None:
        said = f"{guess:.2f} times as long as alone was predicted; " if guess else ""
        return said + _NEVER_ALONE
    took, alone = _time(observed.alone * observed.factor), _time(observed.alone)
    said = f"took {observed.factor:.2f} times as long as alone ({took}, alone it takes {alone})"
    return said + (f"; {guess:.2f} was predicted" if guess else "")


def _of_runs(observed: ObservedSlowdown) -> str:
    runs = f"{observed.runs} earlier run{'s' if observed.runs > 1 else ''}"
    which = "the same applications" if observed.same else "other applications"
    text = f"{runs} beside {which} took {observed.factor:.2f} times as long as alone"
    return text + (f" ({observed.predicted:.2f} was predicted)" if observed.predicted else "")


def _time(seconds: float) -> str:
    return format_duration(round(seconds, 1 if seconds < 10 else 0))
