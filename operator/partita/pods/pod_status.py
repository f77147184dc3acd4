"""Fields that are read from a Pod's status in more than one place."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from partita.models.quantities import parse_time

__all__ = ["condition", "read_time"]


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a Pod's condition of this type; empty if it has none."""
    return next((c for c in status.get("conditions") or [] if c.get("type") == kind), {})


def read_time(value: object) -> datetime | None:
    """Read a time. kubelet omits it or writes zero for a container that it can no longer find."""
    try:
        time = parse_time(value)
    except ValueError:
        return None
    return time if time.timestamp() > 0 else None
