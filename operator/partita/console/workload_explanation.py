"""Everything that is known about one workload, for `partita explain` and the console. Pure."""

from dataclasses import dataclass
from datetime import datetime

from partita.console.advice import advice_for
from partita.console.ask_policies import Slowdown, predicted_slowdown
from partita.console.workload_settings import Setting, settings_of
from partita.informer.state import State
from partita.reconcile.claims.workloads import name_of
from partita.reconcile.workload_view import WorkloadView

__all__ = ["WorkloadExplanation", "explain_workload"]


@dataclass(frozen=True, slots=True)
class WorkloadExplanation:
    """One workload: its state, what it asks for, what runs beside it, and what to change."""

    workload: WorkloadView
    settings: tuple[Setting, ...]
    beside: tuple[str, ...]
    """`namespace/name` of what has a slice of the same GPU."""
    slowdown: Slowdown | None
    """The prediction for its GPU; None if it has none, or if the GPU is not ready."""
    advice: str
    """What to change; empty if nothing."""
    enforcement: str
    """What limits its GPU memory: `Driver` or `Client`; empty if it is not known."""


def explain_workload(view: WorkloadView, state: State, now: datetime) -> WorkloadExplanation:
    """Return everything that is known about a workload."""
    server = state.servers.get(view.place.server) if view.place is not None else None
    others = server.status.allocations.keys() - {view.uid} if server is not None else set()
    return WorkloadExplanation(
        workload=view,
        settings=tuple(settings_of(view.uid, state)),
        beside=tuple(sorted(name_of(uid, state) for uid in others)),
        slowdown=predicted_slowdown(view.uid, state),
        advice=advice_for(view, now),
        enforcement=(server.status.enforcement or "") if server is not None else "",
    )
