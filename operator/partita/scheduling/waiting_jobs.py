"""The jobs that wait for the GPUs of a partition, and how many of a namespace a cycle considers."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from collections.abc import Set as AbstractSet
from typing import Final

from typing_extensions import override

from partita.scheduling.queue_order import age_order
from partita.scheduling.reasons import Reason, WaitingReason
from partita_policies.types import Job

__all__ = ["BEHIND_OWN_JOBS", "CONSIDERED", "WaitingJobs"]

CONSIDERED: Final = 1000
"""Waiting jobs of a namespace that a cycle considers, so that ten thousand of one namespace do not
delay the decisions about the jobs of others. Slurm has `bf_max_job_user` for this
(https://slurm.schedmd.com/sched_config.html). The number is an assumption: a cycle over so many
takes 10 ms of CPU time."""

BEHIND_OWN_JOBS: Final = WaitingReason(
    Reason.BEHIND_OWN_JOBS,
    f"{CONSIDERED:,} jobs of its namespace wait before it, and no more of a namespace are "
    "considered at a time: it is considered once there are fewer",
)


class WaitingJobs(MutableMapping[str, Job]):
    """The jobs that wait for the GPUs of a partition, by UID.

    Parameters
    ----------
    most
        How many of a namespace are considered.
    """

    def __init__(self, most: int = CONSIDERED) -> None:
        self._most = most
        self._jobs: dict[str, Job] = {}
        self._lines: dict[str, list[tuple[tuple[object, ...], str]]] = {}
        """The jobs of each namespace in the order in which they are considered."""
        self._pushed_back: set[str] = set()
        """UIDs of jobs that may have come behind those that are considered."""

    @override
    def __getitem__(self, uid: str) -> Job:
        return self._jobs[uid]

    @override
    def __setitem__(self, uid: str, job: Job) -> None:
        old = self._jobs.get(uid)
        if old is not None and (old.namespace, age_order(old)) == (job.namespace, age_order(job)):
            self._jobs[uid] = job  # in its place: a profile has changed, and so thousands of jobs
            return
        self.pop(uid, None)
        self._jobs[uid] = job
        line = self._lines.setdefault(job.namespace, [])
        insort(line, (age_order(job), uid))
        if len(line) > self._most:
            self._pushed_back |= {uid, line[self._most][1]}

    @override
    def __delitem__(self, uid: str) -> None:
        job = self._jobs.pop(uid)
        line = self._lines[job.namespace]
        del line[bisect_left(line, (age_order(job), uid))]
        if not line:
            del self._lines[job.namespace]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    @override
    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def namespaces(self) -> AbstractSet[str]:
        """The namespaces of which any job waits."""
        return self._lines.keys()

    def considered(self, kept: Iterable[str] = ()) -> Collection[str]:
        """Return the UIDs of the first jobs of each namespace.

        Parameters
        ----------
        kept
            UIDs of jobs that are considered if they wait, because GPUs are kept for them.
        """
        first = [uid for line in self._lines.values() for _, uid in line[: self._most]]
        return dict.fromkeys([*first, *(uid for uid in kept if uid in self._jobs)])

    def is_full(self, namespace: str) -> bool:
        """Return whether as many jobs of a namespace are considered as may be."""
        return len(self._lines.get(namespace, ())) >= self._most

    def is_behind(self, uid: str) -> bool:
        """Return whether a job waits behind those that are considered."""
        if (job := self._jobs.get(uid)) is None:
            return False
        line = self._lines[job.namespace]
        return len(line) > self._most and (age_order(job), uid) >= line[self._most]

    def newly_behind(self) -> list[str]:
        """Return the UIDs of the jobs that have come behind since the last call."""
        found, self._pushed_back = self._pushed_back, set()
        return [uid for uid in found if self.is_behind(uid)]
