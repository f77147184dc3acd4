"""Structural schemas: validation, defaulting and pruning as kube-apiserver does them.

A schema is compiled once into `Schema` nodes. `CRDValidator` is the whole of one CRD version
and needs no server, so that YAML can be checked offline.

It does not have: `x-kubernetes-embedded-resource`, string formats but ``date-time``, limits on
the cost of CEL rules, and types of the values in rules: that a field a rule names exists is
checked, not that it fits what is done with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Self

import orjson

from partita.embedded.cel import Rule, RuleError, compile_rule
from partita.embedded.errors import FieldError, Key

__all__ = ["UNTYPED", "CRDValidator", "Schema", "SchemaError", "item_key", "text_path"]

Path = tuple[str | int, ...]
Errors = list[FieldError]
_Check = Callable[[Any, Path], FieldError | None]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "": (object,),
}
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
          dict: "object", type(None): "null"}  # fmt: skip
# With one of these among the errors, CEL rules would be read wrongly and are not run
# (apiextensions-apiserver, registry/customresource/strategy.go, hasBlockingErr).
_BLOCKING = frozenset(
    {"Unsupported value", "Required value", "Too long", "Too many", "Invalid type"}
)
_JUNCTOR = Key("")  # in a path: below it only values are constrained, and types may be left out
_RULE_REASONS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


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


def text_path(path: Path) -> str:
    """Return ``spec.slices[0].name`` of its parts, keys of maps written like fields."""
    return FieldError(tuple(str(p) if isinstance(p, Key) else p for p in path), "").field


def item_key(schema: Schema, item: Any) -> tuple[Any, ...] | None:
    """Return the values of the keys that tell an item of a list map, `None` if one is missing."""
    if not isinstance(item, dict):
        return None
    key = tuple(item.get(k, schema.key_default(k)) for k in schema.list_keys)
    return None if None in key else key


class Schema:
    """One node of a structural schema, compiled.

    Attributes
    ----------
    raw
        What it was compiled from.
    properties, additional, items
        The nodes below; `additional` is of the values of a map.
    list_type
        ``atomic``, ``set`` or ``map`` (then `list_keys` are the fields that tell items apart).
    atomic_map
        The object is owned and replaced as a whole.
    """

    __slots__ = (
        "_checks", "_classes", "_junctors", "_rules", "_unique", "additional", "atomic_map", "defaults",
        "defaults_below", "items", "list_keys", "list_type", "nullable", "preserve",
        "properties", "raw", "required", "rules_below", "type",
    )  # fmt: skip

    def __init__(self) -> None:
        self.raw: Mapping[str, Any] = {}
        self.type = ""
        self.nullable = True
        self.preserve = True
        self.properties: dict[str, Schema] = {}
        self.additional: Schema | None = None
        self.items: Schema | None = None
        self.required: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}
        self.list_type = "atomic"
        self.list_keys: tuple[str, ...] = ()
        self.atomic_map = False
        self.defaults_below = False
        self.rules_below = False
        self._unique = True
        self._classes: tuple[type, ...] = (object,)
        self._checks: list[_Check] = []
        self._junctors: list[tuple[str, list[Schema]]] = []
        self._rules: list[Rule] = []

    @classmethod
    def compile(cls, raw: Mapping[str, Any]) -> Schema:
        """Compile a CRD's schema.

        Raises
        ------
        SchemaError
            It is not structural, or a rule, pattern or default in it is wrong.
        """
        problems: Errors = []
        node = cls()
        node._fill(raw, lambda r, path: cls._sub(r, path, problems), (), problems)
        if problems:
            raise SchemaError(problems)
        return node

    @classmethod
    def _sub(cls, raw: Mapping[str, Any], path: Path, problems: Errors) -> Schema:
        node = cls()
        node._fill(raw, lambda r, p: cls._sub(r, p, problems), path, problems)
        return node

    @classmethod
    def compile_model(
        cls,
        raw: Mapping[str, Any],
        models: Mapping[str, Mapping[str, Any]],
        done: dict[str, Schema],
    ) -> Schema:
        """Compile the schema of a built-in kind, which may refer to others and to itself.

        Parameters
        ----------
        models
            What ``$ref`` may name, by the last part of the reference.
        done
            What is compiled already, by the same names; added to.
        """

        def sub(child: Mapping[str, Any], _path: Path) -> Schema:
            reference = child.get("$ref") or next(
                (r["$ref"] for r in child.get("allOf", ()) if "$ref" in r), None
            )
            node = cls()
            if reference is None:
                node._fill(child, sub, (), [])
                return node
            name = reference.rpartition("/")[2]
            if name not in done:
                done[name] = node  # before its inside is compiled: types may be recursive
                node._fill(models[name], sub, (), [])
            return done[name]

        node = cls()
        node._fill(raw, sub, (), [])
        node._set_lenient(set())
        return node

    def _set_lenient(self, seen: set[int]) -> None:
        """Leave uniqueness in lists to the kind: the built-in kinds differ in it."""
        if id(self) in seen:
            return
        seen.add(id(self))
        self._unique = False
        for below in (*self.properties.values(), self.additional, self.items):
            if below is not None:
                below._set_lenient(seen)

    def _fill(
        self,
        raw: Mapping[str, Any],
        sub: Callable[[Mapping[str, Any], Path], Schema],
        path: Path,
        problems: Errors,
    ) -> None:
        self.raw = raw
        self.type = raw.get("type", "")
        self._classes = _TYPES[self.type]
        free = bool(raw.get("x-kubernetes-int-or-string"))
        if free:
            self._classes = (int, str)
        self.nullable = raw.get("nullable", False)
        self.preserve = raw.get("x-kubernetes-preserve-unknown-fields", False)
        self.required = tuple(raw.get("required", ()))
        self.list_type = raw.get("x-kubernetes-list-type", "atomic")
        self.list_keys = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        self.atomic_map = raw.get("x-kubernetes-map-type") == "atomic"
        if not (self.type or free or self.preserve or _JUNCTOR in path):
            detail = "must not be empty for specified object fields"
            problems.append(FieldError((*path, "type"), "Required value", detail))
        self.properties = {
            k: sub(v, (*path, "properties", Key(k))) for k, v in raw.get("properties", {}).items()
        }
        additional = raw.get("additionalProperties")
        if additional is True:
            self.preserve = True
        elif isinstance(additional, dict):
            self.additional = sub(additional, (*path, "additionalProperties"))
        if "items" in raw:
            self.items = sub(raw["items"], (*path, "items"))
        try:
            self._checks = list(_checks(raw))
        except re.error as e:
            detail = f"must be a valid regular expression, but isn't: {e}"
            problems.append(FieldError((*path, "pattern"), "Invalid value", detail, raw["pattern"]))
        if not free:
            for word in ("allOf", "anyOf", "oneOf"):
                if word in raw:
                    where = (*path, word, _JUNCTOR)
                    self._junctors.append((word, [sub(r, where) for r in raw[word]]))
            if "not" in raw:
                self._junctors.append(("not", [sub(raw["not"], (*path, "not", _JUNCTOR))]))
        below = [*self.properties.values(), *filter(None, (self.additional, self.items))]
        self._compile_rules(raw, path, problems)
        self.rules_below = bool(self._rules) or any(s.rules_below for s in below)
        for key, child in self.properties.items():
            if "default" in child.raw:
                default = self.defaults[key] = child.default(_copy(child.raw["default"]))
                where = (*path, "properties", Key(key), "default")
                problems.extend(child.validate(default, path=where))
        self.defaults_below = bool(self.defaults) or any(s.defaults_below for s in below)

    def _compile_rules(self, raw: Mapping[str, Any], path: Path, problems: Errors) -> None:
        for i, entry in enumerate(raw.get("x-kubernetes-validations", ())):
            try:
                rule = compile_rule(entry)
                if unknown := next(filter(self._lacks, rule.selections), None):
                    raise RuleError(f"compilation failed: undefined field {'.'.join(unknown)!r}")
            except RuleError as e:
                where = (*path, "x-kubernetes-validations", i, "rule")
                problems.append(FieldError(where, "Invalid value", str(e), entry["rule"]))
            else:
                self._rules.append(rule)

    def _lacks(self, selection: tuple[str, ...]) -> bool:
        """Return whether a rule that selects these fields in turn names one there is not."""
        node: Schema | None = self
        for name in selection:
            if node is None or node.preserve or node.additional or node.type != "object":
                return False
            if name not in node.properties:
                return True
            node = node.properties.get(name)
        return False

    def child(self, key: str) -> Schema:
        """Return the node of one field or key of an object."""
        return self.properties.get(key) or self.additional or UNTYPED

    def key_default(self, key: str) -> Any:
        """Return the default of a key field of this list map's items."""
        return self.items.defaults.get(key) if self.items else None

    # -- defaulting and pruning -----------------------------------------------------------

    def default(self, value: Any) -> Any:
        """Fill in defaults, and drop nulls where null is not allowed; changes `value`."""
        if isinstance(value, dict):
            for key, sub in self.properties.items():
                if key in value:
                    if value[key] is None and not sub.nullable:
                        del value[key]
                    elif sub.defaults_below or sub.properties or sub.items or sub.additional:
                        sub.default(value[key])
            for key, default in self.defaults.items():
                if key not in value:
                    value[key] = _copy(default)
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
        self._prune(value, path, unknown)
        return unknown

    def _prune(self, value: Any, path: Path, unknown: list[Path]) -> None:
        if isinstance(value, dict):
            for key in list(value):
                sub = self.properties.get(key) or self.additional
                if sub is not None:
                    if type(value[key]) in (dict, list):
                        sub._prune(value[key], (*path, key), unknown)
                elif not self.preserve:
                    del value[key]
                    unknown.append((*path, key))
        elif isinstance(value, list) and self.items:
            for i, item in enumerate(value):
                self.items._prune(item, (*path, i), unknown)

    # -- validation -----------------------------------------------------------------------

    def validate(self, value: Any, old: Any = ..., path: Path = ()) -> Errors:
        """Return every violation, rules included.

        Parameters
        ----------
        value
            The value, with defaults.
        old
            The value it replaces, `Ellipsis` if none. What did not change is not refused
            (as since Kubernetes 1.33), and rules that read `oldSelf` are run.
        path
            Where the value stands in its object.
        """
        errors: Errors = []
        self._check(value, old, path, errors)
        if self.rules_below:
            if any(e.type in _BLOCKING for e in errors):
                errors.append(FieldError((), "Invalid value", (
                    "some validation rules were not checked because the object was invalid; "
                    "correct the existing errors to complete validation"), None))  # fmt: skip
            else:
                self._run_rules(value, old, path, errors)
        return errors

    def _check(self, value: Any, old: Any, path: Path, errors: Errors) -> None:
        if old is not ... and value == old:
            return
        if value is None and self.nullable:
            return
        if not isinstance(value, self._classes) or (
            type(value) is bool and bool not in self._classes and object not in self._classes
        ):
            errors.append(self._wrong_type(value, path))
            return
        errors.extend(e for check in self._checks if (e := check(value, path)))
        for word, schemas in self._junctors:
            self._junctor(word, schemas, value, path, errors)
        if isinstance(value, dict):
            for key in self.required:
                if key not in value:
                    errors.append(FieldError((*path, key), "Required value"))
            former = old if isinstance(old, dict) and not self.atomic_map else {}
            for key, item in value.items():
                sub = self.properties.get(key) or self.additional
                if sub is not None:
                    sub._check(item, former.get(key, ...), (*path, key), errors)
        elif isinstance(value, list) and self.items:
            self._check_uniqueness(value, path, errors)
            for i, (item, previous) in enumerate(self._correlated(value, old)):
                self.items._check(item, previous, (*path, i), errors)

    def _wrong_type(self, value: Any, path: Path) -> FieldError:
        wanted = "integer,string" if self.type == "" else self.type
        actual = _NAMES[type(value)]
        shown = actual if value is None or isinstance(value, (dict, list)) else value
        detail = f'{text_path(path)} in body must be of type {wanted}: "{actual}"'
        return FieldError(path, "Invalid type", detail, shown)

    @staticmethod
    def _junctor(word: str, schemas: list[Schema], value: Any, path: Path, errors: Errors) -> None:
        results: list[Errors] = []
        for schema in schemas:
            found: Errors = []
            schema._check(value, ..., path, found)
            results.append(found)
        matching = sum(not r for r in results)
        name = text_path(path)
        if word == "allOf":
            errors.extend(e for r in results for e in r)
        elif word == "anyOf" and not matching:
            detail = f'"{name}" must validate at least one schema (anyOf)'
            errors.append(FieldError(path, "Invalid value", detail, ""))
        elif word == "oneOf" and matching != 1:
            detail = f'"{name}" must validate one and only one schema (oneOf). '
            detail += "Found none valid" if not matching else f"Found {matching} valid alternatives"
            errors.append(FieldError(path, "Invalid value", detail, ""))
        elif word == "not" and matching:
            detail = f'"{name}" must not validate the schema (not)'
            errors.append(FieldError(path, "Invalid value", detail, ""))

    def _check_uniqueness(self, value: list[Any], path: Path, errors: Errors) -> None:
        if self.list_type == "atomic" or not self._unique:
            return
        seen: set[Any] = set()
        for i, item in enumerate(value):
            if self.list_type == "map":
                key: Any = item_key(self, item)
                shown: Any = dict(zip(self.list_keys, key or (), strict=False))
            else:
                key, shown = orjson.dumps(item, option=orjson.OPT_SORT_KEYS), item
            if key is not None and key in seen:
                errors.append(FieldError((*path, i), "Duplicate value", "", shown))
            seen.add(key)

    def _correlated(self, value: list[Any], old: Any) -> list[tuple[Any, Any]]:
        """Pair items with their former selves, which only a list map can tell."""
        if self.list_type != "map" or not isinstance(old, list):
            return [(item, ...) for item in value]
        former = {item_key(self, item): item for item in old}
        return [(item, former.get(item_key(self, item), ...)) for item in value]

    def _run_rules(self, value: Any, old: Any, path: Path, errors: Errors) -> None:
        if value is None:
            return
        for rule in self._rules:
            if rule.transition and old is ...:
                continue
            try:
                why = rule.failure(value, old)
            except RuleError as e:
                errors.append(FieldError(path, "Invalid value", str(e), self.type))
                continue
            if why is None or (not rule.transition and old is not ... and value == old):
                continue
            shown = ... if isinstance(value, (dict, list)) else value
            place = (*path, *rule.field_path)
            errors.append(FieldError(place, _RULE_REASONS[rule.reason], why, shown))
        if isinstance(value, dict):
            former = old if isinstance(old, dict) and not self.atomic_map else {}
            for key, item in value.items():
                if (sub := self.properties.get(key)) and sub.rules_below:
                    sub._run_rules(item, former.get(key, ...), (*path, key), errors)
                elif sub is None and self.additional and self.additional.rules_below:
                    place = (*path, Key(key))
                    self.additional._run_rules(item, former.get(key, ...), place, errors)
        elif isinstance(value, list) and self.items and self.items.rules_below:
            for i, (item, previous) in enumerate(self._correlated(value, old)):
                self.items._run_rules(item, previous, (*path, i), errors)


