"""Resource requests of a Pod, as kube-scheduler counts them.

They follow `PodRequests` in k8s.io/component-helpers, resource/helpers.go, and the defaults of
k8s.io/kubernetes, pkg/apis/core/v1/defaults.go (`SetDefaults_Pod`, `defaultPodRequests`). A
template does not show the additions of admission (a LimitRange's defaults, a RuntimeClass's
overhead, a webhook's changes). These are known only once the Pod exists.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from partita.models.quantities import MAX_AMOUNT, parse_amount

__all__ = ["NOTHING", "Requests", "effective_requests", "requests_of"]

_POD_LEVEL = ("cpu", "memory", "hugepages-")
"""Resources that a Pod may request for all its containers together (`IsSupportedPodLevelResource`):
two names and a prefix."""


class Requests(NamedTuple):
    """The resources of a node that every Pod may request."""

    cpu: int = 0
    """Thousandths of a CPU."""
    memory: int = 0
    """Bytes."""
    storage: int = 0
    """Bytes of ephemeral storage."""


NOTHING = Requests()


def requests_of(amounts: Mapping[str, int]) -> Requests:
    """Return CPU, memory and ephemeral storage from amounts by resource name."""
    return Requests(
        amounts.get("cpu", 0), amounts.get("memory", 0), amounts.get("ephemeral-storage", 0)
    )


def effective_requests(
    spec: Mapping[str, Any], status: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """Return the total requests of a Pod, by resource name.

    Init containers run one after the other before the containers. Init containers that always
    restart (sidecars) continue to run together with the later containers.

    Parameters
    ----------
    spec
        The Pod's spec, or a template's.
    status
        The Pod's status, if it has one. While a Pod is resized in place, the largest of the
        requested, the allocated and the actual amount counts.

    Raises
    ------
    ValueError
        If an amount is not a quantity.
    """
    states = _states(status)
    infeasible = _is_resize_infeasible(status) if states else False
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(total, _of_container(container, states, infeasible=infeasible))
    sidecars: dict[str, int] = {}
    initial: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = _of_container(container, states, infeasible=infeasible)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            _raise_to(initial, sidecars)
        else:
            _add(asked, sidecars)
            _raise_to(initial, asked)
    _raise_to(total, initial)
    _apply_pod_level(total, spec.get("resources") or {})
    _add(total, _amounts(spec.get("overhead") or {}))
    return {name: min(value, MAX_AMOUNT) for name, value in total.items()}


def _states(status: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """Return the statuses of the containers whose resources are reported, by name."""
    return {
        state["name"]: state
        for kind in ("containerStatuses", "initContainerStatuses")
        for state in (status or {}).get(kind) or ()
        if "allocatedResources" in state or "resources" in state
    }


def _is_resize_infeasible(status: Mapping[str, Any] | None) -> bool:
    """Return whether kubelet can never perform the requested resize."""
    return any(
        c["type"] == "PodResizePending" and c.get("reason") == "Infeasible"
        for c in (status or {}).get("conditions") or ()
    )


def _of_container(
    container: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]], *, infeasible: bool
) -> dict[str, int]:
    resources = container.get("resources") or {}
    # A resource with a limit but no request gets its limit as request.
    asked = _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
    state = states.get(container.get("name", ""))
    if state is None:
        return asked
    reported = [
        _amounts(state.get("allocatedResources") or {}),
        _amounts((state.get("resources") or {}).get("requests") or {}),
    ]
    most = {} if infeasible and any(reported) else asked
    for amounts in reported:
        _raise_to(most, amounts)
    return most


def _apply_pod_level(total: dict[str, int], resources: Mapping[str, Any]) -> None:
    """Replace the sum of the containers by the amounts that the Pod requests as a whole."""
    requests, limits = (_amounts(resources.get(kind) or {}) for kind in ("requests", "limits"))
    stated = limits | total | requests
    total.update((name, stated[name]) for name in stated if name.startswith(_POD_LEVEL))


def _amounts(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {name: parse_amount(name, quantity) for name, quantity in quantities.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, value in least.items():
        if value > total.get(name, 0):
            total[name] = value
