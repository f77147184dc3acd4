"""The memory limits that the containers of a claim should have, as its variables say.

The container toolkit sets them from these variables (`partita.pods.environment`). They are in the
CDI file of the claim, which only the agent writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from partita.models.quantities import MEBI, mebibytes
from partita.pods.environment import MEMORY_LIMIT, MEMORY_REQUEST

__all__ = ["RequestedLimits", "limits_of", "started_containers"]


@dataclass(frozen=True, slots=True)
class RequestedLimits:
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


def limits_of(container: str, variables: Mapping[str, str]) -> RequestedLimits | None:
    """Return the limits that variables state for a container; None if they state none."""
    limit, request = variables.get(MEMORY_LIMIT, ""), variables.get(MEMORY_REQUEST, "")
    if not (limit.isdecimal() and request.isdecimal()):
        return None
    return RequestedLimits(container, int(request) * MEBI, int(limit) * MEBI)


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