UNTYPED = Schema()


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value


def _checks(raw: Mapping[str, Any]) -> list[_Check]:
    """Return a check for each keyword on the value itself (kube-openapi's messages)."""
    out: list[_Check] = []

    def body(of: type | tuple[type, ...], holds: Callable[[Any], bool], words: str) -> None:
        def check(value: Any, path: Path) -> FieldError | None:
            if not isinstance(value, of) or holds(value):
                return None
            return FieldError(path, "Invalid value", f"{text_path(path)} in body {words}", value)

        out.append(check)

    def at_most(of: type, limit: int, kind: str, unit: str) -> None:
        words = "may not be more than" if kind == "Too long" else "must have at most"
        detail = f"{words} {limit} {unit if limit == 1 else unit + 's'}"

        def check(value: Any, path: Path) -> FieldError | None:
            if not isinstance(value, of) or len(value) <= limit:
                return None
            return FieldError(path, kind, detail, len(value))

        out.append(check)

    if (enum := raw.get("enum")) is not None:
        supported = ", ".join(f'"{_plain(v)}"' for v in enum)

        def check_enum(value: Any, path: Path) -> FieldError | None:
            if value in enum:
                return None
            return FieldError(path, "Unsupported value", f"supported values: {supported}", value)

        out.append(check_enum)
    number = (int, float)
    if (low := raw.get("minimum")) is not None:
        if raw.get("exclusiveMinimum"):
            body(number, lambda v: v > low, f"should be greater than {_plain(low)}")
        else:
            body(number, lambda v: v >= low, f"should be greater than or equal to {_plain(low)}")
    if (high := raw.get("maximum")) is not None:
        if raw.get("exclusiveMaximum"):
            body(number, lambda v: v < high, f"should be less than {_plain(high)}")
        else:
            body(number, lambda v: v <= high, f"should be less than or equal to {_plain(high)}")
    if (factor := raw.get("multipleOf")) is not None:
        body(number, lambda v: v % factor == 0, f"should be a multiple of {_plain(factor)}")
    if (pattern := raw.get("pattern")) is not None:
        # In Go "$" is the very end; in Python it would let a last newline pass.
        compiled = re.compile(re.sub(r"\$$", r"\\Z", pattern))
        body(str, lambda v: compiled.search(v) is not None, f"should match '{pattern}'")
    for of, word, unit in ((str, "Length", "byte"), (list, "Items", "item"),
                           (dict, "Properties", "item")):  # fmt: skip
        if (least := raw.get(f"min{word}")) is not None:
            what = "chars long" if of is str else word.lower()
            words = f"should {'be' if of is str else 'have'} at least {least} {what}"
            body(of, lambda v, n=least: len(v) >= n, words)  # type: ignore[misc]
        if (most := raw.get(f"max{word}")) is not None:
            at_most(of, most, "Too long" if of is str else "Too many", unit)
    if test := _FORMATS.get(raw.get("format", "")):
        out.append(_format_check(raw["format"], test))
    return out


