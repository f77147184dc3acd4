"""Validation, defaulting and pruning by a CRD's schema, without an API server.

Not supported are `x-kubernetes-embedded-resource`, string formats except ``date-time`` and those of
names, limits on the cost of CEL rules, and type checks of CEL rules. The existence of the fields
that a rule selects is checked, but not whether their types match the operations of the rule. A
schema with a keyword of `_UNSUPPORTED` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from partita.validation.cel import CELRule, RuleError, compile_rule
from partita.validation.field_errors import FieldError, Key, Path
from partita.validation.values import Check, validate, value_checks

__all__ = ["UNTYPED", "Compiler", "Schema", "SchemaError", "compile_schema", "with_type_meta"]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list,), "object": (dict,), "": (object,), "integer,string": (int, str),
}  # fmt: skip
_UNSUPPORTED = (
    *("allOf", "anyOf", "oneOf", "not", "multipleOf", "minProperties"),
    *("exclusiveMinimum", "exclusiveMaximum"),
)
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_OWNER = {
    **{k: {"type": "string"} for k in ("apiVersion", "kind", "name", "uid")},
    **{k: {"type": "boolean"} for k in ("controller", "blockOwnerDeletion")},
}
# Fields of ObjectMeta needed for validation and field ownership (apimachinery, meta/v1/types.go).
_META = {
    "type": "object",
    "properties": {
        **{k: {"type": "string"} for k in ("name", "namespace", "generateName", "uid",
                                           "resourceVersion", "selfLink")},
        **{k: {"type": "integer"} for k in ("generation", "deletionGracePeriodSeconds")},
        **{k: {"type": "string", "format": "date-time", "nullable": True}
           for k in ("creationTimestamp", "deletionTimestamp")},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": {"type": "array", "items": {"type": "string"},
                       "x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "properties": _OWNER, "x-kubernetes-map-type": "atomic"}},
        "managedFields": {"type": "array", "items": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    },
}  # fmt: skip


def with_type_meta(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema with the fields that every object has."""
    fixed = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META}
    return {**raw, "properties": {**raw.get("properties", {}), **fixed}}


