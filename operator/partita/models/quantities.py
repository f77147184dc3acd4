"""Quantities, durations and times: parsed, formatted and added."""

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_UP, Context, Decimal, Overflow
from functools import lru_cache
from math import ceil

__all__ = [
    "MAX_AMOUNT",
    "MEBI",
    "QUANTITY_LIMIT",
    "format_duration",
    "format_memory",
    "format_time",
    "later",
    "mebibytes",
    "parse_amount",
    "parse_duration",
    "parse_memory",
    "parse_quantity",
    "parse_time",
    "seconds_since",
]

MEBI = 1 << 20
QUANTITY_LIMIT = (1 << 63) - 1
"""No quantity reaches it. Kubernetes takes every larger one for this one (`maxAllowed` in
k8s.io/apimachinery/pkg/api/resource/amount.go), so a rule could not tell them apart."""

_LONGEST_QUOTE = 40
MAX_AMOUNT = 1 << 60
"""Largest amount of a resource: sums of a few stay within 64 bits."""

_FIRST_YEAR, _LAST_YEAR = 1000, 2999
"""With the longest duration added (4,566 years) a time is one that Python can hold."""

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{s: Decimal(1000) ** i for i, s in enumerate("kMGTPE", start=1)},
    **{f"{s}i": Decimal(1024) ** i for i, s in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE])?)"
)
# Digits beyond these are rounded up, as Kubernetes rounds what is below a billionth.
_ARITHMETIC = Context(prec=40, rounding=ROUND_UP, Emin=-99, Emax=99, traps=[Overflow])
# At most 7 digits: even four parts of them, added to a time, make a time that Python can hold.
_DURATION_PART = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)(ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern}){{1,4}}")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def parse_memory(value: object) -> int:
    """Parse a Kubernetes quantity as bytes, rounded up.

    Parameters
    ----------
    value
        `4Gi`, `512Mi`, `1e9`, or a number of bytes.

    Raises
    ------
    ValueError
        It is not a quantity, or too large.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        amount = Decimal(value)
    else:
        amount = parse_quantity(value)
    if abs(amount) >= QUANTITY_LIMIT:
        raise ValueError(f"{_quoted(value)} is too large: write an amount below 8Ei, such as 4Gi")
    return ceil(amount)


def parse_quantity(value: object, example: str = "4Gi or 512Mi") -> Decimal:
    """Parse a Kubernetes quantity of any resource; a larger one counts as `QUANTITY_LIMIT`.

    The grammar is that of
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.

    Parameters
    ----------
    example
        Amounts that the message names if the value is not a quantity.

    Raises
    ------
    ValueError
        It is not a quantity.
    """
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        text = f"{_quoted(value)} is no quantity: write an amount such as {example}"
        raise ValueError(text)
    number, exponent, suffix = match.groups()
    try:
        mantissa = _ARITHMETIC.create_decimal(number)
        if not mantissa:
            return Decimal(0)
        # Enough for any amount below the limit. decimal itself takes no longer exponents.
        power = max(-99, min(int((exponent or "e0")[1:][:20]), 99))
        amount = _ARITHMETIC.multiply(mantissa.scaleb(power, _ARITHMETIC), _SUFFIXES[suffix or ""])
    except Overflow:
        amount = Decimal("-Infinity" if number.startswith("-") else "Infinity")
    return max(Decimal(-QUANTITY_LIMIT), min(amount, Decimal(QUANTITY_LIMIT)))


def parse_amount(resource: str, quantity: object) -> int:
    """Parse an amount of a resource: thousandths of a CPU, bytes, or a number of devices.

    A larger amount than `MAX_AMOUNT` counts as that.

    Raises
    ------
    ValueError
        It is not a quantity, or below zero.
    """
    if isinstance(quantity, int | float) and not isinstance(quantity, bool):
        quantity = str(quantity)
    return _cached(resource, quantity) if isinstance(quantity, str) else _amount(resource, quantity)


def _amount(resource: str, quantity: object) -> int:
    is_cpu = resource == "cpu"
    value = parse_quantity(quantity, "2 or 500m" if is_cpu else "4Gi or 512Mi")
    if value < 0:
        raise ValueError(f"{quantity!r} is below zero: write an amount of 0 or more")
    return min(ceil(value * 1000 if is_cpu else value), MAX_AMOUNT)


_cached = lru_cache(maxsize=4096)(_amount)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def format_memory(value: int) -> str:
    """Write bytes as a quantity: whole gibibytes, else mebibytes, else bytes."""
    for suffix, unit in (("Gi", 1 << 30), ("Mi", MEBI), ("Ki", 1 << 10)):
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def mebibytes(value: int) -> str:
    """Write bytes as mebibytes, rounded up: the unit in which MPS limits memory."""
    return f"{-(-value // MEBI)}Mi"


def parse_duration(value: object) -> float:
    """Read `90s`, `20m` or `1h30m` as seconds.

    Raises
    ------
    ValueError
        If it is no such duration.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or _DURATION.fullmatch(value) is None:
        raise ValueError(f"{value!r} is no duration: write one such as 90s, 20m or 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(value))


def format_duration(seconds: float) -> str:
    """Write seconds as the largest units that hold them exactly, milliseconds at the least."""
    milliseconds = round(seconds * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_time(value: object) -> datetime:
    """Read an RFC 3339 time; one without an offset is taken as UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise ValueError(f"{value!r} is no time")  # noqa: TRY004 - pydantic wants a ValueError
    if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        years = f"the years {_FIRST_YEAR} to {_LAST_YEAR}"
        raise ValueError(f"{value} is out of range: write a time of {years}")
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def format_time(value: datetime) -> str:
    """Write a time with microseconds, as Kubernetes' MicroTime is."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def later(time: datetime, seconds: float) -> datetime:
    """Return the time so many seconds later, or the last that there is."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=time.tzinfo)


def seconds_since(start: datetime | None, now: datetime) -> float:
    """Seconds from a time that another clock may have written; never negative."""
    return max(0.0, (now - start) / timedelta(seconds=1)) if start else 0.0
