"""Who owns which field: `managedFields`, kept on every write, and server-side apply.

A set of fields is a `set` of paths; a path is a tuple of FieldsV1 elements, such as
``("f:spec", 'k:{"name":"a"}', "f:memory")``. The rules are those of structured-merge-diff
(merge/update.go, typed/compare.go): an update owns what it added or changed, an apply owns what
it names, and fails where it would change what others own.

It does not have: conversion between versions, ``ancient-changes`` (a cap on the number of
updaters), changes of a list's topology after objects exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from partita.embedded.errors import APIError
from partita.embedded.structural import UNTYPED, Schema

__all__ = ["Manager", "apply_config", "record_update"]

FieldPath = tuple[str, ...]
Fields = set[FieldPath]

# Set by the server or fixed by the URL, hence nobody's (apiserver, fieldmanager/stripmeta.go).
_STRIPPED: Fields = {
    ("f:apiVersion",), ("f:kind",), ("f:metadata",),
    *(("f:metadata", f"f:{name}") for name in (
        "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
        "managedFields", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
        "generateName")),
}  # fmt: skip
_UNOWNED_META = frozenset(p[1][2:] for p in _STRIPPED if len(p) > 1)


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes: the identity of an entry of `managedFields`."""

    name: str
    operation: str  # Apply or Update
    api_version: str
    subresource: str = ""

    def key(self) -> tuple[str, str, str, str]:
        """Return the identity; an applier stays the same across versions."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.name, self.operation, version, self.subresource)


@dataclass(slots=True)
class _Difference:
    changed: Fields = field(default_factory=set)  # added or modified
    removed: Fields = field(default_factory=set)


# -- paths ------------------------------------------------------------------------------------


def _item_element(schema: Schema, item: Any) -> str:
    if schema.list_type == "map":
        key = schema.item_key(item)
        if key is None:
            raise APIError(
                422, "Invalid",
                f"element of an associative list must have the keys {list(schema.list_keys)}",
            )  # fmt: skip
        names = dict(zip(schema.list_keys, key, strict=True))
        return "k:" + orjson.dumps(names, option=orjson.OPT_SORT_KEYS).decode()
    return "v:" + orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()


def _is_leaf(schema: Schema, value: Any) -> bool:
    if isinstance(value, dict):
        return not value or schema.atomic_map
    if isinstance(value, list):
        return not value or schema.list_type == "atomic"
    return True


def _children(schema: Schema, value: Any) -> Iterator[tuple[str, Schema, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"f:{key}", schema.child(key), item
    else:
        for item in value:
            yield _item_element(schema, item), schema.items or UNTYPED, item


def _walk(schema: Schema, value: Any, path: FieldPath, out: Fields, *, containers: bool) -> None:
    """Collect the leaves; with `containers` every object and list above them as well."""
    if _is_leaf(schema, value):
        out.add(path)
        return
    if containers:
        out.add(path)
    for element, sub, item in _children(schema, value):
        below = (*path, element)
        # Items of lists and entries of maps are owned as such, beside what is in them.
        if element[0] in "kv" or (element[2:] not in schema.properties):
            out.add(below)
        _walk(sub, item, below, out, containers=containers)


def _compare(schema: Schema, old: Any, new: Any, path: FieldPath, out: _Difference) -> None:
    """Collect what differs between two values (typed/compare.go)."""
    if old == new:
        return
    if _is_leaf(schema, old) or _is_leaf(schema, new) or type(old) is not type(new):
        both_leaves = _is_leaf(schema, old) and _is_leaf(schema, new)
        if both_leaves or type(old) is not type(new):
            out.changed.add(path)
        if not _is_leaf(schema, old):
            for element, sub, item in _children(schema, old):
                _walk(sub, item, (*path, element), out.removed, containers=True)
        if not _is_leaf(schema, new):
            for element, sub, item in _children(schema, new):
                _walk(sub, item, (*path, element), out.changed, containers=True)
        return
    former = {e: (s, v) for e, s, v in _children(schema, old)}
    for element, sub, item in _children(schema, new):
        if element in former:
            _compare(sub, former.pop(element)[1], item, (*path, element), out)
        else:
            _walk(sub, item, (*path, element), out.changed, containers=True)
    for element, (sub, item) in former.items():
        _walk(sub, item, (*path, element), out.removed, containers=True)


def _owned_view(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object without what nobody can own."""
    view = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k not in _UNOWNED_META}
    view["metadata"] = meta
    return view


