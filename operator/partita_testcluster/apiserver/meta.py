"""Metadata that the server itself writes."""

from __future__ import annotations

import random
import time
import uuid
from datetime import UTC, datetime
from typing import Any

__all__ = ["dig", "generated_name", "new_uid", "now", "timestamp"]

# Without vowels and characters that are easily confused (apimachinery, util/rand).
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def timestamp(seconds: float) -> str:
    """Return a time since the epoch in Kubernetes' format."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now(plus: float = 0) -> str:
    """Return the time `plus` seconds from now in Kubernetes' format."""
    return timestamp(time.time() + plus)


def new_uid() -> str:
    """Return a UID for a new object."""
    return str(uuid.uuid4())


def generated_name(prefix: str) -> str:
    """Return a name for ``generateName``."""
    return prefix[:58] + "".join(random.choices(_ALPHABET, k=5))  # noqa: S311 - not a secret


def dig(value: Any, path: str) -> Any:
    """Return the value at a path such as ``.spec.gpus``, or `None` if it does not exist."""
    for part in path.lstrip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
