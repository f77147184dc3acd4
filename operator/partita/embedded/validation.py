"""Validation of a value against a compiled schema: every violation, in kube-apiserver's words."""

from __future__ import annotations

from typing import Any

import orjson

from partita.embedded.cel import RuleError, activation
from partita.embedded.errors import FieldError, Key, Path, text_path
from partita.embedded.structural import Schema

__all__ = ["validate"]

Errors = list[FieldError]

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
          dict: "object", type(None): "null"}  # fmt: skip
# With one of these among the errors, CEL rules would be read wrongly and are not run
# (apiextensions-apiserver, registry/customresource/strategy.go, hasBlockingErr).
_BLOCKING = frozenset(
    {"Unsupported value", "Required value", "Too long", "Too many", "Invalid type"}
)
_BLOCKED = FieldError((), "Invalid value", (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"), None)  # fmt: skip
_RULE_REASONS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def validate(schema: Schema, value: Any, old: Any = ..., path: Path = ()) -> Errors:
    """Return every violation, CEL rules included.

    Parameters
    ----------
    value
        The value, with defaults.
    old
        The value it replaces, `Ellipsis` if none. What did not change is not refused (as since
        Kubernetes 1.33), and rules that read `oldSelf` are run.
    path
        Where the value stands in its object.
    """
    errors: Errors = []
    _check(schema, value, old, path, errors)
    if schema.rules_below:
        if any(e.type in _BLOCKING for e in errors):
            errors.append(_BLOCKED)
        else:
            _run_rules(schema, value, old, path, errors)
    return errors


def _check(schema: Schema, value: Any, old: Any, path: Path, errors: Errors) -> None:
    if (old is not ... and value == old) or (value is None and schema.nullable):
        return
    if not _is_of_type(schema, value):
        errors.append(_wrong_type(schema, value, path))
        return
    errors.extend(e for check in schema.checks if (e := check(value, path)))
    for word, schemas in schema.junctors:
        _check_junctor(word, schemas, value, path, errors)
    if isinstance(value, dict):
        _check_fields(schema, value, old, path, errors)
    elif isinstance(value, list) and schema.items:
        _check_uniqueness(schema, value, path, errors)
        for i, (item, previous) in enumerate(_correlated(schema, value, old)):
            _check(schema.items, item, previous, (*path, i), errors)


def _is_of_type(schema: Schema, value: Any) -> bool:
    if type(value) is bool:  # which Python takes for an integer
        return bool in schema.classes or object in schema.classes
    return isinstance(value, schema.classes)


def _check_fields(
    schema: Schema, value: dict[str, Any], old: Any, path: Path, errors: Errors
) -> None:
    errors.extend(
        FieldError((*path, key), "Required value") for key in schema.required if key not in value
    )
    former = old if isinstance(old, dict) and not schema.atomic_map else {}
    for key, item in value.items():
        sub = schema.properties.get(key) or schema.additional
        if sub is not None:
            _check(sub, item, former.get(key, ...), (*path, key), errors)


def _wrong_type(schema: Schema, value: Any, path: Path) -> FieldError:
    wanted = schema.type or "integer,string"
    actual = _NAMES[type(value)]
    shown = actual if value is None or isinstance(value, (dict, list)) else value
    detail = f'{text_path(path)} in body must be of type {wanted}: "{actual}"'
    return FieldError(path, "Invalid type", detail, shown)


def _check_junctor(
    word: str, schemas: list[Schema], value: Any, path: Path, errors: Errors
) -> None:
    results: list[Errors] = []
    for schema in schemas:
        found: Errors = []
        _check(schema, value, ..., path, found)
        results.append(found)
    matching = sum(not r for r in results)
    detail = ""
    if word == "allOf":
        errors.extend(e for r in results for e in r)
    elif word == "anyOf" and not matching:
        detail = "must validate at least one schema (anyOf)"
    elif word == "oneOf" and matching != 1:
        found_text = f"{matching} valid alternatives" if matching else "none valid"
        detail = f"must validate one and only one schema (oneOf). Found {found_text}"
    elif word == "not" and matching:
        detail = "must not validate the schema (not)"
    if detail:
        errors.append(FieldError(path, "Invalid value", f'"{text_path(path)}" {detail}', ""))


def _check_uniqueness(schema: Schema, value: list[Any], path: Path, errors: Errors) -> None:
    if schema.list_type == "atomic" or not schema.unique:
        return
    seen: set[Any] = set()
    for i, item in enumerate(value):
        if schema.list_type == "map":
            key: Any = schema.item_key(item)
            shown: Any = dict(zip(schema.list_keys, key or (), strict=False))
        else:
            key, shown = orjson.dumps(item, option=orjson.OPT_SORT_KEYS), item
        if key is not None and key in seen:
            errors.append(FieldError((*path, i), "Duplicate value", "", shown))
        seen.add(key)


def _correlated(schema: Schema, value: list[Any], old: Any) -> list[tuple[Any, Any]]:
    """Pair items with their former selves, which only a list map can tell."""
    if schema.list_type != "map" or not isinstance(old, list):
        return [(item, ...) for item in value]
    former = {schema.item_key(item): item for item in old}
    return [(item, former.get(schema.item_key(item), ...)) for item in value]


def _run_rules(schema: Schema, value: Any, old: Any, path: Path, errors: Errors) -> None:
    """Run the CEL rules here and below; of what did not change only those on the change."""
    unchanged = old is not ... and value == old
    if value is None or (unchanged and not schema.transitions_below):
        return
    variables = activation(value, old) if schema.rules else None
    for rule in schema.rules:
        if (rule.transition and old is ...) or (unchanged and not rule.transition):
            continue
        try:
            why = rule.failure(variables)
        except RuleError as e:
            errors.append(FieldError(path, "Invalid value", str(e), schema.type))
            continue
        if why is not None:
            shown = ... if isinstance(value, (dict, list)) else value
            place = (*path, *rule.field_path)
            errors.append(FieldError(place, _RULE_REASONS[rule.reason], why, shown))
    if isinstance(value, dict):
        former = old if isinstance(old, dict) and not schema.atomic_map else {}
        for key, item in value.items():
            sub = schema.properties.get(key) or schema.additional
            if sub is not None and sub.rules_below:
                step = key if key in schema.properties else Key(key)
                _run_rules(sub, item, former.get(key, ...), (*path, step), errors)
    elif isinstance(value, list) and schema.items and schema.items.rules_below:
        for i, (item, previous) in enumerate(_correlated(schema, value, old)):
            _run_rules(schema.items, item, previous, (*path, i), errors)
