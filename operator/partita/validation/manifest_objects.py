"""Objects in files, what is found in them, and what is known for the checks across files."""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import override

from partita.models import GPUPartition, SharedGPUJob
from partita.models.errors import text_path
from partita.scheduling.request import Request
from partita.store.claim_view import ClaimView
from partita.validation.field_errors import Path
from partita.validation.yaml_documents import Document

__all__ = [
    "Finding",
    "KnownClaim",
    "KnownObjects",
    "ManifestObject",
    "mapping",
    "mappings",
    "meant",
    "text_of",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning, with its place."""

    severity: Literal["error", "warning"]
    file: str
    """`<stdin>` for -."""
    line: int
    kind: str
    """Empty if the finding is about the file."""
    namespace: str
    name: str
    path: str
    """The field, such as spec.gpuMemory."""
    message: str

    @property
    def warning(self) -> bool:
        """Whether it may be intended."""
        return self.severity == "warning"

    @override
    def __str__(self) -> str:
        about = [f"{self.kind}/{self.name or '?'}"] if self.kind else []
        said = f"warning: {self.message}" if self.warning else self.message
        return ": ".join([f"{self.file}:{self.line}", *about, *filter(None, [self.path]), said])


@dataclass(slots=True)
class ManifestObject:
    """One object of a file, and its location in the file."""

    file: str
    document: Document
    base: Path
    body: dict[str, Any]

    @property
    def namespace(self) -> str:
        """Its namespace; empty if none is written."""
        return text_of(mapping(self.body.get("metadata")).get("namespace"))

    def finding(self, path: Path, message: str, *, warning: bool = False) -> Finding:
        """Return a finding about a place in it."""
        meta = mapping(self.body.get("metadata"))
        return Finding(
            severity="warning" if warning else "error",
            file=self.file,
            line=self.document.line((*self.base, *path)),
            kind=text_of(self.body.get("kind")),
            namespace=self.namespace,
            name=text_of(meta.get("name") or meta.get("generateName")),
            path=text_path(path),
            message=message,
        )


@dataclass(frozen=True, slots=True)
class KnownClaim:
    """A claim, or a template of claims, of a device class of Partita."""

    found: ManifestObject
    kind: str
    view: ClaimView


@dataclass(slots=True)
class KnownObjects:
    """The valid objects of the files, for the checks across files."""

    partitions: defaultdict[str, list[GPUPartition]] = field(
        default_factory=lambda: defaultdict(list)
    )
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    jobs: list[tuple[ManifestObject, SharedGPUJob]] = field(default_factory=list)
    claims: list[KnownClaim] = field(default_factory=list)
    workloads: list[ManifestObject] = field(default_factory=list)
    """Objects of other kinds, which may have Pods."""
    requests: list[tuple[ManifestObject, Request]] = field(default_factory=list)
    """What Pods ask for, once they were checked."""

    def absent(self, partition: str) -> str:
        """Say that a partition is not in the files."""
        there = ", ".join(sorted(self.partitions))
        return f"no GPUPartition {partition} is among these files (there is: {there})"

    def claim(self, kind: str, name: str, namespace: str) -> KnownClaim | None:
        """Return the claim or template of this name; a missing namespace matches any."""
        for claim in self.claims:
            meta, here = claim.found.body.get("metadata") or {}, claim.found.namespace
            if (claim.kind, meta.get("name")) == (kind, name) and (
                not here or not namespace or here == namespace
            ):
                return claim
        return None


def meant(word: str, known: Iterable[str], told: str = "") -> str:
    """Return a suggestion for a misspelt word, or else the list of known words."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    if close:
        return f": did you mean {by_lower[close[0]]}?"
    return f" (known: {told})" if told else ""


def text_of(value: Any) -> str:
    """Return a string; empty for any other value."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the mappings in a list, with their indexes; nothing for any other value."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield index, item
