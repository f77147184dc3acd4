"""Parsing, formatting and addition of quantities, durations and times."""

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
    "format_request",
    "format_time",
    "gib",
    "later",
    "mebibytes",
    "parse_amount",
    "parse_duration",
    "parse_gpu_memory",
    "parse_memory",
    "parse_quantity",
    "parse_time",
    "seconds_since",
]

MEBI = 1 << 20
QUANTITY_LIMIT = (1 << 63) - 1
"""Valid quantities are below this limit. Kubernetes reduces every larger one to it (`maxAllowed` in
k8s.io/apimachinery/pkg/api/resource/amount.go), so a rule could not distinguish them."""

_LONGEST_QUOTE = 40
_LONGEST_CACHED = 100
"""Longest name and amount that are cached: users may write a template of megabytes."""
MAX_AMOUNT = 1 << 60
"""Largest amount of a resource: sums of a few amounts stay within 64 bits."""

_FIRST_YEAR, _LAST_YEAR = 1000, 2999
"""A time in these years plus the longest duration (4,566 years) is within Python's range."""

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
# Further digits are rounded up, as Kubernetes does for digits below a billionth.
_ARITHMETIC = Context(prec=40, rounding=ROUND_UP, Emin=-99, Emax=99, traps=[Overflow])
# At most 7 digits: even four such parts added to a time stay within Python's range.
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
        If it is not a quantity, or is too large.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        amount = Decimal(value)
    else:
        amount = parse_quantity(value)
    if abs(amount) >= QUANTITY_LIMIT:
        raise ValueError(f"{_quoted(value)} is too large: write an amount below 8Ei, such as 4Gi")
    return ceil(amount)


def parse_gpu_memory(value: object) -> int:
    """Parse an amount of GPU memory that somebody asks for as bytes, rounded up.

    KAI and HAMi count in MiB, so a small number without a unit is probably meant so.

    Raises
    ------
    ValueError
        If it is not a quantity, is too large, or is below 1 MiB, the unit of MPS's limits.
    """
    memory = parse_memory(value)
    if memory < MEBI:
        meant = f"{value}Mi" if str(value).isdecimal() and memory else "4Gi"
        said = f"{_quoted(value)} is less than 1Mi: write an amount with its unit, such as {meant}"
        raise ValueError(said)
    return memory


def parse_quantity(value: object, example: str = "4Gi or 512Mi") -> Decimal:
    """Parse a Kubernetes quantity of any resource; larger ones are reduced to `QUANTITY_LIMIT`.

    The grammar is defined in
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.

    Parameters
    ----------
    example
        Example amounts for the message if the value is not a quantity.

    Raises
    ------
    ValueError
        If it is not a quantity.
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
        # Enough for any amount below the limit. decimal does not accept longer exponents.
        power = max(-99, min(int((exponent or "e0")[1:][:20]), 99))
        amount = _ARITHMETIC.multiply(mantissa.scaleb(power, _ARITHMETIC), _SUFFIXES[suffix or ""])
    except Overflow:
        amount = Decimal("-Infinity" if number.startswith("-") else "Infinity")
    return max(Decimal(-QUANTITY_LIMIT), min(amount, Decimal(QUANTITY_LIMIT)))


def parse_amount(resource: str, quantity: object) -> int:
    """Parse an amount of a resource as thousandths of a CPU, bytes, or a number of devices.

    Amounts above `MAX_AMOUNT` are reduced to it.

    Raises
    ------
    ValueError
        If it is not a quantity, or is below zero.
    """
    if isinstance(quantity, int | float) and not isinstance(quantity, bool):
        quantity = str(quantity)
    if isinstance(quantity, str) and len(resource) + len(quantity) <= _LONGEST_CACHED:
        return _cached(resource, quantity)
    return _amount(resource, quantity)


def _amount(resource: str, quantity: object) -> int:
    is_cpu = resource == "cpu"
    value = parse_quantity(quantity, "2 or 500m" if is_cpu else "4Gi or 512Mi")
    if value < 0:
        raise ValueError(f"{_quoted(quantity)} is below zero: write an amount of 0 or more")
    return min(ceil(value * 1000 if is_cpu else value), MAX_AMOUNT)


_cached = lru_cache(maxsize=4096)(_amount)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def format_memory(value: int) -> str:
    """Format bytes as a quantity: as whole GiB, MiB or KiB if possible, otherwise as bytes."""
    for suffix, unit in (("Gi", 1 << 30), ("Mi", MEBI), ("Ki", 1 << 10)):
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def mebibytes(value: int) -> str:
    """Format bytes as mebibytes, rounded up: the unit of MPS's memory limits."""
    return f"{-(-value // MEBI)}Mi"


def gib(memory: int) -> str:
    """Format bytes for people: `37.2 GiB`, `512 MiB`; less than 1 MiB as bytes."""
    if memory < MEBI:
        return f"{memory} bytes" if memory else "0 MiB"
    if memory < 1024 * MEBI:
        return f"{memory / MEBI:.0f} MiB"
    return f"{memory / (1024 * MEBI):.1f} GiB"


def format_request(
    memory: int | None, piece: str | None, gpus: int, limit: int | None = None
) -> str:
    """Return a short text of what a job requests, such as `8.0 GiB, up to 20.0 GiB`."""
    amount = piece or (gib(memory) if memory else "a GPU alone")
    if memory and limit and limit > memory and not piece:
        amount += f", up to {gib(limit)}"
    return f"{gpus} x {amount}" if gpus > 1 else amount


def parse_duration(value: object) -> float:
    """Parse a duration such as `90s`, `20m` or `1h30m` as seconds. Numbers are seconds.

    Raises
    ------
    ValueError
        If it is not a duration.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or _DURATION.fullmatch(value) is None:
        raise ValueError(f"{_quoted(value)} is no duration: write one such as 90s, 20m or 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(value))


def format_duration(seconds: float) -> str:
    """Format seconds in the largest units that represent them exactly, rounded to milliseconds."""
    milliseconds = round(seconds * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_time(value: object) -> datetime:
    """Parse an RFC 3339 time. A time without an offset is in UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise ValueError(f"{value!r} is no time")  # noqa: TRY004 - pydantic wants a ValueError
    if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        years = f"the years {_FIRST_YEAR} to {_LAST_YEAR}"
        raise ValueError(f"{value} is out of range: write a time of {years}")
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def format_time(value: datetime) -> str:
    """Format a time with microseconds, like Kubernetes' MicroTime."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def later(time: datetime, seconds: float) -> datetime:
    """Return the time plus some seconds, or the last time that can be written."""
    last = datetime(_LAST_YEAR, 12, 31, tzinfo=time.tzinfo)
    try:
        return min(time + timedelta(seconds=seconds), last)
    except OverflowError:
        return last


def seconds_since(start: datetime | None, now: datetime) -> float:
    """Return the seconds since a time. Never negative, because `start` may be of another clock."""
    return max(0.0, (now - start) / timedelta(seconds=1)) if start else 0.0
