"""Writes JSON values as CBOR (RFC 8949), which Kubernetes has behind a feature gate."""

from __future__ import annotations

from typing import Any

__all__ = ["encoded"]

_SELF_DESCRIBED = bytes.fromhex("d9d9f7")
"""Tag of CBOR itself (RFC 8949, section 3.4.6), by which Kubernetes recognises it."""
_UNSIGNED, _NEGATIVE, _TEXT, _ARRAY, _MAP = 0, 1, 3, 4, 5
_SIMPLE = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}


def encoded(value: Any) -> bytes:
    """Return a value without fractions as CBOR."""
    return _SELF_DESCRIBED + _item(value)


def _item(value: Any) -> bytes:
    match value:
        case None | bool():
            return _SIMPLE[value]
        case int():
            return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
        case str():
            data = value.encode()
            return _head(_TEXT, len(data)) + data
        case dict():
            items = (_item(key) + _item(inner) for key, inner in value.items())
            return _head(_MAP, len(value)) + b"".join(items)
        case list() | tuple():
            return _head(_ARRAY, len(value)) + b"".join(map(_item, value))
        case _:
            raise TypeError(f"no CBOR for {type(value).__name__}")


def _head(major: int, number: int) -> bytes:
    """Return the head of an item: its type, and its value or length."""
    if number < 24:
        return bytes([major << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << (8 * size):
            return bytes([major << 5 | code]) + number.to_bytes(size, "big")
    raise OverflowError(number)