class Schema:
    """One node of a structural schema, compiled.

    Attributes
    ----------
    raw
        Its source.
    type, classes
        Its type in OpenAPI, and the Python types that a value may have.
    quantity
        Whether a value is a quantity, which is stored as text and may be written as a number.
    preserve
        Whether unknown fields are kept.
    properties, additional, items
        The nodes below; `additional` is the node of a map's values.
    defaults
        Values of missing fields.
    list_type
        ``atomic``, ``set`` or ``map`` (then `list_keys` are the fields that identify items).
    unique
        Whether items of a set or list map must be unique.
    atomic_map
        Whether the object is owned and replaced as a whole.
    checks, rules
        Constraints of a value: keywords, CEL.
    rules_below
        Whether this node or a node below it has rules.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        free = raw.get("x-kubernetes-int-or-string", False)
        self.type: str = "integer,string" if free else raw.get("type", "")
        self.quantity = raw.get("format") == "quantity"
        self.classes = (int, float, str) if self.quantity else _TYPES[self.type]
        self.nullable: bool = raw.get("nullable", False)
        self.preserve: bool = (
            raw.get("x-kubernetes-preserve-unknown-fields", False)
            or raw.get("additionalProperties") is True
        )
        self.required: list[str] = raw.get("required", [])
        self.list_type: str = raw.get("x-kubernetes-list-type", "atomic")
        self.list_keys: list[str] = raw.get("x-kubernetes-list-map-keys", [])
        self.atomic_map = raw.get("x-kubernetes-map-type") == "atomic"
        self.unique = True
        self.properties: dict[str, Schema] = {}
        self.additional: Schema | None = None
        self.items: Schema | None = None
        self.defaults: dict[str, Any] = {}
        self.checks: list[Check] = []
        self.rules: list[CELRule] = []
        self.rules_below = False

    def known(self, key: str) -> Schema | None:
        """Return the node of one field or key of an object, or `None` if it is not allowed."""
        return self.properties.get(key) or self.additional

    def child(self, key: str) -> Schema:
        """Return the node of one field or key of an object, or `UNTYPED` if it is unknown."""
        return self.known(key) or UNTYPED

    def item_key(self, item: Any) -> tuple[Any, ...] | None:
        """Return the keys that identify an item of this list map; `None` if one is no key."""
        if not isinstance(item, dict):
            return None
        defaults = self.items.defaults if self.items else {}
        key = tuple(item.get(k, defaults.get(k)) for k in self.list_keys)
        return None if any(k is None or isinstance(k, (dict, list)) for k in key) else key

    def default(self, value: Any) -> Any:
        """Set defaults in `value`, remove nulls that are not allowed, and return the value."""
        if isinstance(value, dict):
            for key in [k for k, v in value.items() if v is None]:
                if (field := self.properties.get(key)) and not field.nullable:
                    del value[key]
            for key, default in self.defaults.items():
                if key not in value:
                    value[key] = orjson.loads(orjson.dumps(default))
            for key, item in value.items():
                may_change = isinstance(item, (dict, list, int, float))
                if may_change and (below := self.known(key)) is not None:
                    value[key] = below.default(item)
        elif isinstance(value, list) and self.items:
            value[:] = [self.items.default(item) for item in value]
        elif self.quantity and type(value) in (int, float):
            return str(value)
        return value

    def fields_at(self, path: Path) -> tuple[str, ...]:
        """Return the names of the fields of the object at a path."""
        node: Schema | None = self
        for part in path:
            node = node and (node.items if isinstance(part, int) else node.known(part))
        return tuple(node.properties) if node else ()

    def prune(self, value: Any, path: Path = ()) -> list[Path]:
        """Remove the fields of `value` that are not in the schema, and return their paths."""
        unknown: list[Path] = []
        if isinstance(value, dict):
            for key in list(value):
                if (below := self.known(key)) is not None:
                    if isinstance(value[key], (dict, list)):
                        unknown += below.prune(value[key], (*path, key))
                elif not self.preserve:
                    del value[key]
                    unknown.append((*path, key))
        elif isinstance(value, list) and self.items:
            for i, item in enumerate(value):
                unknown += self.items.prune(item, (*path, i))
        return unknown


UNTYPED = Schema({"nullable": True, "x-kubernetes-preserve-unknown-fields": True})


class SchemaError(Exception):
    """A schema that is not structural, or in which a rule, pattern or default is wrong.

    Attributes
    ----------
    problems
        Errors in the schema.
    """

    def __init__(self, problems: list[FieldError]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class Compiler:
    """Compiles OpenAPI schemas to nodes.

    Parameters
    ----------
    models
        For the built-in kinds: targets of ``$ref``, by the last part of the reference.

    Attributes
    ----------
    problems
        Errors that were found.
    """

    def __init__(self, models: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.problems: list[FieldError] = []
        self._models = models or {}
        self._done: dict[str, Schema] = {}

    def compile(self, raw: Mapping[str, Any], path: Path = ()) -> Schema:
        """Return the node of a schema."""
        name = raw.get("$ref", "").rpartition("/")[2]
        if name in self._done:
            return self._done[name]
        node = Schema(self._models[name] if name else raw)
        node.unique = not self._models  # built-in kinds have their own rules on duplicates
        if name:
            self._done[name] = node  # before the nodes below: types may be recursive
        if not (node.type or node.preserve):
            detail = "must not be empty for specified object fields"
            self.problems.append(FieldError((*path, "type"), "Required value", detail))
        self._compile_below(node, path)
        try:
            node.checks = list(value_checks(node.raw))
        except re.error as e:
            self._refuse((*path, "pattern"), f"must be a valid regular expression: {e}", node.raw)
        self._compile_rules(node, path)
        return node

    def _refuse(self, path: Path, why: str, raw: Mapping[str, Any]) -> None:
        self.problems.append(FieldError(path, "Invalid value", why, raw[str(path[-1])]))

    def _compile_below(self, node: Schema, path: Path) -> None:
        raw = node.raw
        for key, below in raw.get("properties", {}).items():
            where = (*path, "properties", Key(key))
            child = node.properties[key] = self.compile(below, where)
            if "default" in below:
                value = child.default(orjson.loads(orjson.dumps(below["default"])))
                node.defaults[key] = value
                self.problems += validate(child, value, path=(*where, "default"))
        if isinstance(below := raw.get("additionalProperties"), dict):
            node.additional = self.compile(below, (*path, "additionalProperties"))
        if "items" in raw:
            node.items = self.compile(raw["items"], (*path, "items"))
        for word in _UNSUPPORTED:
            # In the schema of an integer or string, anyOf only repeats the two types.
            if word in raw and not (word == "anyOf" and node.type == "integer,string"):
                self._refuse((*path, word), "it is not supported here", raw)

    def _compile_rules(self, node: Schema, path: Path) -> None:
        for i, entry in enumerate(node.raw.get("x-kubernetes-validations", ())):
            where = (*path, "x-kubernetes-validations", i, "rule")
            try:
                rule = compile_rule(entry)
            except RuleError as e:
                self._refuse(where, str(e), entry)
                continue
            node.rules.append(rule)
            if unknown := [s for s in rule.selections if _lacks(node, s)]:
                why = f"compilation failed: undefined field {'.'.join(unknown[0])!r}"
                self._refuse(where, why, entry)
        below = (*node.properties.values(), node.additional, node.items)
        node.rules_below = bool(node.rules) or any(n is not None and n.rules_below for n in below)


def _lacks(node: Schema, selection: Iterable[str]) -> bool:
    """Return whether a field that a rule selects, or a field on its path, does not exist."""
    for name in selection:
        if node.preserve or node.additional or node.type != "object":
            return False
        if name not in node.properties:
            return True
        node = node.properties[name]
    return False


def compile_schema(raw: Mapping[str, Any]) -> Schema:
    """Return the node of the schema of a CRD, with the fields that every object has.

    Raises
    ------
    SchemaError
        If the schema is invalid.
    """
    compiler = Compiler()
    schema = compiler.compile(with_type_meta(raw))
    if compiler.problems:
        raise SchemaError(compiler.problems)
    return schema
