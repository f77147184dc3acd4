"""The memory limits that the containers of a Pod should have, as its variables say.

The container toolkit sets them from these variables (`partita.pods.environment`). Those of a job
are in the Pod's spec, which only the operator writes (admission). Those of a claim are in its CDI
file, which only the agent writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from partita.models.quantities import MEBI, mebibytes
from partita.pods.environment import MEMORY_LIMIT, MEMORY_REQUEST

__all__ = ["ContainerLimits", "limited_containers", "limits_of", "started_containers"]


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The limits of one container on its GPU."""

    container: str
    """Its name in the Pod."""
    request: int
    """Guaranteed memory, bytes."""
    limit: int
    """Most memory, bytes."""

    @override
    def __str__(self) -> str:
        """Describe the limits."""
        if self.request == self.limit:
            return mebibytes(self.limit)
        return f"{mebibytes(self.limit)} with {mebibytes(self.request)} guaranteed"


def limited_containers(pod: Mapping[str, Any]) -> list[ContainerLimits]:
    """Return the limits of each container of a Pod that should have some.

    Parameters
    ----------
    pod
        The Pod as the API server returns it.
    """
    spec = pod["spec"]
    found = []
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        values = {e["name"]: e.get("value", "") for e in container.get("env") or ()}
        limits = limits_of(container["name"], values)
        if limits is not None:
            found.append(limits)
    return found


def limits_of(container: str, variables: Mapping[str, str]) -> ContainerLimits | None:
    """Return the limits that variables state for a container; None if they state none."""
    limit, request = variables.get(MEMORY_LIMIT, ""), variables.get(MEMORY_REQUEST, "")
    if not (limit.isdecimal() and request.isdecimal()):
        return None
    return ContainerLimits(container, int(request) * MEBI, int(limit) * MEBI)


def started_containers(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the ID of each running container of a Pod by its name, without the runtime's prefix.

    Parameters
    ----------
    pod
        The Pod as the API server returns it.
    """
    status = pod.get("status") or {}
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return {
        s["name"]: s["containerID"].rpartition("/")[2]
        for s in statuses
        if "running" in (s.get("state") or {}) and s.get("containerID")
    }
