"""Everything that is known about a job or workload, for `partita explain` and the console. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from partita.claims.workload_view import WorkloadView
from partita.claims.workloads import claim_request
from partita.console.advice import advice_for, memory_needed
from partita.console.framework_budgets import FrameworkBudget, budgets_of, failure_advice
from partita.console.policy_answer import PolicyAnswer
from partita.console.slowdowns import (
    ObservedSlowdown,
    Slowdown,
    observed_slowdown,
    predicted_slowdown,
    slowness,
)
from partita.console.workload_settings import Setting, settings_of
from partita.constants import OTHERS_JOB
from partita.models import Attempt, Outcome, SharedGPUJob, SharedGPUJobStatus
from partita.models.partition_status import GPUSummary
from partita.scheduling.namespace_shares import namespace_shares
from partita.scheduling.request import request_of_job
from partita.store.state import State
from partita_policies.amounts import DominantShare

__all__ = ["ExplainedRequest", "Explanation", "explain", "visible_names"]


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """A job or a Pod: where it is, what it waits for, what slows it down, and what it needs.

    Of more than 3 Pods of a controller, only `workload` is known of the others.
    """

    namespace: str
    name: str
    workload: WorkloadView
    status: SharedGPUJobStatus | None = None
    """The status of a job; null for a Pod."""
    settings: tuple[Setting, ...] = ()
    """What a Pod asks for, and where that is written."""
    beside: Sequence[str] | None = None
    """`namespace/name` of what has a slice of the same GPU now; null without a GPU that the user
    may read."""
    slowdown: Slowdown | None = None
    """The prediction for its GPU; null if it has none, or if the GPU is not ready."""
    observed: ObservedSlowdown | None = None
    """How much longer runs of its application beside others took; of a job that has ended, its own
    run. Null if its run alone was never measured."""
    slowed: str = ""
    """What is predicted and observed, as a sentence; empty if nothing is known."""
    needs: str = ""
    """How much GPU memory it needs, as a sentence."""
    advice: str = ""
    """What to change; empty if nothing."""
    enforcement: str = ""
    """What limits its GPU memory: `Driver` or `Client`; empty if it is not known."""
    frameworks: tuple[FrameworkBudget, ...] = ()
    """What to set in frameworks, by the GPUs that it has or could get."""
    named_frameworks: tuple[str, ...] = ()
    """Those that its images, commands, variables or settings name; only these are printed."""
    namespace_share: DominantShare | None = None
    """The share of the partition that its namespace has; null if that is not known."""
    gpus: tuple[GPUSummary, ...] = ()
    """The GPUs of a job's partition, as far as they may be read."""
    policies: Sequence[PolicyAnswer] = ()
    """With --policies, what each policy would do with it now; otherwise, after its end and without
    the rights, empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(ExplainedRequest):
    """Everything that is known about a job or workload."""

    job: SharedGPUJob | None
    """None for a workload."""

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts of a job; empty for a workload."""
        return self.status.attempts if self.status is not None else ()

    @property
    def waits(self) -> bool:
        """Whether it waits for a GPU."""
        suspended = self.job is not None and self.job.spec.suspend
        return self.workload.phase == "Queued" and not suspended


def explain(view: WorkloadView, state: State, now: datetime) -> Explanation:
    """Return everything that is known about a job or workload."""
    job, partition = state.jobs.get(view.uid), state.partitions.get(view.partition)
    servers = [state.servers[name] for name in state.allocated(view.uid)]
    others = {uid: entry for one in servers for uid, entry in one.status.allocations.items()}
    for own in state.holders(view.uid):
        others.pop(own, None)
    profiles, key = state.profiles, (view.namespace, view.application)
    attempts = job.status.attempts if job else ()
    asks = request_of_job(job, attempts) if job else claim_request(view.uid, state)
    predicted = predicted_slowdown(view.uid, servers, state)
    observed = observed_slowdown(view, servers, state, others, [a.pod_uid for a in attempts])
    peaks = [view.place and view.place.peak, job and job.status.peak_memory]
    refused = [a.memory for a in attempts if a.outcome is Outcome.OUT_OF_MEMORY]
    gpus = partition.status.gpu_summary if partition is not None else ()
    mine = view.place.server.split(", ") if view.place is not None else ()
    limits = (gpu.enforcement or "" for gpu in gpus if gpu.name in mine)
    share = namespace_shares(partition, state).get(view.namespace) if partition else None
    return Explanation(
        namespace=view.namespace,
        name=view.name,
        workload=view,
        status=job.status if job else None,
        settings=tuple(settings_of(view.uid, state)),
        beside=sorted(f"{e.namespace}/{e.user}" for e in others.values()) if servers else None,
        slowdown=predicted,
        observed=observed,
        slowed=slowness(view, predicted, observed, len(others) if servers else None, now),
        needs=memory_needed(
            view,
            profiles.profile(*key),
            max((peak for peak in peaks if peak), default=None),
            refused if job else [profiles.refused(*key)],
        ),
        advice="" if job else failure_advice(view.uid, state) or advice_for(view, now),
        enforcement=next(limits, ""),
        frameworks=budgets_of(view.uid, asks, state),
        namespace_share=share.dominant if share is not None else None,
        job=job,
        gpus=gpus if job else (),
    )


def visible_names(names: Sequence[str], sees: Callable[[str], bool]) -> list[str]:
    """Return `namespace/name` of each, and one text for all that may not be seen.

    Parameters
    ----------
    sees
        Returns whether the reader may see the names in a namespace.
    """
    seen = [name for name in names if sees(name.partition("/")[0])]
    return seen + ([OTHERS_JOB] if len(seen) < len(names) else [])
