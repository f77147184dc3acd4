"""docs/events.md has every reason of jobs and of Pods with claims."""

from __future__ import annotations

import re

from docs.pages import ROOT
from partita.models import Outcome
from partita.scheduling.reasons import Reason

PAGE = ROOT / "docs" / "events.md"
OPERATOR = ROOT / "operator" / "partita"
WRITTEN = re.compile(
    r"(?:Eviction\(|UserEvent\(|(?:warn|inform|emit)\(\s*(?:\w+\.)?(?:subject|about|job|found),)"
    r'\s*"([A-Z][A-Za-z]+)"'
)
NOT_SHOWN = {"Allocated", "Scheduling", "Succeeded", "Unreadable"}
"""What needs no explanation, and `Unreadable`, which its runbook explains."""


def documented() -> set[str]:
    """Reasons in the first column of a row, of which it may have several."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE.read_text(), re.MULTILINE)
    return {reason.strip("`") for row in rows for reason in row.split(", ")}


def test_every_reason_to_wait_and_every_outcome_is_described() -> None:
    assert {*Reason, *Outcome} - NOT_SHOWN <= documented()


def test_every_event_that_the_operator_writes_about_a_job_or_a_pod_is_described() -> None:
    written = {r for path in OPERATOR.rglob("*.py") for r in WRITTEN.findall(path.read_text())}
    assert {"MemoryRaised", "GPUFault", "NotEvicted", "NoClaimTemplate", "Finished"} <= written
    assert written - NOT_SHOWN <= documented()
