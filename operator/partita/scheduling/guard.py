"""The guard: what may be booked, whatever a policy says.

It owns the invariants of the ledger. A placement that breaks a rule the policy could see makes
the policy's whole answer untrustworthy; one that breaks a rule only we know (a quota, a GPU
held for somebody else) is merely left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from partita.models.partition import Quota
from partita.scheduling.ledger import Held
from partita.scheduling.reasons import Reason, gib
from partita_policies.room import Refusal, Room
from partita_policies.types import GPU, Booking, Job, Placement, Snapshot

__all__ = ["Guard", "Refused", "Verdict", "over_quota"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A placement that is not made."""

    placement: Placement
    why: str
    broken: bool = False
    """The policy could have known better."""
    reason: Reason | None = None
    """Why the job waits on, where only the guard can tell."""


@dataclass(slots=True)
class Verdict:
    """What becomes of a policy's answer."""

    accepted: list[tuple[Job, tuple[str, ...]]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    @property
    def broken(self) -> Refused | None:
        """The first placement that broke a rule which the policy could see."""
        return next((r for r in self.refused if r.broken), None)


def over_quota(job: Job, quota: Quota | None, held: Held, memory: int) -> str:
    """Say which quota a job would exceed; empty when none.

    Parameters
    ----------
    memory
        Bytes that it books in all.
    """
    if quota is None:
        return ""
    if quota.jobs is not None and held.jobs >= quota.jobs:
        return f"{held.jobs} of {quota.jobs} jobs of namespace {job.namespace} run already"
    if quota.memory is not None and held.memory + memory > quota.memory:
        return (
            f"{gib(held.memory)} of {gib(quota.memory)} of namespace {job.namespace} are booked "
            f"already, and this needs {gib(memory)}"
        )
    return ""


class Guard:
    """Checks placements one after another against what is booked by then.

    Parameters
    ----------
    gpus
        The GPUs that may take jobs, as they are now (not as the policy saw them).
    waiting
        The jobs that may be placed, by id.
    quotas
        The namespaces' quotas.
    held
        What the namespaces have booked.
    holds
        GPUs that are held, with the job for which.
    """

    def __init__(
        self,
        gpus: Sequence[GPU],
        waiting: Mapping[str, Job],
        *,
        quotas: Mapping[str, Quota],
        held: Mapping[str, Held],
        holds: Mapping[str, str],
    ) -> None:
        self.gpus = gpus
        self.room = Room(gpus)
        self._waiting = waiting
        self._quotas = quotas
        self._held = {name: Held(h.memory, h.jobs) for name, h in held.items()}
        self._holds = holds
        self._new: dict[str, list[Booking]] = {}

    def check(self, placements: Iterable[Placement], offered: Snapshot) -> Verdict:
        """Go through a policy's answer, in its order, to what it was offered."""
        verdict = Verdict()
        jobs, gpus = {job.id for job in offered.jobs}, {gpu.id for gpu in offered.gpus}
        for placement in placements:
            refusal = self._refusal(placement, jobs, gpus)
            if refusal is not None:
                verdict.refused.append(refusal)
                continue
            job = self._waiting[placement.job]
            self.accept(job, placement.gpus)
            verdict.accepted.append((job, placement.gpus))
        return verdict

    def remaining(self) -> tuple[GPU, ...]:
        """Return the GPUs with what is booked on them by now."""
        return tuple(
            replace(gpu, bookings=(*gpu.bookings, *self._new[gpu.id]))
            if gpu.id in self._new
            else gpu
            for gpu in self.gpus
        )

    def booked_memory(self, job: Job, gpus: Sequence[str]) -> int:
        """Bytes that a job books in all: a job that is alone books whole GPUs."""
        if job.alone:
            return sum(self.room[gpu].gpu.memory for gpu in gpus)
        return job.memory * len(gpus)

    def quota_left(self, job: Job, memory: int) -> str:
        """Say which quota a job would exceed now; empty when none."""
        held = self._held.get(job.namespace, Held())
        return over_quota(job, self._quotas.get(job.namespace), held, memory)

    def accept(self, job: Job, gpus: Sequence[str]) -> None:
        """Book in memory what was found to be right."""
        memory = self.booked_memory(job, gpus)
        self.room.take(job, gpus)
        for gpu in gpus:
            self._new.setdefault(gpu, []).append(self._as_booking(job, gpu))
        held = self._held.setdefault(job.namespace, Held())
        held.memory += memory
        held.jobs += 1

    def _as_booking(self, job: Job, gpu: str) -> Booking:
        return Booking(
            job=job.id,
            memory=self.booked_memory(job, (gpu,)),
            application=job.application,
            namespace=job.namespace,
            thread_percent=job.thread_percent,
            slots=job.slots,
            clients=job.clients,
            alone=job.alone,
            priority=job.priority,
            duration=job.duration,
            profile=job.profile,
        )

    def _refusal(
        self, placement: Placement, jobs: AbstractSet[str], gpus: AbstractSet[str]
    ) -> Refused | None:
        if placement.job not in jobs:
            return Refused(placement, f"there is no job {placement.job}", broken=True)
        if unknown := set(placement.gpus) - gpus:
            return Refused(placement, f"there is no GPU {min(unknown)}", broken=True)
        job = self._waiting.get(placement.job)
        if job is None:
            # It was suspended, deleted or placed while the policy thought.
            return Refused(placement, "the job waits no longer")
        why = self.room.why_not_together(job, placement.gpus)
        if why is Refusal.UNKNOWN:
            return Refused(placement, "a GPU is there no longer")
        if why is not None:
            where = ", ".join(placement.gpus) or "no GPU"
            return Refused(placement, f"{job.name} cannot have {where}: {why.value}", broken=True)
        for gpu in placement.gpus:
            if self._holds.get(gpu, job.id) != job.id:
                return Refused(placement, f"{gpu} is held for another job", reason=Reason.GPU_HELD)
        quota = self.quota_left(job, self.booked_memory(job, placement.gpus))
        if quota:
            return Refused(placement, quota, reason=Reason.QUOTA_EXCEEDED)
        return None
