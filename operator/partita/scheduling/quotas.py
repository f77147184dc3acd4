"""What the quota of a namespace allows it."""

from collections.abc import Mapping
from math import ceil

from partita.models.partition import Quota
from partita.scheduling.ledger import Held
from partita.scheduling.reasons import gib
from partita_policies.amounts import GPUAmounts
from partita_policies.types import Job

__all__ = [
    "RESOURCE_NAMES",
    "over_guarantees",
    "over_memory_quota",
    "over_quota",
    "over_share",
]

RESOURCE_NAMES = {"places": "places", "clients": "MPS clients"}
"""What resources without a unit are called in messages."""


def over_quota(job: Job, quota: Quota | None, held: Held, memory: int) -> str:
    """Return a message about the quota that a job would exceed; empty if there is none.

    Parameters
    ----------
    memory
        Bytes that the job allocates in total.
    """
    if quota is None:
        return ""
    if quota.jobs is not None and held.jobs >= quota.jobs:
        return f"{held.jobs} of {quota.jobs} jobs of namespace {job.namespace} run already"
    return over_memory_quota(job.namespace, quota, held, memory)


def over_memory_quota(namespace: str, quota: Quota | None, held: Held, memory: int) -> str:
    """Return a message if so many bytes more exceed the quota of a namespace; else empty."""
    has = held.amounts.memory
    if quota is None or quota.memory is None or has + memory <= quota.memory:
        return ""
    return (
        f"{gib(has)} of {gib(quota.memory)} of namespace {namespace} are allocated "
        f"already, and this needs {gib(memory)}"
    )


def over_share(job: Job, quota: Quota | None, held: Held, total: GPUAmounts) -> str:
    """Return a message about the places or MPS clients that a job would exceed; else empty.

    Many small jobs, or few with many processes, could otherwise take whole GPUs within a small
    quota of memory. So this quota is also one of places and clients: the same share of those of the
    partition, rounded up. `jobs` and `processes` of the quota replace these shares.

    Parameters
    ----------
    total
        What the GPUs of the partition have.
    """
    if quota is None or not total.memory:
        return ""
    places, clients = None, quota.processes
    if quota.memory is not None:
        if quota.jobs is None:
            places = ceil(quota.memory * total.places / total.memory)
        if clients is None:
            share = ceil(quota.memory * total.clients / total.memory)
            clients = max(share, quota.jobs or 0)
    for has, needs, most, what, remedy in (
        (held.amounts.places, job.slots, places, "places", "jobs"),
        (held.amounts.clients, job.clients, clients, RESOURCE_NAMES["clients"], "processes"),
    ):
        if most is not None and has + needs * job.gpus > most:
            return (
                f"{has} of {most} {what} of namespace {job.namespace} are allocated already, and "
                f"this needs {needs * job.gpus}: an administrator may set quotas[].{remedy}"
            )
    return ""


def over_guarantees(
    job: Job, needed: int, lasting: Mapping[str, int], quotas: Mapping[str, Quota], total: int
) -> str:
    """Return a message if a lasting job would borrow what others are guaranteed; else empty.

    Nobody can get back what a service has borrowed: it is not preempted for jobs.

    Parameters
    ----------
    needed
        Bytes that it takes.
    lasting
        Bytes of lasting jobs by namespace.
    total
        Bytes of the partition.
    """
    guaranteed = {name: quota.guaranteed or 0 for name, quota in quotas.items()}
    free = total - sum(guaranteed.values())
    if free == total:
        return ""
    after = {**lasting, job.namespace: lasting.get(job.namespace, 0) + needed}
    borrowed = sum(max(0, held - guaranteed.get(name, 0)) for name, held in after.items())
    if after[job.namespace] <= guaranteed.get(job.namespace, 0) or borrowed <= free:
        return ""
    return (
        f"services may have {gib(max(0, free))} of GPU memory that is guaranteed to nobody "
        f"(quotas[].guaranteed), and would have {gib(borrowed)} of it with this one: request less, "
        "scale another service down, or guarantee less"
    )
