"""The usage of one day (UTC): amounts by partition, namespace and application. No I/O."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, date, datetime, time, timedelta
from io import StringIO
from typing import Any, NamedTuple, Self

from partita.models.quantities import format_time, parse_time

__all__ = [
    "MAX_ROWS",
    "OTHERS",
    "Amounts",
    "DailyUsage",
    "UsageKey",
    "UsageReport",
    "UsageRow",
    "days_between",
    "usage_csv",
]

OTHERS = "(others)"
"""Replaces applications, and then namespaces, for which a day has no more rows. It is no valid name
of either."""
MAX_ROWS = 1000
"""Most applications of a day with a row of their own; `MAX_ROWS` further rows are for the others of
a namespace. With a name of 253 characters a row has about 450 bytes. A ConfigMap holds 1 MiB: https://kubernetes.io/docs/concepts/configuration/configmap/."""
_DIGITS = 3


class UsageKey(NamedTuple):
    """To whom usage belongs."""

    partition: str
    namespace: str
    application: str
    """Empty if the job or claim names none."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of GPU time and GPU memory."""

    gpu_seconds_allocated: float = 0.0
    """The allocated share of the GPU times seconds. The share is that of the allocatable memory, or
    1 for a GPU that is allocated to one job alone. So the shares of a GPU add up to at most 1."""
    gpu_seconds_used: float = 0.0
    """GPU utilization (1 is 100 %) times seconds, as measured by the agent."""
    gib_seconds_allocated: float = 0.0
    """Allocated GPU memory (GiB) times seconds."""
    gib_seconds_used: float = 0.0
    """GPU memory in use (GiB) times seconds, as measured by the agent."""
    dominant_seconds_allocated: float = 0.0
    """The dominant share of the GPU times seconds: the largest of its shares of the memory, the
    places and the MPS clients."""

    def __add__(self, other: "Amounts") -> "Amounts":
        """Add each amount."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Amounts(*(mine + its for mine, its in pairs))

    def times(self, factor: float) -> "Amounts":
        """Multiply each amount."""
        return Amounts(*(amount * factor for amount in astuple(self)))


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Amounts of a namespace, an application or a partition; null is what they are not split by."""

    amounts: Amounts
    namespace: str | None = None
    application: str | None = None
    """Empty for jobs and claims that name none."""
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Allocated and used GPU time and GPU memory."""

    since: date
    """The first day, in UTC."""
    until: date
    """The last day."""
    usage: list[UsageRow]
    """The most allocated GPU time first."""
    total: Amounts


def usage_csv(names: Sequence[str], rows: Iterable[tuple[Sequence[str], Amounts]]) -> str:
    """Return amounts as CSV.

    Parameters
    ----------
    names
        What the texts of a row mean.
    """
    text, rows = StringIO(), [*rows]
    # By itself Python quotes no carriage return, and then cannot read it.
    odd = any("\r" in name for key, _ in rows for name in key)
    writer = csv.writer(
        text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    )
    writer.writerow([*names, *(f.name for f in fields(Amounts))])
    for key, amounts in rows:
        writer.writerow([*key, *(round(amount, _DIGITS) for amount in astuple(amounts))])
    return text.getvalue()


@dataclass(slots=True)
class DailyUsage:
    """The usage of one day, up to a time.

    Parameters
    ----------
    day
        The day, in UTC.
    until
        Everything before this time is counted.
    resource_version
        The version of its ConfigMap; empty if it has none yet.
    """

    day: date
    until: datetime
    amounts: dict[UsageKey, Amounts] = field(default_factory=dict)
    resource_version: str = ""

    @property
    def end(self) -> datetime:
        """The end of the day."""
        return _midnight_after(self.day)

    def add(self, key: UsageKey, amounts: Amounts) -> None:
        """Add amounts, if necessary to the other applications or namespaces of the partition."""
        if key not in self.amounts and len(self.amounts) >= MAX_ROWS:
            key = key._replace(application=OTHERS)
        if key not in self.amounts and len(self.amounts) >= 2 * MAX_ROWS:
            key = key._replace(namespace=OTHERS)
        self.amounts[key] = self.amounts.get(key, Amounts()) + amounts

    def dump(self) -> dict[str, str]:
        """Return the data of its ConfigMap."""
        return {
            "day": self.day.isoformat(),
            "until": format_time(self.until),
            "usage.csv": usage_csv(UsageKey._fields, sorted(self.amounts.items())),
        }

    @classmethod
    def parse(cls, config_map: dict[str, Any]) -> Self:
        """Read a ConfigMap.

        Raises
        ------
        ValueError
            If `dump` did not write it.
        """
        try:
            data, version = config_map["data"], config_map["metadata"]["resourceVersion"]
            rows = csv.DictReader(StringIO(data["usage.csv"]), strict=True)
            amounts = {
                UsageKey(*(row[name] for name in UsageKey._fields)): Amounts(
                    *(float(row[f.name]) for f in fields(Amounts))
                )
                for row in rows
            }
            day, until = date.fromisoformat(data["day"]), parse_time(data["until"])
            return cls(day, until, amounts, version)
        except (KeyError, TypeError, csv.Error) as error:
            raise ValueError(f"no record of a day's usage: {error!r}") from error


def days_between(start: datetime, end: datetime) -> Iterator[tuple[date, float]]:
    """Yield the days (UTC) from `start` to `end`, and how many seconds of each lie between them."""
    while start < end:
        day = start.astimezone(UTC).date()
        stop = min(end, _midnight_after(day))
        yield day, (stop - start).total_seconds()
        start = stop


def _midnight_after(day: date) -> datetime:
    return datetime.combine(day + timedelta(days=1), time(), UTC)
