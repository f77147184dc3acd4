"""Field ownership: `managedFields`, maintained on every write, and server-side apply.

A set of fields is a `frozenset` of paths. A path is a tuple of FieldsV1 elements, such as
``("f:spec", 'k:{"name":"a"}', "f:memory")``. The rules are those of structured-merge-diff
(merge/update.go, typed/compare.go). An update owns the fields that it added or changed. An apply
owns the fields that it contains, and fails if it would change fields of other managers.

Not supported are `managedFields` written by clients, conversion between versions,
``ancient-changes`` (a limit on the number of updaters), and changes of a list's topology after
objects exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from partita.validation.schema import UNTYPED, Schema
from partita_testcluster.apiserver.errors import APIError

__all__ = ["Manager", "apply_config", "record_update"]

FieldPath = tuple[str, ...]
Fields = frozenset[FieldPath]

# Set by the server or fixed by the URL, hence without owner (apiserver, fieldmanager/stripmeta.go).
_UNOWNED_META = frozenset(
    {"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
     "managedFields", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
     "generateName"}
)  # fmt: skip
_NOBODYS: Fields = frozenset({(), ("f:metadata",)})


@dataclass(frozen=True, slots=True)
class Manager:
    """The writer of fields, which identifies an entry of `managedFields`."""

    name: str
    operation: str  # Apply or Update
    api_version: str
    subresource: str = ""

    def key(self) -> tuple[str, str, str, str]:
        """Return the identity. That of an applier does not depend on the API version."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.name, self.operation, version, self.subresource)


# -- paths ------------------------------------------------------------------------------------


def _item_element(schema: Schema, item: Any) -> str:
    if schema.list_type == "map":
        if (key := schema.item_key(item)) is None:
            raise APIError(
                422, "Invalid", f"an item of an associative list must have {schema.list_keys}"
            )
        item = dict(zip(schema.list_keys, key, strict=True))
    kind = "k:" if schema.list_type == "map" else "v:"
    return kind + orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()


def _is_whole(schema: Schema, value: Any) -> bool:
    """Return whether a value is owned as a whole."""
    if isinstance(value, dict):
        return schema.atomic_map
    return not isinstance(value, list) or schema.list_type == "atomic"


