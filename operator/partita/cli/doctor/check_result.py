"""What a check of `partita doctor` found."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

__all__ = [
    "CheckResult",
    "CheckStatus",
    "DoctorReport",
    "not_applicable",
    "not_checked",
    "ok",
    "problem",
    "summary",
]


class CheckStatus(StrEnum):
    """How a check ended."""

    OK = "OK"
    PROBLEM = "Problem"
    NOT_APPLICABLE = "Not applicable"
    """The cluster does not have what the check is about, and does not need it."""
    NOT_CHECKED = "Not checked"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    check: str
    """Its name; empty until it is given by `of`."""
    status: CheckStatus
    found: str
    remedy: str = ""
    """What to do; empty if nothing is to be done."""
    node: str = ""
    """The node that was checked; empty for the cluster."""

    def of(self, check: str, node: str = "") -> "CheckResult":
        """Return it as the result of this check of a node or of the cluster."""
        return replace(self, check=check, node=node)


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The results of all checks."""

    partita: str
    """The version of the command."""
    time: datetime
    checks: list[CheckResult]
    gpu: dict[str, Any]
    """What the test program read from the driver; empty if it did not run."""


def ok(found: str) -> CheckResult:
    """Return the result of a met requirement."""
    return CheckResult("", CheckStatus.OK, found)


def problem(found: str, remedy: str) -> CheckResult:
    """Return the result of something that keeps Partita from working."""
    return CheckResult("", CheckStatus.PROBLEM, found, remedy)


def not_applicable(found: str, remedy: str = "") -> CheckResult:
    """Return the result for something that the cluster does not have."""
    return CheckResult("", CheckStatus.NOT_APPLICABLE, found, remedy)


def not_checked(found: str, remedy: str = "") -> CheckResult:
    """Return the result of a check that was not made, with the reason."""
    return CheckResult("", CheckStatus.NOT_CHECKED, found, remedy)


def summary(results: Iterable[CheckResult]) -> str:
    """Return one line: how many checks ended how."""
    found = [result.status for result in results]
    counts = [f"{found.count(status)} {status}" for status in CheckStatus if status in found]
    return ", ".join(counts)
