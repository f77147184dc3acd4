"""Everything that is known about a job or workload, for `partita explain` and the console. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from partita.claims.workload_view import WorkloadView, job_view
from partita.claims.workloads import name_of
from partita.console.advice import advice_for
from partita.console.ask_policies import Slowdown, predicted_slowdown
from partita.console.framework_budgets import FrameworkBudget, budgets_of, failure_advice
from partita.console.workload_settings import Setting, settings_of
from partita.models import SharedGPUJob
from partita.models.partition_status import GPUSummary
from partita.scheduling.namespace_shares import namespace_shares
from partita.store.state import State
from partita_policies.amounts import DominantShare

__all__ = ["Explanation", "explain_job", "explain_workload"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A job or workload: its state, what it asks for, what runs beside it, and what to change."""

    workload: WorkloadView
    settings: tuple[Setting, ...]
    """What a workload asks for; empty for a job, which has a spec."""
    beside: Sequence[str] | None
    """`namespace/name` of what has a slice of the same GPU; of a job, of what had one when it
    started. None for readers who may not read the GPUServer."""
    slowdown: Slowdown | None
    """The prediction for its GPU; None if it has none, or if the GPU is not ready."""
    advice: str
    """What to change; empty if nothing."""
    enforcement: str
    """What limits its GPU memory: `Driver` or `Client`; empty if it is not known."""
    frameworks: tuple[FrameworkBudget, ...] = ()
    """What to set in frameworks, by the GPUs that it has or could get."""
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
    others = {uid for server in servers for uid in server.status.allocations} - {view.uid}
    return Explanation(
        workload=view,
        settings=tuple(settings_of(view.uid, state)),
        beside=sorted(name_of(uid, state) for uid in others) if servers or view.waits else None,
        slowdown=predicted_slowdown(view.uid, state),
        advice=failure_advice(view.uid, state) or advice_for(view, now),
        enforcement=next((server.status.enforcement or "" for server in servers), ""),
        frameworks=budgets_of(view.uid, state),
        namespace_share=_share(view.partition, view.namespace, state),
    )


def explain_job(job: SharedGPUJob, state: State) -> Explanation:
    """Return everything that is known about a job."""
    place, partition = job.status.assignment, state.partitions.get(job.spec.partition)
    gpus = partition.status.gpu_summary if partition is not None else ()
    limits = (gpu.enforcement for gpu in gpus if place is not None and gpu.name in place.servers)
    return Explanation(
        workload=job_view(job, place),
        settings=(),
        beside=place.beside if place is not None else (),
        slowdown=predicted_slowdown(job.metadata.uid, state),
        advice="",
        enforcement="Driver" if "Driver" in limits else "",
        frameworks=budgets_of(job.metadata.uid, state),
        namespace_share=_share(job.spec.partition, job.metadata.namespace, state),
        job=job,
        gpus=gpus,
    )


def _share(partition: str, namespace: str, state: State) -> DominantShare | None:
    known = state.partitions.get(partition)
    one = namespace_shares(known, state).get(namespace) if known is not None else None
    return one.dominant if one is not None else None
