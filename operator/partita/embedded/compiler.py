"""From an OpenAPI schema to the nodes that validate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from partita.embedded.cel import RuleError, compile_rule
from partita.embedded.checks import value_checks
from partita.embedded.errors import FieldError, Key, Path
from partita.embedded.structural import Schema, copied
from partita.embedded.validation import validate

__all__ = ["SchemaError", "compile_model", "compile_structural"]

Errors = list[FieldError]
_Sub = Callable[[Mapping[str, Any], Path], Schema]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "": (object,),
}
_JUNCTOR = Key("")  # in a path: below it only values are constrained, and types may be left out


class SchemaError(Exception):
    """A schema that cannot be used.

    Attributes
    ----------
    problems
        What is wrong where in the schema.
    """

    def __init__(self, problems: Errors) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def compile_structural(raw: Mapping[str, Any]) -> Schema:
    """Compile a CRD's schema.

    Raises
    ------
    SchemaError
        It is not structural, or a rule, pattern or default in it is wrong.
    """
    problems: Errors = []

    def sub(child: Mapping[str, Any], path: Path) -> Schema:
        node = Schema()
        _fill(node, child, sub, path, problems)
        return node

    schema = sub(raw, ())
    if problems:
        raise SchemaError(problems)
    return schema


def compile_model(
    raw: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]], done: dict[str, Schema]
) -> Schema:
    """Compile the schema of a built-in kind, which may refer to others and to itself.

    Parameters
    ----------
    models
        What ``$ref`` may name, by the last part of the reference.
    done
        What is compiled already, by the same names; added to.
    """

    def sub(child: Mapping[str, Any], path: Path) -> Schema:
        reference = child.get("$ref") or next(
            (r["$ref"] for r in child.get("allOf", ()) if "$ref" in r), None
        )
        name = reference.rpartition("/")[2] if reference else None
        if name in done:
            return done[name]
        node = Schema()
        node.unique = False  # the built-in kinds differ in what may repeat: they check it
        if name is not None:
            done[name] = node  # before its inside is compiled: types may be recursive
            child = models[name]
        _fill(node, child, sub, path, [])
        return node

    return sub(raw, ())


def _fill(node: Schema, raw: Mapping[str, Any], sub: _Sub, path: Path, problems: Errors) -> None:
    free = bool(raw.get("x-kubernetes-int-or-string"))
    node.raw = raw
    node.type = raw.get("type", "")
    node.classes = (int, str) if free else _TYPES[node.type]
    node.nullable = raw.get("nullable", False)
    node.preserve = (
        raw.get("x-kubernetes-preserve-unknown-fields", False)
        or raw.get("additionalProperties") is True
    )
    node.required = tuple(raw.get("required", ()))
    node.list_type = raw.get("x-kubernetes-list-type", "atomic")
    node.list_keys = tuple(raw.get("x-kubernetes-list-map-keys", ()))
    node.atomic_map = raw.get("x-kubernetes-map-type") == "atomic"
    if not (node.type or free or node.preserve or _JUNCTOR in path):
        detail = "must not be empty for specified object fields"
        problems.append(FieldError((*path, "type"), "Required value", detail))
    _fill_below(node, raw, sub, path)
    if not free:  # there anyOf only says again that it is an integer or a string
        _fill_junctors(node, raw, sub, path)
    try:
        node.checks = list(value_checks(raw))
    except re.error as e:
        detail = f"must be a valid regular expression, but isn't: {e}"
        problems.append(FieldError((*path, "pattern"), "Invalid value", detail, raw["pattern"]))
    _fill_rules(node, raw, path, problems)
    _fill_defaults(node, path, problems)


def _fill_below(node: Schema, raw: Mapping[str, Any], sub: _Sub, path: Path) -> None:
    node.properties = {
        k: sub(v, (*path, "properties", Key(k))) for k, v in raw.get("properties", {}).items()
    }
    if isinstance(additional := raw.get("additionalProperties"), dict):
        node.additional = sub(additional, (*path, "additionalProperties"))
    if "items" in raw:
        node.items = sub(raw["items"], (*path, "items"))


def _fill_junctors(node: Schema, raw: Mapping[str, Any], sub: _Sub, path: Path) -> None:
    for word in ("allOf", "anyOf", "oneOf", "not"):
        if word in raw:
            schemas = [raw[word]] if word == "not" else raw[word]
            where = (*path, word, _JUNCTOR)
            node.junctors.append((word, [sub(s, where) for s in schemas]))


def _fill_rules(node: Schema, raw: Mapping[str, Any], path: Path, problems: Errors) -> None:
    for i, entry in enumerate(raw.get("x-kubernetes-validations", ())):
        try:
            rule = compile_rule(entry)
        except RuleError as e:
            why = str(e)
        else:
            node.rules.append(rule)
            unknown = next((s for s in rule.selections if _lacks(node, s)), None)
            if unknown is None:
                continue
            why = f"compilation failed: undefined field {'.'.join(unknown)!r}"
        where = (*path, "x-kubernetes-validations", i, "rule")
        problems.append(FieldError(where, "Invalid value", why, entry["rule"]))
    node.rules_below = bool(node.rules) or any(s.rules_below for s in node.below())
    node.transitions_below = any(r.transition for r in node.rules) or any(
        s.transitions_below for s in node.below()
    )


def _lacks(node: Schema, selection: tuple[str, ...]) -> bool:
    """Return whether a rule that selects these fields in turn names one there is not."""
    for name in selection:
        if node.preserve or node.additional or node.type != "object":
            return False
        if name not in node.properties:
            return True
        node = node.properties[name]
    return False


def _fill_defaults(node: Schema, path: Path, problems: Errors) -> None:
    for key, child in node.properties.items():
        if "default" in child.raw:
            default = node.defaults[key] = child.default(copied(child.raw["default"]))
            where = (*path, "properties", Key(key), "default")
            problems.extend(validate(child, default, path=where))
    node.defaults_below = bool(node.defaults) or any(s.defaults_below for s in node.below())
