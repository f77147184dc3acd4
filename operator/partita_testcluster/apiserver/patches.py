"""The patch languages, except JSON patch and server-side apply.

JSON merge patch (RFC 7386) and, for built-in kinds, the part of
Kubernetes' strategic merge patch that kubectl sends: lists merged by key, items deleted by
``$patch``, ``$setElementOrder`` and ``$deleteFromPrimitiveList``
(https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md).

The functions do not change their arguments, and results share no objects with the arguments.
"""

from __future__ import annotations

from typing import Any

import orjson

from partita.validation.schema import Schema
from partita_testcluster.apiserver.errors import bad_request

__all__ = ["merge_patch", "strategic_merge_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: objects are merged, null deletes, other values replace."""
    if not isinstance(patch, dict):
        return _copy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge_patch(target: Any, patch: Any, schema: Schema) -> Any:
    """Apply a strategic merge patch. `schema` defines the lists to merge and their keys."""
    if not isinstance(patch, dict):
        return _copy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        directive, _, name = key.partition("/")
        if directive == "$deleteFromPrimitiveList":
            result[name] = [i for i in result.get(name, ()) if i not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            order = patch.get(f"$setElementOrder/{key}") or []
            result[key] = _merge_list(result.get(key) or [], value, schema.child(key), order)
        else:
            result[key] = strategic_merge_patch(result.get(key), value, schema.child(key))
    return result


def _merge_list(old: list[Any], new: list[Any], schema: Schema, order: list[Any]) -> list[Any]:
    if schema.list_type == "atomic" or schema.items is None:
        return list(_copy(new))
    if schema.list_type == "set":
        return [*old, *(i for i in new if i not in old)]
    # A strategic merge uses only the first key. Server-side apply supports several keys.
    key = schema.list_keys[0]
    result = {i[key]: i for i in old}
    for item in new:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        if item.get("$patch") == "delete":
            result.pop(item[key], None)
        else:
            result[item[key]] = strategic_merge_patch(result.get(item[key]), item, schema.items)
    ranks = {i[key]: n for n, i in enumerate(order)}
    return sorted(result.values(), key=lambda i: ranks.get(i[key], len(ranks)))


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))
