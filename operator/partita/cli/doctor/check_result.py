"""What a check of `partita doctor` found."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CheckResult",
    "CheckStatus",
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
    status: CheckStatus
    found: str
    remedy: str = ""
    """What to do; empty if nothing is to be done."""
    node: str = ""
    """The node that was checked; empty for the cluster."""


def ok(check: str, found: str, *, node: str = "") -> CheckResult:
    """Return the result of a met requirement."""
    return CheckResult(check, CheckStatus.OK, found, node=node)


def problem(check: str, found: str, remedy: str, *, node: str = "") -> CheckResult:
    """Return the result of something that keeps Partita from working."""
    return CheckResult(check, CheckStatus.PROBLEM, found, remedy, node)


def not_applicable(check: str, found: str, remedy: str = "", *, node: str = "") -> CheckResult:
    """Return the result for something that the cluster does not have."""
    return CheckResult(check, CheckStatus.NOT_APPLICABLE, found, remedy, node)


def not_checked(check: str, found: str, remedy: str = "", *, node: str = "") -> CheckResult:
    """Return the result of a check that was not made, with the reason."""
    return CheckResult(check, CheckStatus.NOT_CHECKED, found, remedy, node)


def summary(results: Iterable[CheckResult]) -> str:
    """Return one line: how many checks ended how."""
    found = [result.status for result in results]
    counts = [f"{found.count(status)} {status}" for status in CheckStatus if status in found]
    return ", ".join(counts)
