"""The keywords of a schema that constrain one value by itself, in kube-openapi's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sized
from datetime import datetime
from typing import Any

import orjson

from partita.embedded.errors import FieldError, Path, text_path

__all__ = ["Check", "value_checks"]

Check = Callable[[Any, Path], FieldError | None]

_NUMBER = (int, float)


def _holds(kind: type | tuple[type, ...], test: Callable[[Any], bool], words: str) -> Check:
    """Return a check of values of one kind; others are left to the check of types."""

    def check(value: Any, path: Path) -> FieldError | None:
        if not isinstance(value, kind) or test(value):
            return None
        return FieldError(path, "Invalid value", f"{text_path(path)} in body {words}", value)

    return check


def _at_most(kind: type[Sized], limit: int, problem: str, unit: str) -> Check:
    words = "may not be more than" if problem == "Too long" else "must have at most"
    detail = f"{words} {limit} {unit if limit == 1 else unit + 's'}"

    def check(value: Any, path: Path) -> FieldError | None:
        if not isinstance(value, kind) or len(value) <= limit:
            return None
        return FieldError(path, problem, detail, len(value))

    return check


def _enum(allowed: list[Any], _raw: Mapping[str, Any]) -> Check:
    detail = "supported values: " + ", ".join(f'"{_plain(v)}"' for v in allowed)

    def check(value: Any, path: Path) -> FieldError | None:
        if value in allowed:
            return None
        return FieldError(path, "Unsupported value", detail, value)

    return check


def _minimum(limit: float, raw: Mapping[str, Any]) -> Check:
    if raw.get("exclusiveMinimum"):
        return _holds(_NUMBER, lambda v: v > limit, f"should be greater than {_plain(limit)}")
    words = f"should be greater than or equal to {_plain(limit)}"
    return _holds(_NUMBER, lambda v: v >= limit, words)


def _maximum(limit: float, raw: Mapping[str, Any]) -> Check:
    if raw.get("exclusiveMaximum"):
        return _holds(_NUMBER, lambda v: v < limit, f"should be less than {_plain(limit)}")
    words = f"should be less than or equal to {_plain(limit)}"
    return _holds(_NUMBER, lambda v: v <= limit, words)


def _multiple(factor: float, _raw: Mapping[str, Any]) -> Check:
    return _holds(_NUMBER, lambda v: v % factor == 0, f"should be a multiple of {_plain(factor)}")


def _pattern(pattern: str, _raw: Mapping[str, Any]) -> Check:
    # In Go "$" is the very end; in Python it would let a last newline pass.
    compiled = re.compile(re.sub(r"\$$", r"\\Z", pattern))
    return _holds(str, lambda v: compiled.search(v) is not None, f"should match '{pattern}'")


def _format(name: str, _raw: Mapping[str, Any]) -> Check | None:
    if name != "date-time":
        return None  # as in Kubernetes an unknown format is no constraint

    def check(value: Any, path: Path) -> FieldError | None:
        if _is_time(value):
            return None
        detail = f'{text_path(path)} in body must be of type {name}: "{value}"'
        return FieldError(path, "Invalid type", detail, value)

    return check


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None and "T" in value
    except (TypeError, ValueError):
        return False


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


_KEYWORDS: dict[str, Callable[[Any, Mapping[str, Any]], Check | None]] = {
    "enum": _enum,
    "minimum": _minimum,
    "maximum": _maximum,
    "multipleOf": _multiple,
    "pattern": _pattern,
    "format": _format,
    "minLength": lambda n, _: _holds(
        str, lambda v: len(v) >= n, f"should be at least {n} chars long"
    ),
    "minItems": lambda n, _: _holds(list, lambda v: len(v) >= n, f"should have at least {n} items"),
    "minProperties": lambda n, _: _holds(
        dict, lambda v: len(v) >= n, f"should have at least {n} properties"
    ),
    "maxLength": lambda n, _: _at_most(str, n, "Too long", "byte"),
    "maxItems": lambda n, _: _at_most(list, n, "Too many", "item"),
    "maxProperties": lambda n, _: _at_most(dict, n, "Too many", "item"),
}


def value_checks(raw: Mapping[str, Any]) -> Iterator[Check]:
    """Yield a check for each such keyword of a schema.

    Raises
    ------
    re.error
        Its pattern is no regular expression.
    """
    for keyword, build in _KEYWORDS.items():
        if raw.get(keyword) is not None and (check := build(raw[keyword], raw)):
            yield check