# -- FieldsV1 ---------------------------------------------------------------------------------


def _encode(fields: Fields) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in sorted(fields):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _trim(root)


def _trim(node: dict[str, Any]) -> dict[str, Any]:
    """Write a member without children as {} instead of {".": {}}."""
    if len(node) == 1 and "." in node:
        return {}
    return {k: _trim(v) if k != "." else v for k, v in node.items()}


def _decode(node: dict[str, Any], path: FieldPath, out: Fields) -> Fields:
    for element, below in node.items():
        if element == ".":
            out.add(path)
        elif below:
            _decode(below, (*path, element), out)
        else:
            out.add((*path, element))
    return out


@dataclass(slots=True)
class _Owner:
    """An entry of `managedFields`; decoded and encoded again only when it is looked into."""

    manager: Manager
    entry: dict[str, Any]
    fields: Fields

    def encoded(self, before: Fields, now: str) -> dict[str, Any]:
        if self.fields == before:
            return self.entry
        entry = {
            "manager": self.manager.name,
            "operation": self.manager.operation,
            "apiVersion": self.manager.api_version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": _encode(self.fields),
        }
        if self.manager.subresource:
            entry["subresource"] = self.manager.subresource
        return entry


def _owners(obj: dict[str, Any]) -> dict[tuple[str, str, str, str], _Owner]:
    out = {}
    for entry in obj.get("metadata", {}).get("managedFields") or ():
        if not entry.get("fieldsV1"):
            continue
        manager = Manager(
            entry.get("manager", ""), entry.get("operation", "Update"),
            entry.get("apiVersion", ""), entry.get("subresource", ""),
        )  # fmt: skip
        out[manager.key()] = _Owner(manager, entry, _decode(entry["fieldsV1"], (), set()))
    return out


def _store(obj: dict[str, Any], owners: Any, before: dict[Any, Fields], now: str) -> None:
    entries = [o.encoded(before.get(k, set()), now) for k, o in owners.items() if o.fields]
    entries.sort(key=lambda e: (e["operation"], e.get("time", ""), e["manager"]))
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries


def record_update(
    schema: Schema, old: dict[str, Any], new: dict[str, Any], manager: Manager, now: str
) -> None:
    """Write into `new` who owns its fields after `manager` replaced `old` with it.

    Parameters
    ----------
    old
        The object before, with `managedFields`; empty when it is created. Of these, what the
        writer put into `new` itself counts instead (an empty list forgets everything).
    now
        The time of the write, RFC 3339.
    """
    given = new["metadata"].get("managedFields")
    owners = _owners(old if given is None or manager.subresource else new)
    before = {k: set(o.fields) for k, o in owners.items()}
    difference = _Difference()
    _compare(
        schema, _owned_view(old) if old else {"metadata": {}}, _owned_view(new), (), difference
    )
    difference.changed -= _STRIPPED
    for key, owner in owners.items():
        owner.fields -= difference.removed
        if key != manager.key():
            owner.fields -= difference.changed
    if difference.changed:
        own = owners.setdefault(manager.key(), _Owner(manager, {}, set()))
        own.fields |= difference.changed
    if given is None and not difference.changed and not difference.removed:
        if entries := old.get("metadata", {}).get("managedFields"):
            new["metadata"]["managedFields"] = entries
        return
    _store(new, owners, before, now)


# -- server-side apply ------------------------------------------------------------------------


