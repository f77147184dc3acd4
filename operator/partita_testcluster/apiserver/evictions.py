"""The eviction of a Pod: a deletion that respects PodDisruptionBudgets.

As in ``pkg/registry/core/pod/storage/eviction.go`` of k8s.io/kubernetes. Budgets without a status
of their controller allow no eviction, and this server has no such controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from partita.models.selector import LabelSelector
from partita_testcluster.apiserver.deletions import DeleteOptions, delete
from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.meta import now
from partita_testcluster.apiserver.resources import Target
from partita_testcluster.apiserver.store import Store

__all__ = ["evict"]

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(
    store: Store, target: Target, budgets: Iterable[dict[str, Any]], options: DeleteOptions
) -> None:
    """Mark a Pod as the target of a disruption, and delete it.

    Parameters
    ----------
    budgets
        The PodDisruptionBudgets of the Pod's namespace.

    Raises
    ------
    APIError
        404, 409 if a precondition does not hold, 429 if a budget allows no eviction.
    """
    record = target.existing()
    pod = record.obj
    guarded = pod["status"].get("phase") == "Running" and not record.deleting
    for budget in budgets if guarded else ():
        selector = LabelSelector.model_validate(budget["spec"].get("selector") or {})
        if selector.matches(record.labels) and not budget["status"]["disruptionsAllowed"]:
            name = budget["metadata"]["name"]
            said = f"The disruption budget {name} does not allow evicting pods currently"
            causes = [{"reason": "DisruptionBudget", "message": said}]
            raise APIError(429, "TooManyRequests", _REFUSED, causes=causes)
    conditions = [c for c in pod["status"].get("conditions", ()) if c["type"] != "DisruptionTarget"]
    reason = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": now()}
    pod["status"]["conditions"] = [*conditions, disrupted | reason]
    whole = Target(target.resource, target.namespace, target.name)
    if options.uid in ("", record.uid) and not options.dry_run:
        store.put(target.resource.collection, pod)
    delete(store, whole, options)
