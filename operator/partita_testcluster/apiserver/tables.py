"""Objects as `Table`s, which `kubectl get` prints.

Only the JSONPaths of Partita's printer columns are supported: fields, indices and
``[?(@.a.b=="c")]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from partita_testcluster.apiserver.meta import dig

__all__ = ["AGE", "Column", "age", "compile_path", "human_duration", "partial", "table"]

Finder = Callable[[Any], list[Any]]

_STEP = re.compile(
    r"""\.(?P<field>[^.\[]+)|\[(?P<index>\d+)\]"""
    r"""|\[\?\(@\.(?P<path>[\w.\-]+)=="(?P<wanted>[^"]*)"\)\]"""
)


def compile_path(path: str) -> Finder:
    """Return a function that finds the values at a JSONPath.

    Raises
    ------
    ValueError
        If the path is not supported.
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
    if (key := match["field"]) is not None:
        return lambda v: [v[key]] if isinstance(v, dict) and v.get(key) is not None else []
    if match["index"]:
        index = int(match["index"])
        return lambda v: v[index:][:1] if isinstance(v, list) else []
    path, wanted = match["path"], match["wanted"]
    return lambda v: [i for i in v if _text(dig(i, path)) == wanted] if isinstance(v, list) else []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a kind's table. If its priority is above 0, only ``-o wide`` shows it."""

    name: str
    type: str
    find: Finder
    priority: int = 0

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


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
# Maximum age for each pair of units; apimachinery, util/duration, HumanDuration.
_AGES = (
    (120, "s", ""), (600, "m", "s"), (3 * 3600, "m", ""), (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""), (8 * 86400, "d", "h"), (730 * 86400, "d", ""),
    (8 * 365 * 86400, "y", "d"),
)  # fmt: skip


def age(timestamp: Any) -> str:
    """Return the time since a timestamp in kubectl's format (``75s``, ``3d4h``)."""
    try:
        then = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return "<unknown>"
    return human_duration(then, datetime.now(UTC))


def human_duration(start: datetime, end: datetime) -> str:
    """Return the time between two times in kubectl's format."""
    seconds = int((end - start).total_seconds())
    for limit, big, small in _AGES:
        if seconds < limit:
            out = f"{max(seconds, 0) // _UNITS[big]}{big}"
            rest = seconds % _UNITS[big] // _UNITS[small] if small else 0
            return f"{out}{rest}{small}" if rest else out
    return f"{seconds // _UNITS['y']}y"


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
        Part of the object in each row: ``None``, ``Metadata`` or ``Object``.
    headers
        Whether the columns are included; later events of a watch omit them.
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
        {"name": c.name, "type": c.type, "format": "", "description": "", "priority": c.priority}
        for c in columns
    ]
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
