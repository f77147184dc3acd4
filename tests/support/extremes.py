"""Extreme values for every field of a kind, from the schema of its CRD: no field is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial, reduce
from itertools import zip_longest
from typing import Any

from partita.constants import GROUP, VERSION
from partita.validation.dry_run import partita_kind
from support.crds import definitions

__all__ = ["STRANGE", "packed"]

Json = dict[str, Any]
Extreme = tuple[str, Any]
"""A field such as `quotas[].memory`, and a value in which it has an extreme one."""

STRANGE = ["", " ", "\u202egnirts", "a\u0301\U0001f600\ufffd", "\x00", "\n\t", "../..", "-", "NaN"]
_QUANTITIES = [
    *(0, -1, 1, 2**31, 2**63 - 1, 2**63),
    *("0", "-1", "1n", "1e-30", "0.000000001", "1", "7Ei", "8Ei", "1e18", "1e30", "1e99"),
    *("1e2147483647", "9" * 24, "9" * 32, "1Zi", "+1Gi", ".5Gi", "1.Gi"),
]
_DURATIONS = ["0s", "1ms", "9999999h", "9999999.999h" * 2, "-1s", "1d", "PT1H", "9" * 25 + "h"]
_TIMES = ["1000-01-01T00:00:00Z", "2999-12-31T23:59:60Z", "9999-12-31T23:59:59Z"]
_DEPTH = 100
_FAR = (-(2**63), -1, 0, 1, 2**31, 2**53, 2**63 - 1)


def packed(kind: str, base: Json, *apart: str) -> list[Json]:
    """Return few specs of a kind that have, among them, each extreme that its schema allows.

    One spec has many fields at an extreme, all else is as in `base`. Fields that are named here
    have a spec for each extreme: with one of these, others might not matter any more.
    """
    (definition,) = (d for d in definitions() if d["spec"]["names"]["kind"] == kind)
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules = partita_kind(kind)
    allowed = [
        (path, spec)
        for path, spec in _of_properties(schema, base, "")
        if not rules.complete(_whole(kind, spec))
    ]
    alone, by_path = [], dict[str, list[Json]]()
    for path, spec in allowed:
        has_fields = any(
            other.startswith((f"{path}.", f"{path}[", f"{path}{{")) for other, _ in allowed
        )
        if path in apart or has_fields:
            alone.append(spec)
        else:
            by_path.setdefault(path, []).append(spec)
    together = zip_longest(*by_path.values(), fillvalue=base)
    return alone + [reduce(partial(_merged, base), specs) for specs in together]


def _whole(kind: str, spec: Json) -> Json:
    group = f"{GROUP}/{VERSION}"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "one"}, "spec": deepcopy(spec)}


def _merged(base: Any, one: Any, more: Any) -> Any:
    """Return a value that differs from `base` in all in which one of the two does."""
    if isinstance(one, dict) and isinstance(more, dict):
        old = base if isinstance(base, dict) else {}
        both = {**more, **one}
        return {k: _merged(old.get(k), both[k], more.get(k, both[k])) for k in both}
    if isinstance(one, list) and isinstance(more, list) and len(one) == len(more) == 1:
        return [_merged(base[0] if base else None, one[0], more[0])]
    return more if one == base else one


def _of_properties(schema: Json, base: Json, path: str) -> Iterator[Extreme]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        for found, value in _of_field(field, base.get(name), here):
            yield found, {**base, name: value}


def _of_field(schema: Json, base: Any, path: str) -> Iterator[Extreme]:
    for value in _values(schema):
        yield path, value
    if "properties" in schema:
        inner = {**_least(schema), **(base or {})}
        yield from _of_properties(schema, inner, path)
    if "items" in schema:
        item = base[0] if base else _least(schema["items"])
        for found, value in _of_field(schema["items"], item, f"{path}[]"):
            yield found, [value]
    if isinstance(schema.get("additionalProperties"), dict):
        for found, value in _of_field(schema["additionalProperties"], None, f"{path}{{}}"):
            yield found, {"key": value}


def _values(schema: Json) -> list[Any]:  # noqa: PLR0911 - one for each kind of field
    """Return extreme values of one field, allowed ones and others."""
    if "enum" in schema:
        return [*schema["enum"], "", "other"]
    if schema.get("x-kubernetes-int-or-string"):
        return _QUANTITIES
    if schema.get("format") == "date-time":
        return [*_TIMES, *STRANGE]
    match schema.get("type"):
        case "integer" | "number":
            least, most = schema["minimum"], schema["maximum"]
            return sorted({least, most, least - 1, most + 1, *_FAR})
        case "boolean":
            return [True, False]
        case "string":
            longest = schema["maxLength"]
            lengths = ["a" * longest, "a" * (longest + 1), "\U0001f600" * min(longest, 10_000)]
            amounts = [q for q in _QUANTITIES if isinstance(q, str)] if longest == 32 else []
            return [*lengths, *STRANGE, *amounts, *(_DURATIONS if longest == 32 else [])]
        case "array":
            most, item = schema["maxItems"], _least(schema["items"])
            key = next(iter(schema.get("x-kubernetes-list-map-keys", ())), None)
            many = [{**item, key: f"n{i}"} if key else item for i in range(most + 1)]
            return [[], many[:most], many]
        case "object" if "additionalProperties" in schema:
            most = schema["maxProperties"]
            full, above = ({f"k{i}": "v" for i in range(n)} for n in (most, most + 1))
            return [{}, full, above, {"k" * 317: "v"}, {"": ""}]
    return [{}, {"deep": _nested()}] if "x-kubernetes-preserve-unknown-fields" in schema else [{}]


def _least(schema: Json) -> Any:
    """Return a small value that a schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: _least(fields[name]) for name in schema.get("required", ())}
        case "array":
            return [_least(schema["items"])] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema["minimum"]
        case "boolean":
            return False
        case _:
            pass
    return "1m" if schema.get("maxLength") == 32 and not _amount(schema) else "1"


def _amount(schema: Json) -> bool:
    said = str(schema.get("x-kubernetes-validations", "")) + schema.get("description", "")
    return "uantity" in said


def _nested() -> Any:
    value: Any = "bottom"
    for _ in range(_DEPTH):
        value = {"a": [value]}
    return value
