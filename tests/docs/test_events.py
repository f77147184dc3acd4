"""docs/events.md has every reason that Pods with claims can get."""

from __future__ import annotations

import re

from docs.pages import ROOT
from partita.scheduling.reasons import Reason

OPERATOR = ROOT / "operator" / "partita"
SOURCES = [
    *(OPERATOR / "claims").glob("*.py"),
    OPERATOR / "scheduling" / "allocated_claim.py",
    OPERATOR / "process" / "partition_cycles.py",
    OPERATOR / "partitions" / "claim_templates.py",
]
WRITTEN = re.compile(
    r'(?:Eviction\(|(?:warn|inform|emit)\(\s*(?:subject|about),)\s*"([A-Z][A-Za-z]+)"'
)
OF_JOBS = {"AdmissionWebhookFailed", "Ending", "PodForbidden", "Suspended"}
"""Reasons that no Pod with a claim has."""
NO_EVENT = {"Allocated", "Scheduling"}
"""Reasons for which no Event is written."""


def documented() -> set[str]:
    text = (ROOT / "docs" / "events.md").read_text()
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_every_reason_of_a_claim_is_described() -> None:
    assert {reason.value for reason in Reason} - OF_JOBS - NO_EVENT <= documented()


def test_every_event_that_the_operator_writes_about_a_pod_is_described() -> None:
    written = {reason for path in SOURCES for reason in WRITTEN.findall(path.read_text())}
    assert {"MemoryRaised", "GPUFault", "NotEvicted", "NoClaimTemplate"} <= written
    assert written <= documented()