def apply_config(
    schema: Schema,
    live: dict[str, Any],
    config: dict[str, Any],
    manager: Manager,
    now: str,
    *,
    force: bool,
) -> dict[str, Any]:
    """Return `live` after `manager` applied `config` to it, with `managedFields` updated.

    Raises
    ------
    APIError
        409 with a cause for each field that another manager owns and `config` would change.
    """
    applied = _owned_view(config)
    owners = _owners(live)
    before = {k: set(o.fields) for k, o in owners.items()}
    wanted: Fields = set()
    _walk(schema, applied, (), wanted, containers=False)
    wanted -= _STRIPPED | {()}
    result: dict[str, Any] = _merge(schema, live, applied)
    own = owners.setdefault(manager.key(), _Owner(manager, {}, set()))
    last, own.fields, own.manager = own.fields, wanted, manager
    managed = {p for o in owners.values() for p in _with_parents(o.fields)}
    for path in sorted(_with_parents(last) - managed - _STRIPPED, key=len):
        _remove(schema, result, path)
    difference = _Difference()
    _compare(schema, _owned_view(live), _owned_view(result), (), difference)
    others = {k: o for k, o in owners.items() if k != manager.key()}
    conflicts = {k: c for k, o in others.items() if (c := o.fields & difference.changed)}
    if conflicts and not force:
        raise _conflict({owners[k].manager: c for k, c in conflicts.items()})
    for key, owner in others.items():
        owner.fields -= conflicts.get(key, set())
        owner.fields -= difference.removed
    _store(result, owners, before, now)
    return result


def _with_parents(fields: Fields) -> Fields:
    """Return the fields and the named fields above them; items of lists only if members."""
    out = set(fields)
    for path in fields:
        out.update(path[:n] for n in range(1, len(path)) if path[n - 1][0] == "f")
    return out


def _merge(schema: Schema, live: Any, config: Any) -> Any:
    if isinstance(config, dict) and isinstance(live, dict) and not schema.atomic_map:
        result = dict(live)
        for key, value in config.items():
            result[key] = _merge(schema.child(key), live.get(key), value)
        return result
    if (
        isinstance(config, list) and isinstance(live, list)
        and schema.list_type in ("map", "set")
    ):  # fmt: skip
        return _merge_items(schema, live, config)
    return config


def _merge_items(schema: Schema, live: list[Any], config: list[Any]) -> list[Any]:
    """Merge by key. What is applied comes in its own order, what is not stays where it was."""
    mine = {_item_element(schema, item): item for item in config}
    if len(mine) < len(config):
        raise APIError(422, "Invalid", "duplicate entries in the applied configuration")
    theirs = {_item_element(schema, item): item for item in live}
    below = schema.items or UNTYPED
    merged = {k: _merge(below, theirs[k], v) if k in theirs else v for k, v in mine.items()}
    pending = iter(list(merged))
    result: list[Any] = []
    for key, item in theirs.items():
        if key not in merged:
            result.append(item)
            continue
        for name in pending:
            result.append(merged[name])
            if name in theirs:
                break
    result.extend(merged[name] for name in pending)
    return result


def _remove(schema: Schema, value: Any, path: FieldPath) -> None:
    for n, element in enumerate(path):
        last = n == len(path) - 1
        if element.startswith("f:"):
            key = element[2:]
            if not isinstance(value, dict) or key not in value:
                return
            if last:
                del value[key]
                return
            # Parts may still be shared with the live object.
            value[key] = value[key].copy() if isinstance(value[key], (dict, list)) else value[key]
            value, schema = value[key], schema.child(key)
        else:
            if not isinstance(value, list):
                return
            found = [i for i, v in enumerate(value) if _item_element(schema, v) == element]
            if not found:
                return
            if last:
                del value[found[0]]
                return
            value[found[0]] = dict(value[found[0]])
            value, schema = value[found[0]], schema.items or UNTYPED


def _conflict(conflicts: dict[Manager, Fields]) -> APIError:
    causes, groups = [], []
    for manager, fields in conflicts.items():
        by = f'"{manager.name}"'
        if manager.subresource:
            by += f' with subresource "{manager.subresource}"'
        if manager.operation == "Update":
            by += f" using {manager.api_version}"
        paths = [_printed(path) for path in sorted(fields)]
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {by}", "field": path}
            for path in paths
        ]
        groups.append("\n- ".join([f"conflicts with {by}:", *paths]))
    if len(causes) == 1:
        text = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        text = f"{len(causes)} conflicts: " + "\n".join(sorted(groups))
    return APIError(409, "Conflict", f"Apply failed with {text}", {"causes": causes})


def _printed(path: FieldPath) -> str:
    out = ""
    for element in path:
        kind, text = element[0], element[2:]
        if kind == "f":
            out += f".{text}"
        elif kind == "k":
            keys = orjson.loads(text)
            out += "[" + ",".join(f"{k}={orjson.dumps(v).decode()}" for k, v in keys.items()) + "]"
        else:
            out += f"[={text}]"
    return out
