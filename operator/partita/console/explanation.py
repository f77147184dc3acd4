"""Everything that is known about a job or workload, for `partita explain` and the console. Pure."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypedDict

from partita.claims.workload_view import WorkloadView, job_view
from partita.claims.workloads import measured_place, name_of
from partita.console.advice import advice_for, memory_needed
from partita.console.framework_budgets import FrameworkBudget, budgets_of, failure_advice
from partita.console.slowdowns import (
    ObservedSlowdown,
    Slowdown,
    observed_slowdown,
    predicted_slowdown,
    slowness,
)
from partita.console.view import queued_view
from partita.console.workload_settings import Setting, settings_of
from partita.constants import OTHERS_JOB
from partita.models import GPUServer, Outcome, SharedGPUJob
from partita.models.partition_status import GPUSummary
from partita.scheduling.namespace_shares import namespace_shares
from partita.store.state import State
from partita_policies.amounts import DominantShare

__all__ = ["Explanation", "explain_job", "explain_workload", "visible_names"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A job or workload: its state, what it asks for, what runs beside it, and what to change."""

    workload: WorkloadView
    settings: tuple[Setting, ...]
    """What a workload asks for; empty for a job, which has a spec."""
    beside: Sequence[str] | None
    """`namespace/name` of what has a slice of the same GPU now; None if the GPU may not be read."""
    slowdown: Slowdown | None
    """The prediction for its GPU; None if it has none, or if the GPU is not ready."""
    observed: ObservedSlowdown | None
    """How much longer runs of its application beside others took; of a job that has ended, its own
    run. None if its run alone was never measured."""
    slowed: str
    """Both as a sentence; empty if nothing is known."""
    needs: str
    """How much GPU memory it needs, as a sentence."""
    advice: str
    """What to change; empty if nothing."""
    enforcement: str
    """What limits its GPU memory: `Driver` or `Client`; empty if it is not known."""
    frameworks: tuple[FrameworkBudget, ...] = ()
    """What to set in frameworks, by the GPUs that it has or could get."""
    named_frameworks: tuple[str, ...] = ()
    """The frameworks that its images, commands, variables or settings name, if its Pod is known."""
    namespace_share: DominantShare | None = None
    """The share of the partition that its namespace has; None if that is not known."""
    job: SharedGPUJob | None = None
    """None for a workload."""
    gpus: tuple[GPUSummary, ...] = ()
    """The GPUs of a job's partition, as far as they may be read."""

    @property
    def waits(self) -> bool:
        """Whether it waits for a GPU."""
        suspended = self.job is not None and self.job.spec.suspend
        return self.workload.phase == "Queued" and not suspended


def explain_workload(view: WorkloadView, state: State, now: datetime) -> Explanation:
    """Return everything that is known about a workload."""
    servers = [state.servers[name] for name in state.allocated(view.uid)]
    place, refused = view.place, state.profiles.refused(view.namespace, view.application)
    return Explanation(
        **_neighbourhood(view, servers, state, now),
        workload=view,
        settings=tuple(settings_of(view.uid, state)),
        needs=memory_needed(
            view,
            state.profiles.profile(view.namespace, view.application),
            place.peak if place is not None else None,
            [refused],
        ),
        advice=failure_advice(view.uid, state) or advice_for(view, now),
        enforcement=next((server.status.enforcement or "" for server in servers), ""),
        frameworks=budgets_of(view.uid, state),
        namespace_share=_share(view.partition, view.namespace, state),
    )


def explain_job(job: SharedGPUJob, state: State, now: datetime) -> Explanation:
    """Return everything that is known about a job."""
    status, partition = job.status, state.partitions.get(job.spec.partition)
    place, attempts = status.assignment, status.attempts
    gpus = partition.status.gpu_summary if partition is not None else ()
    limits = (gpu.enforcement for gpu in gpus if place is not None and gpu.name in place.servers)
    view = job_view(job, place) if place is not None else queued_view(job, state)
    if view.place is not None and not view.ended:
        view = replace(view, place=measured_place(view, state))
    refused = [a.memory for a in attempts if a.outcome is Outcome.OUT_OF_MEMORY]
    servers = [state.servers[name] for name in state.allocated(view.uid)]
    peaks = [status.peak_memory, view.place.peak if view.place is not None else None]
    return Explanation(
        **_neighbourhood(view, servers, state, now, pods=[a.pod_uid for a in attempts]),
        workload=view,
        settings=(),
        needs=memory_needed(
            view,
            state.profiles.profile(view.namespace, view.application),
            max((peak for peak in peaks if peak), default=None),
            refused,
        ),
        advice="",
        enforcement="Driver" if "Driver" in limits else "",
        frameworks=budgets_of(job.metadata.uid, state),
        namespace_share=_share(job.spec.partition, job.metadata.namespace, state),
        job=job,
        gpus=gpus,
    )


class _Neighbourhood(TypedDict):
    """The fields of an explanation about what shares its GPU."""

    beside: Sequence[str] | None
    slowdown: Slowdown | None
    observed: ObservedSlowdown | None
    slowed: str


def _neighbourhood(
    view: WorkloadView,
    servers: Sequence[GPUServer],
    state: State,
    now: datetime,
    pods: Collection[str] = (),
) -> _Neighbourhood:
    """Return what shares the GPUs of a job or workload now, and how much that slows it down."""
    others = {uid for one in servers for uid in one.status.allocations}
    others -= {*state.holders(view.uid)}
    predicted = predicted_slowdown(view.uid, servers, state)
    observed = observed_slowdown(view, servers, state, others, pods)
    return {
        "beside": sorted(name_of(uid, state) for uid in others) if servers else None,
        "slowdown": predicted,
        "observed": observed,
        "slowed": slowness(
            view, predicted, observed, beside=len(others) if servers else None, now=now
        ),
    }


def visible_names(names: Sequence[str], sees: Callable[[str], bool]) -> list[str]:
    """Return `namespace/name` of each, and one text for all that may not be seen.

    Parameters
    ----------
    sees
        Returns whether the reader may see the names in a namespace.
    """
    seen = [name for name in names if sees(name.partition("/")[0])]
    return seen + ([OTHERS_JOB] if len(seen) < len(names) else [])


def _share(partition: str, namespace: str, state: State) -> DominantShare | None:
    known = state.partitions.get(partition)
    one = namespace_shares(known, state).get(namespace) if known is not None else None
    return one.dominant if one is not None else None
