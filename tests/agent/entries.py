"""Entries of the ledger, as the agent has them."""

from __future__ import annotations

from typing import Any

from partita.agent.allocations import LedgerEntry
from partita.pods.own_claims import own_claim_name
from support.builders import START

__all__ = ["job_entry", "pod_entry"]


def job_entry(job: str = "train", attempt: int = 1, **fields: Any) -> LedgerEntry:
    """The entry of an attempt of a job."""
    own = {"job": job, "job_uid": f"uid-{job}"}
    pod = f"{job}-{attempt}"
    return pod_entry(pod, own_claim_name(pod), **{"uid": f"claim-{job}", **own, **fields})


def pod_entry(pod: str, claim: str, **fields: Any) -> LedgerEntry:
    """The entry of a claim of a Pod; without a job, the Pod is that of another controller."""
    known: dict[str, Any] = {"uid": "uid-claim", "namespace": "team-a", "memory": 1 << 30}
    known |= {"pod_uid": f"pod-{pod}", "since": START}
    return LedgerEntry(name=claim, pod=pod, **{**known, **fields})