def _members(schema: Schema, value: Any) -> Iterator[tuple[str, Schema, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"f:{key}", schema.child(key), item
    else:
        for item in value:
            yield _item_element(schema, item), schema.items or UNTYPED, item


def _fields(
    schema: Schema, value: Any, path: FieldPath = (), *, structs: bool, own: bool = True
) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the fields of a value, each with its value, or its type if it contains other fields.

    Items of lists and entries of maps are fields, in addition to the fields that they contain. With
    `structs` this also applies to declared objects and lists.
    """
    if _is_whole(schema, value):
        yield path, value
        return
    if own or not value:
        yield path, type(value)
    for element, sub, item in _members(schema, value):
        named = structs or element[0] in "kv" or element[2:] not in schema.properties
        yield from _fields(sub, item, (*path, element), structs=structs, own=named)


def _owned_view(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object without the fields that cannot have an owner."""
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k not in _UNOWNED_META}
    return {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")} | {"metadata": meta}


def _difference(schema: Schema, old: dict[str, Any], new: dict[str, Any]) -> tuple[Fields, Fields]:
    """Return the fields that were added or changed, and those that were removed."""
    views = _owned_view(old), _owned_view(new)
    same = {k for k in views[0] if k in views[1] and views[0][k] == views[1][k]}
    before, after = (
        dict(_fields(schema, {k: v for k, v in view.items() if k not in same}, structs=True))
        for view in views
    )
    changed = frozenset(p for p, v in after.items() if p not in before or before[p] != v)
    return changed - _NOBODYS, frozenset(before.keys() - after.keys())


# -- FieldsV1 ---------------------------------------------------------------------------------


def _encode(fields: Fields) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in sorted(fields, key=len, reverse=True):  # a field with others below: {".": {}, ...}
        node = root
        for element in path:
            node = node.setdefault(element, {})
        if node:
            node["."] = {}
    return root


def _decode(node: dict[str, Any], path: FieldPath = ()) -> Iterator[FieldPath]:
    for element, below in node.items():
        if element == ".":
            yield path
        elif below:
            yield from _decode(below, (*path, element))
        else:
            yield (*path, element)


@dataclass(slots=True)
class _Owner:
    """An entry of `managedFields`, which is encoded again only if its fields changed."""

    manager: Manager
    entry: dict[str, Any]
    before: Fields
    fields: Fields

    def encoded(self, now: str) -> dict[str, Any]:
        if self.fields == self.before:
            return self.entry
        entry = {
            "manager": self.manager.name,
            "operation": self.manager.operation,
            "apiVersion": self.manager.api_version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": _encode(self.fields),
        }
        return entry | ({"subresource": s} if (s := self.manager.subresource) else {})


_Owners = dict[tuple[str, str, str, str], _Owner]


def _owners(obj: dict[str, Any]) -> _Owners:
    out = {}
    for entry in obj.get("metadata", {}).get("managedFields", ()):
        parts = (entry["manager"], entry["operation"], entry["apiVersion"])
        manager = Manager(*parts, entry.get("subresource", ""))
        fields = frozenset(_decode(entry["fieldsV1"]))
        out[manager.key()] = _Owner(manager, entry, fields, fields)
    return out


def _owner(owners: _Owners, manager: Manager) -> _Owner:
    return owners.setdefault(manager.key(), _Owner(manager, {}, frozenset(), frozenset()))


def _store(obj: dict[str, Any], owners: _Owners, now: str) -> None:
    entries = [owner.encoded(now) for owner in owners.values() if owner.fields]
    entries.sort(key=lambda e: (e["operation"], e["time"], e["manager"]))
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries


def record_update(
    schema: Schema, old: dict[str, Any], new: dict[str, Any], manager: Manager, now: str
) -> None:
    """Set the `managedFields` of `new` after `manager` replaced `old` with it.

    An object whose `managedFields` were removed gets none until somebody applies it.

    Parameters
    ----------
    old
        The previous object, with `managedFields`; empty on creation.
    now
        The time of the write, RFC 3339.
    """
    if old and not old["metadata"].get("managedFields"):
        new["metadata"].pop("managedFields", None)
        return
    changed, removed = _difference(schema, old, new)
    owners = _owners(old)
    own = _owner(owners, manager)
    for owner in owners.values():
        owner.fields -= removed if owner is own else removed | changed
    own.fields |= changed
    _store(new, owners, now)


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
    if live["metadata"].get("uid") and not live["metadata"].get("managedFields"):
        live = {**live, "metadata": dict(live["metadata"])}
        before = Manager("before-first-apply", "Update", manager.api_version)
        record_update(schema, {}, live, before, now)
    owners = _owners(live)
    own = _owner(owners, manager)
    last, own.manager = own.fields, manager
    own.fields = frozenset(p for p, _ in _fields(schema, applied, structs=False)) - _NOBODYS
    managed = _with_parents(frozenset().union(*(owner.fields for owner in owners.values())))
    gone = _with_parents(last) - managed - _NOBODYS
    result: dict[str, Any] = _without(schema, _merge(schema, live, applied), gone)
    changed, removed = _difference(schema, live, result)
    others = [owner for owner in owners.values() if owner is not own]
    conflicts = {o.manager: found for o in others if (found := o.fields & changed)}
    if conflicts and not force:
        raise _conflict(conflicts)
    for owner in others:
        owner.fields -= changed | removed
    _store(result, owners, now)
    return result


def _with_parents(fields: Fields) -> Fields:
    """Return the fields and their parents. Items of lists are included only if in `fields`."""
    above = (p[:n] for p in fields for n in range(1, len(p)) if p[n - 1][0] == "f")
    return fields.union(above)


def _without(schema: Schema, value: Any, gone: Fields, path: FieldPath = ()) -> Any:
    if not gone or _is_whole(schema, value):
        return value
    kept = [
        (element, _without(sub, item, gone, (*path, element)))
        for element, sub, item in _members(schema, value)
        if (*path, element) not in gone
    ]
    return {e[2:]: v for e, v in kept} if isinstance(value, dict) else [v for _, v in kept]


def _merge(schema: Schema, live: Any, config: Any) -> Any:
    if type(live) is not type(config) or _is_whole(schema, config):
        return config
    if isinstance(config, dict):
        merged = {k: _merge(schema.child(k), live.get(k), v) for k, v in config.items()}
        return live | merged
    return _merge_items(schema, live, config)


def _merge_items(schema: Schema, live: list[Any], config: list[Any]) -> list[Any]:
    """Merge by key. Applied items are in the applied order, other items keep their positions."""
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
    text = f"{len(causes)} conflicts: " + "\n".join(sorted(groups))
    if len(causes) == 1:
        text = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    return APIError(409, "Conflict", f"Apply failed with {text}", causes=causes)


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
