"""Recordings of live decisions: one JSON document per line, in files that may be gzip'ed.

A line is a snapshot in the format of `partita_policies.snapshot_json`, with the decision on it in
the field `decision`. The operator writes such files (`partita run --record`). `partita replay` and
`partita train` read them.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, ClassVar, cast

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from typing_extensions import override

from partita_policies.snapshot_json import SnapshotError, dump_snapshot, load_snapshot
from partita_policies.types import GPU, Amount, Job, Placement, Snapshot

__all__ = [
    "SUFFIXES",
    "Decision",
    "Recorded",
    "RejectedLine",
    "dump_record",
    "load_record",
    "read_recordings",
    "recordings_in",
]

SUFFIXES = (".jsonl", ".jsonl.gz")
"""File name suffixes of recordings."""

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_GPU: TypeAdapter[GPU] = TypeAdapter(GPU)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a snapshot, after the operator's guard."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    policy: str
    """Name of the policy that decided: the active policy or its fallback."""
    placements: tuple[Placement, ...]
    """Started jobs."""
    failure: str = ""
    """Why the active policy did not decide; empty if it did."""
    seconds: Amount = 0.0
    """Decision latency."""


_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One decision of a recording."""

    file: str
    line: int
    snapshot: Snapshot
    decision: Decision


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """A line of a recording that is not replayed, with the reason."""

    file: str
    line: int
    reason: str

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def dump_record(snapshot: Snapshot, decision: Decision) -> Iterator[bytes]:
    """Yield one line of a recording, in pieces.

    A piece is at most one job or one GPU, so that a thread that writes a queue of thousands of
    jobs does not hold the interpreter lock for long.
    """
    rest = dump_snapshot(replace(snapshot, jobs=(), gpus=()))
    del rest["jobs"], rest["gpus"]
    yield json.dumps(rest, allow_nan=False, separators=(",", ":")).encode()[:-1]
    yield b',"decision":' + _DECISION.dump_json(decision)
    yield b',"jobs":['
    for index, job in enumerate(snapshot.jobs):
        yield (b"," if index else b"") + _JOB.dump_json(job)
    yield b'],"gpus":['
    for index, gpu in enumerate(snapshot.gpus):
        yield (b"," if index else b"") + _GPU.dump_json(gpu)
    yield b"]}\n"


def load_record(document: Mapping[str, JsonValue]) -> tuple[Snapshot, Decision]:
    """Read one line of a recording. Incomplete snapshots are returned unchanged.

    Raises
    ------
    SnapshotError
        Another schema version, a missing or unknown field, or an invalid value.
    """
    fields = dict(document)
    decision = fields.pop("decision", None)
    snapshot = load_snapshot(fields)
    if decision is None:
        raise SnapshotError("missing: decision")
    try:
        return snapshot, _DECISION.validate_json(json.dumps(decision), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in ("decision", *first["loc"]))
        raise SnapshotError(f"{where}: {first['msg']}") from error


def read_recordings(paths: Iterable[Path]) -> Iterator[Recorded | RejectedLine]:
    """Read the decisions of files, and of all recordings in folders.

    A line that cannot be read or must not be replayed is a `RejectedLine`: a snapshot that is
    incomplete, damaged or of another schema version, or a last line cut off when the operator was
    killed. The other lines of the file are read.

    Raises
    ------
    OSError
        A file is missing or cannot be opened.
    """
    for file in recordings_in(paths):
        yield from _read(file)


def recordings_in(paths: Iterable[Path]) -> list[Path]:
    """Return the files; each folder is replaced by the recordings in it, sorted by name."""
    found: list[Path] = []
    for path in paths:
        # A hidden file is still being compressed.
        found += (
            sorted(p for p in path.iterdir() if p.name.endswith(SUFFIXES) and p.name[0] != ".")
            if path.is_dir()
            else [path]
        )
    return found


def _read(path: Path) -> Iterator[Recorded | RejectedLine]:
    number = 0
    with _opened(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _line(str(path), number, line)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield RejectedLine(str(path), number + 1, f"the file is damaged from here on: {error}")


def _opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def _line(file: str, number: int, line: bytes) -> Recorded | RejectedLine:
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            return RejectedLine(file, number, "a JSON object was expected: `partita run --record`")
        snapshot, decision = load_record(document)
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            return RejectedLine(
                file, number, "cut off: the operator was ended while it wrote this line"
            )
        if isinstance(error, SnapshotError):
            return RejectedLine(file, number, str(error))
        return RejectedLine(file, number, f"is no JSON: {error}")
    if not snapshot.complete:
        reason = "the snapshot is incomplete: a listing had failed when it was taken"
        return RejectedLine(file, number, reason)
    return Recorded(file, number, snapshot, decision)
