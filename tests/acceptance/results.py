"""What a check found, and the whole report, in plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from acceptance.bench import Bench

__all__ = [
    "CannotRunError",
    "Check",
    "Findings",
    "Outcome",
    "Report",
    "Requirement",
    "Result",
    "Table",
    "Unmet",
]


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"
    NOT_APPLICABLE = "not applicable"
    """This driver or GPU does not have what the check is about."""


class CannotRunError(Exception):
    """Something that a check needs is not there; says what."""


class Unmet(NamedTuple):
    """A requirement that the machine does not meet."""

    outcome: Outcome
    reason: str


Requirement = Callable[["Bench"], Unmet | None]
"""Returns None if the machine meets it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Figures in rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]


@dataclass(slots=True)
class Findings:
    """Collects what a check measures, so that it is kept even when the check breaks off."""

    figures: dict[str, Any] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Parts that could not be run."""

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Keep a table."""
        self.tables.append(Table(title, tuple(header), tuple(tuple(row) for row in rows)))

    def expect(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001
        """Fail the check unless this holds; it goes on all the same."""
        if not holds:
            self.failures.append(otherwise)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to find out."""

    name: str
    done: str
    """What is done."""
    expected: str
    run: Callable[[Bench, Findings], None]
    requires: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a check."""

    check: str
    done: str
    expected: str
    outcome: Outcome
    reason: str = ""
    """Why it failed or was not run."""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()


@dataclass(slots=True)
class Report:
    """All of a run."""

    date: str
    gpu: str = ""
    driver: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    """Why nothing at all could be run."""
    results: list[Result] = field(default_factory=list)

    @property
    def code(self) -> int:
        """Exit code: 0 only if every check that applies passed; 2 if nothing could be run."""
        if self.absent:
            return 2
        good = {Outcome.PASSED, Outcome.NOT_APPLICABLE}
        return int(not self.results or any(r.outcome not in good for r in self.results))
