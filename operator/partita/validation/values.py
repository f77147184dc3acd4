"""Validation of a value against a compiled schema, with kube-apiserver's messages."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from partita.models.errors import text_path
from partita.validation.cel import QUANTITY_MESSAGE, CELRule, RuleError, activation, is_quantity
from partita.validation.field_errors import FieldError, Key, Path
from partita.validation.metadata import FORMATS

if TYPE_CHECKING:
    from partita.validation.schema import Schema

__all__ = ["Check", "validate", "value_checks"]

Errors = list[FieldError]
Check = Callable[[Any, Path], Errors]

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
          dict: "object", type(None): "null"}  # fmt: skip
# If an error has one of these types, CEL rules could fail on malformed values and are not run
# (apiextensions-apiserver, registry/customresource/strategy.go, hasBlockingErr).
_BLOCKING = frozenset(
    {"Unsupported value", "Required value", "Too long", "Too many", "Invalid type"}
)
_BLOCKED = FieldError((), "Invalid value", (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"), None)  # fmt: skip


# -- keywords ---------------------------------------------------------------------------------


def _check_time(value: str, path: Path) -> Errors:
    with suppress(ValueError):
        if datetime.fromisoformat(value).tzinfo is not None and "T" in value:
            return []
    said = f'{text_path(path)} in body must be of type date-time: "{value}"'
    return [FieldError(path, "Invalid type", said, value)]


def _check_quantity(value: str, path: Path) -> Errors:
    wrong = FieldError(path, "Invalid type", QUANTITY_MESSAGE, value)
    return [] if is_quantity(value) else [wrong]


_FORMATS: dict[str, Check] = {**FORMATS, "date-time": _check_time, "quantity": _check_quantity}


def _matches(value: str, pattern: str) -> bool:
    # In Go "$" matches only the end of the text. In Python it also matches before a last newline.
    return re.search(re.sub(r"\$$", r"\\Z", pattern), value) is not None


def _long_enough(value: Any, limit: int) -> bool:
    return len(value) >= limit


def _short_enough(value: Any, limit: int) -> bool:
    return len(value) <= limit


_NUMBER = (int, float)
_BODY, _LONG, _MANY = "Invalid value", "Too long", "Too many"
_Keyword = tuple[Any, Callable[[Any, Any], bool], str, str]
# Of each keyword: the types of its values, the condition, the error type and the message.
_KEYWORDS: dict[str, _Keyword] = {
    "enum": (object, lambda v, allowed: v in allowed, "Unsupported value", "supported values: {}"),
    "minimum": (_NUMBER, operator.ge, _BODY, "should be greater than or equal to {}"),
    "maximum": (_NUMBER, operator.le, _BODY, "should be less than or equal to {}"),
    "pattern": (str, _matches, _BODY, "should match '{}'"),
    "minLength": (str, _long_enough, _BODY, "should be at least {} chars long"),
    "minItems": (list, _long_enough, _BODY, "should have at least {} items"),
    "maxLength": (str, _short_enough, _LONG, "may not be more than {} byte"),
    "maxItems": (list, _short_enough, _MANY, "must have at most {} item"),
    "maxProperties": (dict, _short_enough, _MANY, "must have at most {} item"),
}


def value_checks(raw: Mapping[str, Any]) -> Iterator[Check]:
    """Yield a check for each keyword of a schema that constrains a single value.

    Raises
    ------
    re.error
        If the pattern is not a regular expression.
    """
    re.compile(raw.get("pattern", ""))
    for word, keyword in _KEYWORDS.items():
        if (limit := raw.get(word)) is not None:
            yield _check(keyword, limit)
    # As in Kubernetes, an unknown format is ignored.
    if (check := _FORMATS.get(raw.get("format", ""))) is not None:
        yield lambda value, path: check(value, path) if isinstance(value, str) else []


def _check(keyword: _Keyword, limit: Any) -> Check:
    kind, holds, problem, words = keyword
    shown = ", ".join(f'"{_plain(v)}"' for v in limit) if isinstance(limit, list) else _plain(limit)
    plural = "s" if problem in (_LONG, _MANY) and limit != 1 else ""
    detail = words.format(shown) + plural

    def check(value: Any, path: Path) -> Errors:
        if not isinstance(value, kind) or holds(value, limit):
            return []
        said = f"{text_path(path)} in body {detail}" if problem == _BODY else detail
        return [FieldError(path, problem, said, len(value) if problem == _MANY else value)]

    return check


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


# -- values -----------------------------------------------------------------------------------


def validate(
    schema: Schema, value: Any, old: Any = ..., path: Path = (), *, all_rules: bool = False
) -> Errors:
    """Return all violations, including those of CEL rules.

    Parameters
    ----------
    value
        The value, with defaults.
    old
        The previous value; `Ellipsis` without one. With a previous value, unchanged parts are not
        checked (as since Kubernetes 1.33), and rules that read `oldSelf` are run.
    path
        Path of the value in its object.
    all_rules
        If a part of the value is malformed, run the rules that do not read it. The API server runs
        no rules in this case.
    """
    walk = _Walk()
    walk.visit(schema, value, old, path)
    # The API server has two validators. Only that of rules writes keys of maps in brackets.
    errors = [replace(e, path=(*path, *_without_keys(e.path[len(path) :]))) for e in walk.errors]
    malformed = [e.path for e in walk.errors if e.type in _BLOCKING]
    if malformed and schema.rules_below and not all_rules:
        return [*errors, _BLOCKED]
    return errors + [e for found in walk.ruled for e in _broken_rules(*found, malformed)]


def _is_readable(rule: CELRule, path: Path, malformed: list[Path]) -> bool:
    """Return whether a rule on the value at a path reads no malformed value."""
    below = [p[len(path) :] for p in malformed if p[: len(path)] == path]
    if below and not rule.selections:
        return False
    return not any(p[: len(s)] == s[: len(p)] for p in below for s in rule.selections)


def _without_keys(path: Path) -> Path:
    return tuple(str(p) if isinstance(p, Key) else p for p in path)


class _Walk:
    """A traversal of a value and its schema.

    Attributes
    ----------
    errors
        Violations that were found.
    ruled
        Values on which rules must be run: node, value, old value and path.
    """

    def __init__(self) -> None:
        self.errors: Errors = []
        self.ruled: list[tuple[Schema, Any, Any, Path]] = []

    def visit(self, schema: Schema, value: Any, old: Any, path: Path) -> None:
        if (old is not ... and value == old) or (value is None and schema.nullable):
            return
        if not _is_of_type(schema, value):
            self.errors.append(_wrong_type(schema, value, path))
            return
        self.errors.extend(e for check in schema.checks for e in check(value, path))
        if schema.rules:
            self.ruled.append((schema, value, old, path))
        if isinstance(value, dict):
            missing = [key for key in schema.required if key not in value]
            self.errors.extend(FieldError((*path, key), "Required value") for key in missing)
            former = old if isinstance(old, dict) and not schema.atomic_map else {}
            for key, item in value.items():
                if (below := schema.known(key)) is not None:
                    step = key if key in schema.properties else Key(key)
                    self.visit(below, item, former.get(key, ...), (*path, step))
        elif isinstance(value, list) and schema.items:
            self._check_uniqueness(schema, value, path)
            of_map = schema.list_type == "map" and isinstance(old, list)
            before = {schema.item_key(item): item for item in old} if of_map else {}
            for i, item in enumerate(value):
                previous = before.get(schema.item_key(item), ...) if of_map else ...
                self.visit(schema.items, item, previous, (*path, i))

    def _check_uniqueness(self, schema: Schema, value: list[Any], path: Path) -> None:
        if schema.list_type == "atomic" or not schema.unique:
            return
        seen: set[Any] = set()
        for i, item in enumerate(value):
            key: Any = orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
            shown = item
            if schema.list_type == "map":
                if (key := schema.item_key(item)) is None:
                    continue
                shown = dict(zip(schema.list_keys, key, strict=True))
            if key in seen:
                self.errors.append(FieldError((*path, i), "Duplicate value", "", shown))
            seen.add(key)


def _is_of_type(schema: Schema, value: Any) -> bool:
    if type(value) is bool:  # in Python a bool is an int
        return bool in schema.classes or object in schema.classes
    return isinstance(value, schema.classes)


def _wrong_type(schema: Schema, value: Any, path: Path) -> FieldError:
    actual = _NAMES[type(value)]
    shown = actual if value is None or isinstance(value, (dict, list)) else value
    detail = f'{text_path(path)} in body must be of type {schema.type}: "{actual}"'
    return FieldError(path, "Invalid type", detail, shown)


def _broken_rules(
    schema: Schema, value: Any, old: Any, path: Path, malformed: list[Path]
) -> Iterator[FieldError]:
    variables = activation(value, old)
    for rule in schema.rules:
        if (rule.transition and old is ...) or not _is_readable(rule, path, malformed):
            continue
        try:
            why = rule.failure(variables)
        except RuleError as e:
            yield FieldError(path, "Invalid value", str(e), schema.type)
            continue
        if why is not None:
            shown = ... if isinstance(value, (dict, list)) else value
            yield FieldError((*path, *rule.field_path), "Invalid value", why, shown)
