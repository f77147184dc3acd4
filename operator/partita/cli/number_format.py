"""Formats numbers for tables."""

from datetime import datetime
from math import inf

__all__ = ["duration", "gib", "milliseconds", "percent", "seconds", "starts_in", "times"]


def duration(seconds: float) -> str:
    """Format seconds in at most two units: `8s`, `3m12s`, `2h05m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def starts_in(earliest: datetime, latest: datetime | None, now: datetime) -> str:
    """Format when something is expected to start: `in 3m to 8m05s`, `within 8m05s`, `overdue`.

    If that is now: `at once`. Without a latest time: `in 3m or later`, or `later`.
    """
    first = (earliest - now).total_seconds()
    if latest is None:
        return f"in {duration(first)} or later" if first > 0 else "later"
    last = (latest - now).total_seconds()
    if last <= 0:
        return "overdue" if last else "at once"
    return f"in {duration(first)} to {duration(last)}" if first > 0 else f"within {duration(last)}"


def gib(memory: int) -> str:
    """Format bytes as gibibytes without the unit."""
    return f"{memory / (1 << 30):.1f}"


def seconds(value: float) -> str:
    """Format a duration: `0 s`, `0.25 s`, `7.5 s`, `4,807 s`; `never` if it is infinite."""
    if value == inf:
        return "never"
    if value < 1:
        return f"{value:.2f} s" if value else "0 s"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def milliseconds(value: float) -> str:
    """Format a short time, given in seconds: `0.12 ms`, `34 ms`, `1.2 s`."""
    if value >= 1:
        return f"{value:.1f} s"
    amount = value * 1000
    return f"{amount:.0f} ms" if amount >= 10 else f"{amount:.2f} ms"


def percent(share: float) -> str:
    """Format a fraction of 1 as a percentage: `97.5 %`."""
    return f"{100 * share:.1f} %"


def times(value: float) -> str:
    """Format a ratio: `1.27`."""
    return f"{value:.2f}"
