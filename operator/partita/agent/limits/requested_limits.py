"""The memory limits that the containers of a claim should have, as its variables say.

The container toolkit sets them from these variables (`partita.pods.environment`). They are in the
CDI file of the claim, which only the agent writes.
"""

from collections.abc import Mapping
from typing import Any

from partita.agent.gpu.nvml_memory_limits import MemoryLimits
from partita.models.quantities import MEBI
from partita.pods.environment import MEMORY_LIMIT, MEMORY_REQUEST

__all__ = ["limits_of", "started_containers"]


def limits_of(variables: Mapping[str, str]) -> MemoryLimits | None:
    """Return the limits that variables state; None if they state none."""
    limit, request = variables.get(MEMORY_LIMIT, ""), variables.get(MEMORY_REQUEST, "")
    if not (limit.isdecimal() and request.isdecimal()):
        return None
    return MemoryLimits(int(request) * MEBI, int(limit) * MEBI)


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