def _format_check(name: str, test: Callable[[Any], bool]) -> _Check:
    def check(value: Any, path: Path) -> FieldError | None:
        if test(value):
            return None
        detail = f'{text_path(path)} in body must be of type {name}: "{value}"'
        return FieldError(path, "Invalid type", detail, value)

    return check


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None and "T" in value
    except (TypeError, ValueError):
        return False


# Those known here; as in Kubernetes an unknown format is no constraint.
_FORMATS: dict[str, Callable[[Any], bool]] = {"date-time": _is_time}


_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
# ObjectMeta as far as validation and field ownership need it (apimachinery, meta/v1/types.go).
META = {
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
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **{k: {"type": "string"} for k in ("apiVersion", "kind", "name", "uid")},
                    **{k: {"type": "boolean"} for k in ("controller", "blockOwnerDeletion")},
                },
                "x-kubernetes-map-type": "atomic",
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
        },
        "managedFields": {"type": "array", "items": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    },
}  # fmt: skip


def with_type_meta(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema with the fields every object has."""
    fixed = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": META}
    return {**raw, "properties": {**raw.get("properties", {}), **fixed}}


class CRDValidator:
    """What one version of a CRD says about its objects.

    Attributes
    ----------
    schema
        The compiled schema, with the fields every object has.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.schema = Schema.compile(with_type_meta(raw))

    @classmethod
    def from_crd(cls, crd: Mapping[str, Any], version: str = "v1alpha1") -> Self:
        """Compile the schema of one version of a CustomResourceDefinition.

        Raises
        ------
        SchemaError
            The CRD has no such version, or its schema cannot be compiled.
        """
        for entry in crd["spec"]["versions"]:
            if entry["name"] == version:
                return cls(entry["schema"]["openAPIV3Schema"])
        raise SchemaError(f"no version {version!r} in the CRD {crd['metadata']['name']}")

    def validate(
        self, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None
    ) -> list[FieldError]:
        """Return every violation of the schema and of its rules.

        Parameters
        ----------
        obj
            The object, pruned and with defaults.
        old
            The object it replaces, for rules that read `oldSelf`.
        """
        return self.schema.validate(obj, ... if old is None else old)

    def default(self, obj: dict[str, Any]) -> None:
        """Fill in the schema's defaults."""
        self.schema.default(obj)

    def prune(self, obj: dict[str, Any]) -> list[Path]:
        """Remove unknown fields and return their paths."""
        return self.schema.prune(obj)
