"""Finds processes on the GPU that no allocation covers.

A process belongs to an allocation if its cgroup is that of the Pod of an attempt in the ledger.
Not counted are the MPS server and all else of the server Pod itself, and processes that are seen
for less than `UNKNOWN_AFTER`, or only since the ledger was last read: the Pod of a process that has
just started may be allocated by now, and one of a job that was just released may be ending.

`Terminate` covers processes in Pods alone. A process of the node itself, such as a display server
or a diagnosis of DCGM, is counted and never ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["UNKNOWN_AFTER", "Unknown", "UnknownProcessTracker"]

UNKNOWN_AFTER: Final = 10.0
"""Seconds for which a process must be seen. An assumption: twice the time between two looks at the
ledger."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A process without an allocation."""

    pid: int
    pod: str | None
    """UID of its Pod; None outside Pods."""
    memory: int
    """Bytes."""


class UnknownProcessTracker:
    """The processes of one GPU that no allocation covers."""

    def __init__(self) -> None:
        self.found: tuple[Unknown, ...] = ()
        self._first: dict[int, float] = {}

    def see(
        self,
        at: float,
        memory: Mapping[int, int],
        pods: Mapping[int, str | None],
        known: Iterable[int],
        ledger_read: float | None,
    ) -> None:
        """Look at the processes of the GPU.

        Parameters
        ----------
        at
            Seconds.
        memory
            Bytes by PID, of all processes.
        pods
            UID of each process's Pod; None outside Pods.
        known
            PIDs with an allocation, and our own.
        ledger_read
            When the ledger and the Pods of all that is in it were last read, in seconds; None if
            they never were.
        """
        strangers = memory.keys() - set(known)
        self._first = {pid: self._first.get(pid, at) for pid in strangers}
        self.found = tuple(
            Unknown(pid, pods.get(pid), memory[pid])
            for pid, first in sorted(self._first.items())
            if at - first >= UNKNOWN_AFTER and ledger_read is not None and ledger_read > first
        )
