"""The three patch languages that are not server-side apply.

JSON merge patch (RFC 7386), JSON patch (RFC 6902) and, for built-in kinds, the part of
Kubernetes' strategic merge patch that clients send: lists merged by key, ``$patch``,
``$setElementOrder``, ``$deleteFromPrimitiveList`` and ``$retainKeys``
(https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md).

Nothing given to a function here is changed; results share no part with what was given.
"""

from __future__ import annotations

from typing import Any

import orjson

from partita.embedded.errors import APIError, bad_request
from partita.embedded.structural import Schema

__all__ = ["json_patch", "merge_patch", "strategic_merge_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: objects are merged, null deletes, all else replaces."""
    if not isinstance(patch, dict):
        return _copy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON patch.

    Raises
    ------
    APIError
        400 where the patch is malformed, 422 where an operation cannot be done.
    """
    if not isinstance(patch, list):
        raise bad_request("a JSON patch must be a list of operations")
    document = _copy(target)
    for operation in patch:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as e:
            text = orjson.dumps(operation).decode()
            raise APIError(
                422, "Invalid", f"the server rejected our request due to an error in our request: "
                f"operation {text} cannot be done: {e}"
            ) from e  # fmt: skip
    return document


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation["op"], _pointer(operation["path"])
    if op == "test":
        if _lookup(document, path) != operation["value"]:
            raise ValueError("testing value failed")
        return document
    if op == "remove":
        return _set(document, path, ..., replace=True)
    if op in ("add", "replace"):
        return _set(document, path, _copy(operation["value"]), replace=op == "replace")
    if op in ("move", "copy"):
        source = _pointer(operation["from"])
        value = _copy(_lookup(document, source))
        if op == "move":
            document = _set(document, source, ..., replace=True)
        return _set(document, path, value, replace=False)
    raise ValueError(f"unknown operation {op!r}")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise ValueError(f"a path starts with '/': {text!r}")
    return [p.replace("~1", "/").replace("~0", "~") for p in text[1:].split("/")]


def _index(items: list[Any], token: str) -> int:
    index = int(token)
    if not 0 <= index < len(items):
        raise IndexError(f"no item {token}")
    return index


def _lookup(document: Any, path: list[str]) -> Any:
    for token in path:
        document = document[_index(document, token) if isinstance(document, list) else token]
    return document


def _set(document: Any, path: list[str], value: Any, *, replace: bool) -> Any:
    """Put `value` at `path` (`Ellipsis` removes); with `replace` something must be there."""
    if not path:
        return None if value is ... else value
    parent, last = _lookup(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        if replace:
            index = _index(parent, last)
            parent[index : index + 1] = [] if value is ... else [value]
        else:
            index = len(parent) if last == "-" else int(last)
            if not 0 <= index <= len(parent):
                raise IndexError(f"no place {last}")
            parent.insert(index, value)
    elif isinstance(parent, dict):
        if replace and last not in parent:
            raise KeyError(f"no field {last}")
        if value is ...:
            del parent[last]
        else:
            parent[last] = value
    else:
        raise TypeError(f"{'/'.join(path[:-1])} is neither an object nor a list")
    return document


def strategic_merge_patch(target: Any, patch: Any, schema: Schema) -> Any:
    """Apply a strategic merge patch; `schema` says which lists are merged, and by which keys."""
    if not isinstance(patch, dict):
        return _copy(patch)
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return _copy({k: v for k, v in patch.items() if k != "$patch"})
    result = dict(target) if isinstance(target, dict) else {}
    if (kept := patch.get("$retainKeys")) is not None:
        result = {k: v for k, v in result.items() if k in kept}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [i for i in result.get(name, ()) if i not in value]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            order = patch.get(f"$setElementOrder/{key}")
            result[key] = _merge_list(result.get(key) or [], value, schema.child(key), order)
        else:
            result[key] = strategic_merge_patch(result.get(key), value, schema.child(key))
    return result


def _merge_list(
    old: list[Any], new: list[Any], schema: Schema, order: list[Any] | None
) -> list[Any]:
    if schema.list_type == "atomic" or any(
        isinstance(i, dict) and i.get("$patch") == "replace" for i in new
    ):
        return list(_copy([i for i in new if not (isinstance(i, dict) and "$patch" in i)]))
    if schema.list_type == "set":
        merged = [*old, *(i for i in new if i not in old)]
        return sorted(merged, key=order.index) if order and set(order) >= set(merged) else merged
    # A strategic merge goes by one key, the first; only server-side apply knows several.
    key = schema.list_keys[0]
    result = {i[key]: i for i in old}
    for item in new:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        if item.get("$patch") == "delete":
            result.pop(item[key], None)
        else:
            below = schema.items or schema
            result[item[key]] = strategic_merge_patch(result.get(item[key]), item, below)
    ranks = {i[key]: n for n, i in enumerate(order or ())}
    return sorted(result.values(), key=lambda i: ranks.get(i[key], len(ranks)))


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))
