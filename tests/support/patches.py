"""Merge patches as RFC 7386 defines them, written from its text: what ours are checked against."""

from __future__ import annotations

from typing import Any

__all__ = ["merged"]


def merged(target: Any, patch: Any) -> Any:
    """Return what a merge patch makes of a JSON value."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
