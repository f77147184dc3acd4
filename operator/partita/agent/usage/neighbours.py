"""Measures which jobs used the GPU at the same time as a run, and for how long."""

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

from partita.models.profile import Neighbours, SharedRun

__all__ = ["UNKNOWN", "NeighbourTimes", "Times", "shared_run", "undisturbed"]

Job = TypeVar("Job", bound=Hashable)
Times = Mapping[tuple[str, ...], float]
"""Seconds of a run by the applications beside it, as `application_hash`, in ascending order."""

UNKNOWN: Final = ""
"""The application of a job that names none."""
_UNDISTURBED: Final = 0.95
"""Least part of a run without other jobs for its length to count as undisturbed. An assumption: the
rest changes the length by less than runs of one program differ."""
_MOST_COUNTED: Final = 64
"""Groups of neighbours whose times are counted for one run. The rest are counted together, so that
a service that runs for months takes no more memory."""
_MOST_GROUPS: Final = 8
"""Groups of neighbours that are kept of one run: the limit of the resource."""
_LARGEST_GROUP: Final = 16
"""Neighbours in a group, likewise. A profile stays far below the 1.5 MiB that etcd takes."""


class NeighbourTimes(Generic[Job]):
    """The time that each job on the GPU has spent beside which applications."""

    def __init__(self) -> None:
        self._times: dict[Job, dict[tuple[str, ...], float]] = {}

    def add(self, seconds: float, present: Mapping[Job, str]) -> None:
        """Add a time in which these jobs used the GPU, each with its application."""
        if seconds <= 0:
            return  # the clock was set back
        applications = tuple(sorted(present.values()))
        for job, own in present.items():
            at = applications.index(own)
            beside = applications[:at] + applications[at + 1 :]
            times = self._times.setdefault(job, {})
            if beside and beside not in times and len(times) >= _MOST_COUNTED:
                beside = (UNKNOWN,)
            times[beside] = times.get(beside, 0.0) + seconds

    def pop(self, job: Job) -> Times:
        """Return and forget the times of a job that has ended."""
        return self._times.pop(job, {})


def undisturbed(times: Times) -> bool:
    """Return whether a run had the GPU to itself."""
    return times.get((), 0.0) >= _UNDISTURBED * sum(times.values()) > 0


def shared_run(times: Times, duration: float, pod_uid: str = "") -> SharedRun | None:
    """Describe a run beside other jobs; None if it had no neighbour, or an unknown one.

    Times beside jobs without an application are not kept: they cannot be predicted.
    """
    total = sum(times.values())
    groups = [
        Neighbours(part=round(seconds / total, 3), applications=beside)
        for beside, seconds in times.items()
        if 0 < len(beside) <= _LARGEST_GROUP and UNKNOWN not in beside
    ]
    groups.sort(key=lambda group: (-group.part, group.applications))
    if not groups:
        return None
    alone = round(times.get((), 0.0) / total, 3)
    return SharedRun(
        duration=round(duration, 3),
        pod_uid=pod_uid,
        beside=tuple(groups[:_MOST_GROUPS]),
        alone=alone,
    )
