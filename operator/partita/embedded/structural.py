"""The nodes of a compiled structural schema; defaulting and pruning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from partita.embedded.cel import Rule
from partita.embedded.checks import Check
from partita.embedded.errors import Path

__all__ = ["UNTYPED", "Schema", "copied"]


class Schema:
    """One node of a structural schema, compiled.

    Attributes
    ----------
    raw
        What it was compiled from.
    classes
        The Python types a value may have.
    preserve
        Fields it does not know are kept.
    properties, additional, items
        The nodes below; `additional` is of the values of a map.
    defaults
        The values of fields that are left out.
    list_type
        ``atomic``, ``set`` or ``map`` (then `list_keys` are the fields that tell items apart).
    unique
        Items of a set or list map may not repeat.
    atomic_map
        The object is owned and replaced as a whole.
    checks, junctors, rules
        What validation asks of a value: keywords, ``allOf`` and its like, CEL.
    defaults_below, rules_below, transitions_below
        Whether there is something of the kind here or deeper.
    """

    __slots__ = (
        "additional", "atomic_map", "checks", "classes", "defaults", "defaults_below", "items",
        "junctors", "list_keys", "list_type", "nullable", "preserve", "properties", "raw",
        "required", "rules", "rules_below", "transitions_below", "type", "unique",
    )  # fmt: skip

    def __init__(self) -> None:
        self.raw: Mapping[str, Any] = {}
        self.type = ""
        self.classes: tuple[type, ...] = (object,)
        self.nullable = True
        self.preserve = True
        self.properties: dict[str, Schema] = {}
        self.additional: Schema | None = None
        self.items: Schema | None = None
        self.required: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}
        self.list_type = "atomic"
        self.list_keys: tuple[str, ...] = ()
        self.unique = True
        self.atomic_map = False
        self.checks: list[Check] = []
        self.junctors: list[tuple[str, list[Schema]]] = []
        self.rules: list[Rule] = []
        self.defaults_below = False
        self.rules_below = False
        self.transitions_below = False

    def child(self, key: str) -> Schema:
        """Return the node of one field or key of an object."""
        return self.properties.get(key) or self.additional or UNTYPED

    def below(self) -> list[Schema]:
        """Return the nodes directly below."""
        return [*self.properties.values(), *filter(None, (self.additional, self.items))]

    def item_key(self, item: Any) -> tuple[Any, ...] | None:
        """Return the keys that tell an item of this list map; `None` if one is missing."""
        if not isinstance(item, dict):
            return None
        defaults = self.items.defaults if self.items else {}
        key = tuple(item.get(k, defaults.get(k)) for k in self.list_keys)
        return None if None in key else key

    def default(self, value: Any) -> Any:
        """Fill in defaults, and drop nulls where null is not allowed; changes `value`."""
        if isinstance(value, dict):
            for key, sub in self.properties.items():
                if key in value:
                    if value[key] is None and not sub.nullable:
                        del value[key]
                    else:
                        sub.default(value[key])
            for key, default in self.defaults.items():
                if key not in value:
                    value[key] = copied(default)
            if self.additional:
                for item in value.values():
                    self.additional.default(item)
        elif isinstance(value, list) and self.items:
            for item in value:
                self.items.default(item)
        return value

    def prune(self, value: Any, path: Path = ()) -> list[Path]:
        """Remove the fields the schema does not know; return their paths. Changes `value`."""
        unknown: list[Path] = []
        if isinstance(value, dict):
            for key in list(value):
                sub = self.properties.get(key) or self.additional
                if sub is not None:
                    if type(value[key]) in (dict, list):
                        unknown += sub.prune(value[key], (*path, key))
                elif not self.preserve:
                    del value[key]
                    unknown.append((*path, key))
        elif isinstance(value, list) and self.items:
            for i, item in enumerate(value):
                unknown += self.items.prune(item, (*path, i))
        return unknown


UNTYPED = Schema()


def copied(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value
