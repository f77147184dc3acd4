"""Sums of the records of usage, for `partita usage`. No I/O."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from partita.accounting.daily_usage import Amounts, DailyUsage

__all__ = ["UsageReport", "usage_report"]


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Amounts by the requested names.

    Parameters
    ----------
    by
        Fields of `UsageKey`.
    rows
        Their values with the amounts, the most allocated GPU time first.
    total
        The sum of all rows.
    """

    by: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], Amounts], ...]
    total: Amounts


def usage_report(
    records: Iterable[DailyUsage], by: Sequence[str], first: date, last: date
) -> UsageReport:
    """Add up records.

    Parameters
    ----------
    by
        Fields of `UsageKey` that distinguish the rows.
    first, last
        The days that count, in UTC.
    """
    sums: defaultdict[tuple[str, ...], Amounts] = defaultdict(Amounts)
    total = Amounts()
    for record in records:
        if first <= record.day <= last:
            for key, amounts in record.amounts.items():
                sums[tuple(getattr(key, name) for name in by)] += amounts
                total += amounts
    rows = sorted(sums.items(), key=lambda row: (-row[1].gpu_seconds_allocated, row[0]))
    return UsageReport(tuple(by), tuple(rows), total)
