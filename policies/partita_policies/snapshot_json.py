"""Snapshots as JSON, to be stored and replayed with another policy.

Reading is strict: unknown fields and other schema versions are errors.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from partita_policies.types import SCHEMA_VERSION, Snapshot

__all__ = ["SnapshotError", "dump_snapshot", "load_snapshot"]

_REQUIRED = ("partition", "time", "sharing", "complete", "jobs", "gpus")
"""Required in every recording: a default for `complete` could hide that a listing is partial."""
_SHOWN = 5


class SnapshotError(ValueError):
    """A recording cannot be read; the message contains the location and the expected value."""


@cache
def _adapter() -> TypeAdapter[Snapshot]:
    return TypeAdapter(Snapshot)


def dump_snapshot(snapshot: Snapshot) -> dict[str, JsonValue]:
    """Return a snapshot as JSON values, with the version of their schema."""
    document: dict[str, Any] = _adapter().dump_python(snapshot, mode="json")
    return {"schema": SCHEMA_VERSION, **document}


def load_snapshot(document: Mapping[str, JsonValue]) -> Snapshot:
    """Read a document returned by `dump_snapshot`.

    Incomplete snapshots are returned unchanged; the caller decides whether to replay them.

    Raises
    ------
    SnapshotError
        Another schema version, a missing or unknown field, or an invalid value.
    """
    fields = dict(document)
    version = fields.pop("schema", None)
    if version != SCHEMA_VERSION:
        raise SnapshotError(
            f"schema: a snapshot of version {SCHEMA_VERSION} was expected, not {version!r}; "
            "read it with the release of Partita that recorded it, or record it again"
        )
    missing = [name for name in _REQUIRED if name not in fields]
    if missing:
        raise SnapshotError(f"missing: {', '.join(missing)}")
    try:
        return _adapter().validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise SnapshotError(_summary(error)) from error


def _summary(error: ValidationError) -> str:
    problems = [
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in error.errors(include_url=False)
    ]
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more
