"""Adds up what is allocated on the GPUs, and what is used of it. No I/O."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from partita.accounting.daily_usage import Amounts, DailyUsage, UsageKey, days_between
from partita.accounting.past_shares import past_shares
from partita.models import Allocation, GPUPartition, GPUServer
from partita.scheduling.ledger import held_in
from partita.scheduling.snapshot import capacity_of_server
from partita.store.state import State
from partita_policies.amounts import share_of

__all__ = ["UsageMeter"]

_GIB = 1 << 30
_PAST_FOR: Final = timedelta(minutes=1)
"""For which the past shares of a partition are not computed again. They change slowly."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """A version of a GPUServer, and how far its allocations are counted, by UID."""

    server: GPUServer
    until: Mapping[str, datetime]


class UsageMeter:
    """Integrates the allocations and the usage in the statuses of the GPUServers over time.

    An allocation counts from its `since` until the GPUServer no longer contains it. Its usage is
    that of the agent's last report. Before `resume` nothing is counted.

    Parameters
    ----------
    state
        The state that the informer maintains.
    by_namespace
        Whether the totals are those of a partition's namespaces, or of the whole partition.
    """

    def __init__(self, state: State, *, by_namespace: bool = False) -> None:
        self._state = state
        self.by_namespace = by_namespace
        self._counted: dict[str, _Counted] = {}
        self._until: datetime | None = None
        self._earlier: dict[date, DailyUsage] = {}
        """Earlier days, as far as they were recorded."""
        self._past: dict[tuple[str, float], tuple[datetime, Mapping[str, float]]] = {}
        """The past shares by partition and half-life, and when they were computed."""
        self.days: dict[date, DailyUsage] = {}
        """The current day, and earlier days that are not forgotten yet."""
        self.totals: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        """What was counted since the process started, by partition and namespace; the namespace is
        empty unless they are told apart. Those without usage since midnight are forgotten."""

    def resume(self, records: Iterable[DailyUsage], now: datetime) -> None:
        """Continue after the last record, also if another process has written it.

        What is still allocated is counted from the end of the record on. Without a record counting
        starts now. Days to come are left out: a clock that was ahead has counted them.
        """
        self._past = {}
        self._earlier = {one.day: one for one in records if one.day <= now.date()}
        last = self._earlier.pop(max(self._earlier), None) if self._earlier else None
        self.days = {} if last is None else {last.day: last}
        self._until = now if last is None else last.until
        self._counted = {}
        for name in self._state.servers:
            self.read_server(name, self._until)

    def read(self, now: datetime) -> None:
        """Count all GPUs until now."""
        if self._until is None:
            return
        for name in self._counted.keys() | self._state.servers.keys():
            self.read_server(name, now)
        self._until = now
        for day in self.days.values():
            day.until = max(day.until, min(now, day.end))

    def read_server(self, name: str, now: datetime) -> None:
        """Count a GPU until now with its previous status, and take over its current one."""
        if self._until is None:
            return
        old, server = self._counted.pop(name, None), self._state.servers.get(name)
        counted = dict[str, datetime]()
        if old is not None:
            counted = {uid: max(until, now) for uid, until in old.until.items()}
            self._count(old, now)
        if server is not None:
            until = {
                uid: counted.get(uid) or max(self._until, allocation.since)
                for uid, allocation in server.status.allocations.items()
            }
            self._counted[name] = _Counted(server, until)

    def forget(self, days: Iterable[date]) -> None:
        """Forget days that are recorded and over."""
        for day in days:
            if (over := self.days.pop(day, None)) is not None:
                self._earlier[day] = over
        used = {self._owner(key) for day in self.days.values() for key in day.amounts}
        for owner in self.totals.keys() - used:
            del self.totals[owner]

    def past_shares(self, partition: GPUPartition, now: datetime) -> Mapping[str, float]:
        """Return the mean dominant share that each namespace had lately; empty if none counts."""
        asked = partition.metadata.name, partition.spec.fairness.half_life
        at, known = self._past.get(asked, (None, {}))
        if at is not None and timedelta() <= now - at < _PAST_FOR:
            return known
        days = (*self._earlier.values(), *self.days.values())
        shares = past_shares(days, partition, self._state, now)
        self._past[asked] = now, shares
        return shares

    def _owner(self, key: UsageKey) -> tuple[str, str]:
        return key.partition, key.namespace if self.by_namespace else ""

    def _count(self, counted: _Counted, until: datetime) -> None:
        server, status = counted.server, counted.server.status
        partition = self._state.partitions.get(server.spec.partition)
        total = status.memory if partition is None else partition.spec.allocatable(status.memory)
        for uid, allocation in status.allocations.items():
            share = min(1.0, allocation.memory / total) if total else 0.0
            share = 1.0 if allocation.alone else share
            use = status.uses.get(uid)
            busy = 0.0
            if use is not None and use.gpu_utilization is not None:
                busy = use.gpu_utilization / 100
            elif use is not None and use.memory:
                busy = share  # it is not measured
            a_second = Amounts(
                share,
                busy,
                allocation.memory / _GIB,
                use.memory / _GIB if use else 0.0,
                _dominant_share(allocation, server, partition),
            )
            key = UsageKey(server.spec.partition, allocation.namespace, allocation.application)
            for day, seconds in days_between(counted.until[uid], until):
                amounts = a_second.times(seconds)
                self._of(day).add(key, amounts)
                self.totals[self._owner(key)] += amounts

    def _of(self, day: date) -> DailyUsage:
        if day not in self.days:
            self.days[day] = DailyUsage(day, datetime.combine(day, time(), UTC))
        return self.days[day]


def _dominant_share(
    allocation: Allocation, server: GPUServer, partition: GPUPartition | None
) -> float:
    """Return the dominant share that an allocation has of its GPU; 0 without a partition."""
    if partition is None:
        return 0.0
    if allocation.alone:
        return 1.0
    return share_of(held_in(allocation), capacity_of_server(server, partition)).share
