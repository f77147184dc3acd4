"""History of the last hours of each slice: what is allocated and what is used."""

from array import array
from datetime import datetime

from partita.informer.state import State
from partita.models.quantities import MEBI

__all__ = ["KEPT", "UseHistory", "UsePoint"]

KEPT = 720
"""Most samples of one slice: three hours, at one each 15 s. They take 10 KB."""
_UNKNOWN = 255
"""Percent of the time if it is not measured."""

UsePoint = tuple[int, int, int, int | None]
"""Unix time; allocated bytes; used bytes; percent of the time in which its kernels ran, None if it
is not measured."""


class _Samples:
    """The samples of one slice, in a compact form: a cluster may have thousands of slices."""

    def __init__(self) -> None:
        self.numbers = array("I")
        """Unix time, allocated MiB, used MiB, and percent of each sample."""

    def add(self, *numbers: int) -> None:
        self.numbers.extend(numbers)
        del self.numbers[: -4 * KEPT]

    def points(self) -> list[UsePoint]:
        found = []
        for at in range(0, len(self.numbers), 4):
            time, allocated, used, percent = self.numbers[at : at + 4]
            busy = None if percent == _UNKNOWN else percent
            found.append((time, allocated * MEBI, used * MEBI, busy))
        return found


class UseHistory:
    """The samples of each slice. They begin when the console starts."""

    def __init__(self) -> None:
        self._of: dict[str, _Samples] = {}

    def sample(self, state: State, now: datetime) -> None:
        """Add the samples of this moment; forget slices that were released."""
        there = set()
        for server in state.servers.values():
            usage = server.status.usage
            for uid, entry in server.status.allocations.items():
                use = usage.jobs.get(uid) if usage is not None else None
                if use is None:
                    continue
                there.add(uid)
                percent = _UNKNOWN if use.gpu_utilization is None else use.gpu_utilization
                self._of.setdefault(uid, _Samples()).add(
                    int(now.timestamp()), entry.memory // MEBI, use.memory // MEBI, percent
                )
        for uid in self._of.keys() - there:
            del self._of[uid]

    def of(self, uid: str) -> list[UsePoint]:
        """Return the samples of a slice; empty if there is none."""
        found = self._of.get(uid)
        return found.points() if found is not None else []
