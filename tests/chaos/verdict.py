"""What must hold of a recorded history, beside what `support.record` judges. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from chaos.plan import JobPlan
from support.record import Body, Record, Version

__all__ = ["LeaseView", "Written", "servers_left_over", "written_without_lease", "wrong_ends"]


HEARD_WITHIN = 1.0
"""Seconds by which what we see of a request may be later than when it was sent: everything goes
through one event loop of ours, on a busy machine."""


@dataclass(frozen=True)
class LeaseView:
    """Who held the Lease from a moment on, by our clock."""

    at: float
    holder: str
    renewed: str = ""
    """When it was last renewed, as its holder says."""

    @classmethod
    def of(cls, body: Body | None, at: float) -> LeaseView:
        """Read a Lease; one that is not there is held by nobody."""
        spec = (body or {}).get("spec") or {}
        return cls(at, spec.get("holderIdentity") or "", spec.get("renewTime") or "")


@dataclass(frozen=True)
class Written:
    """A write that took effect: when it came, whose it was.

    Attributes
    ----------
    woken
        When its writer was woken after another had taken its Lease; None if it never slept so.
    """

    at: float
    by: str
    kind: str
    woken: float | None = None


def lease_views(leases: Iterable[Sequence[Version]]) -> list[LeaseView]:
    """Return who held the Lease, in order."""
    versions = sorted((v for life in leases for v in life), key=lambda v: v.number)
    return [LeaseView.of(None if v.kind == "DELETED" else v.body, v.at) for v in versions]


def written_without_lease(
    views: Sequence[LeaseView], writes: Iterable[Written], lasts: float
) -> Iterator[str]:
    """Name writes by whom the Lease had left.

    Who was robbed of it by hand may go on until it looks again, at most for as long as his last
    renewal lasts. One that was put to sleep for longer than that was silent; what comes from it
    was sent after it woke.

    Parameters
    ----------
    lasts
        Seconds of the Lease.
    """
    for write in writes:
        if write.kind.endswith(" leases"):
            continue  # that is how it is got
        if write.woken is not None and write.at >= write.woken and not _again(views, write):
            yield f"{write.by} slept past its Lease, woke, and did {write.kind}"
            continue
        mine = [v.at for v in views if v.holder == write.by and v.at <= write.at + HEARD_WITHIN]
        if not mine or write.at > mine[-1] + lasts + HEARD_WITHIN:
            yield f"{write.by} did {write.kind} without the Lease"


def _again(views: Sequence[LeaseView], write: Written) -> bool:
    """Tell whether a sleeper got the Lease anew before it wrote: its holder may be gone, too."""
    return any(
        view.holder == write.by and (write.woken or 0) <= view.at <= write.at + HEARD_WITHIN
        for view in views
    )


def wrong_ends(record: Record, jobs: Iterable[JobPlan]) -> Iterator[str]:
    """Name the jobs that are not at their right end, with how they stand."""
    for job in jobs:
        body = record.get("sharedgpujobs", job.name, job.team)
        if problem := _wrong_end(job, body):
            yield f"{job.team}/{job.name} ({job.kind}) {problem}"


def _wrong_end(job: JobPlan, body: Body | None) -> str:
    if body is None:
        return "" if job.end == "Gone" else "is gone"
    status = body.get("status") or {}
    said = f"{status.get('phase')}, {status.get('reason')}: {status.get('message')}"
    if status.get("phase") != job.end:
        return f"must end as {job.end} and is {said}"
    outcomes = Counter(a.get("outcome") for a in status.get("attempts", []))
    if job.kind == "too-large" and (status.get("reason") != "NeverFits" or outcomes):
        return f"can never fit and is {said} with {dict(outcomes)}"
    if job.kind == "late" and status.get("reason") != "DeadlineExceeded":
        return f"must exceed its deadline and is {said}"
    if job.kind == "stuck" and status.get("reason") != "NotStarted":
        return f"cannot start and is {said}"
    wanted = {"Failed": job.failures, "OutOfMemory": job.refusals, "NotStarted": job.not_started}
    found = {outcome: outcomes[outcome] for outcome in wanted}
    return f"must have had {wanted} and had {found}" if found != wanted else ""


def servers_left_over(record: Record) -> list[str]:
    """Name GPUServers and server Pods that are there though no partition is."""
    servers = [body["metadata"]["name"] for body in record.all("gpuservers")]
    pods = [
        body["metadata"]["name"]
        for body in record.all("pods")
        if (body["metadata"].get("labels") or {}).get("partita.dev/component") == "server"
    ]
    return [f"GPUServer {name} is left" for name in servers] + [
        f"server Pod {name} is left" for name in pods
    ]
