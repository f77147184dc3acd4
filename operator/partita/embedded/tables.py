"""Objects as `Table`s: what `kubectl get` prints.

JSONPaths are the subset that printer columns use: fields, quoted fields, indices, ``[*]`` and
``[?(@.a.b=="c")]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

__all__ = ["AGE", "Column", "age", "compile_path", "table"]

Finder = Callable[[Any], list[Any]]

_STEP = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\\])+)|\['(?P<quoted>[^']*)'\]|\[(?P<index>-?\d+)\]|(?P<all>\[\*\])"""
    r"""|\[\?\(\s*@\.(?P<path>[\w.\-]+)\s*==\s*(?:"(?P<d>[^"]*)"|'(?P<s>[^']*)'|(?P<n>\w+))\s*\)\]"""
)


def compile_path(path: str) -> Finder:
    """Return a function that finds the values a JSONPath leads to.

    Raises
    ------
    ValueError
        The path is not of the subset above.
    """
    steps: list[Finder] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"cannot read the JSONPath {path!r} at {path[at:]!r}")
        steps.append(_step(match))
        at = match.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [found for v in values for found in step(v)]
        return values

    return find


def _step(match: re.Match[str]) -> Finder:
    if (name := match["field"] or match["quoted"]) is not None:
        key = name.replace("\\", "")
        return lambda v: [v[key]] if isinstance(v, dict) and v.get(key) is not None else []
    if match["index"]:
        index = int(match["index"])
        return lambda v: v[index:][:1] if isinstance(v, list) else []
    if match["all"]:
        return lambda v: list(v.values()) if isinstance(v, dict) else list(v or ())
    parts = match["path"].split(".")
    wanted = next(x for x in (match["d"], match["s"], match["n"]) if x is not None)

    def select(value: Any) -> list[Any]:
        return [i for i in value if _text(_dig(i, parts)) == wanted] if (
            isinstance(value, list)) else []  # fmt: skip

    return select


def _dig(value: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a kind's table; those of a priority above 0 are for ``-o wide``."""

    name: str
    type: str
    find: Finder
    priority: int = 0
    format: str = ""
    description: str = ""

    def cell(self, obj: dict[str, Any]) -> Any:
        """Return the cell of one object."""
        found = self.find(obj)
        if not found:
            return None
        if self.type == "date":
            return age(found[0])
        if self.type == "string":
            return " ".join(map(_text, found))
        return found[0]


def age(timestamp: Any) -> str:
    """Return how long ago a time was, as kubectl abbreviates it (``75s``, ``3d4h``)."""
    try:
        then = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return "<unknown>"
    seconds = int((datetime.now(UTC) - then).total_seconds())
    # The steps of apimachinery's duration.HumanDuration.
    minute, hour, day, year = 60, 3600, 86400, 365 * 86400
    for limit, big, small in (
        (2 * minute, (1, "s"), None),
        (10 * minute, (minute, "m"), (1, "s")),
        (3 * hour, (minute, "m"), None),
        (8 * hour, (hour, "h"), (minute, "m")),
        (2 * day, (hour, "h"), None),
        (8 * day, (day, "d"), (hour, "h")),
        (2 * year, (day, "d"), None),
        (8 * year, (year, "y"), (day, "d")),
    ):
        if seconds < limit:
            break
    else:
        big, small = (year, "y"), None
    out = f"{max(seconds, 0) // big[0]}{big[1]}"
    rest = seconds % big[0] // small[0] if small else 0
    return f"{out}{rest}{small[1]}" if small and rest else out


AGE = Column("Age", "date", compile_path(".metadata.creationTimestamp"))
_NAME = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within its scope.",
    "priority": 0,
}


def table(
    columns: Iterable[Column],
    objects: Sequence[dict[str, Any]],
    meta: dict[str, Any],
    *,
    include: str,
    headers: bool = True,
) -> dict[str, Any]:
    """Return objects as a `Table`.

    Parameters
    ----------
    meta
        The list's metadata.
    include
        What each row carries of its object: ``None``, ``Metadata`` or ``Object``.
    headers
        Whether the columns are described; later events of a watch leave them out.
    """
    columns = tuple(columns)
    rows = []
    for obj in objects:
        row: dict[str, Any] = {"cells": [obj["metadata"]["name"], *(c.cell(obj) for c in columns)]}
        if include == "Object":
            row["object"] = obj
        elif include == "Metadata":
            row["object"] = partial(obj)
        rows.append(row)
    described = [
        {"name": c.name, "type": c.type, "format": c.format, "description": c.description,
         "priority": c.priority}
        for c in columns
    ]  # fmt: skip
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [_NAME, *described] if headers else [],
        "rows": rows,
    }


def partial(obj: dict[str, Any]) -> dict[str, Any]:
    """Return only the metadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
