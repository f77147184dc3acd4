"""Amounts of memory and lengths of time, as Kubernetes and people write them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models.quantities import (
    format_duration,
    format_memory,
    format_time,
    later,
    mebibytes,
    parse_duration,
    parse_memory,
    parse_time,
    seconds_since,
)

# What `resource.ParseQuantity(...).Value()` of k8s.io/apimachinery answers.
KUBERNETES_QUANTITIES = {
    4096: 4096, "0": 0, "1": 1, "+1": 1, "-1": -1, "100m": 1, "1100m": 2, "1500u": 1, "2n": 1, "1k": 1000,
    "1Ki": 1024, "1.5Gi": 3 << 29, ".5Mi": 1 << 19, "5.Gi": 5 << 30, "1M": 10**6, "2e3": 2000,
    "2E3": 2000, "2E": 2 * 10**18, "1e-1": 1, "7Ei": 7 << 60, "40960Mi": 40 << 30,
    "1e-99999999999999999999": 1, "0e99999999999999999999": 0,
    "1.000000000000000000000000000000000001Ki": 1025,
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), KUBERNETES_QUANTITIES.items())
def test_reads_a_quantity_as_kubernetes_does(text, value):
    assert parse_memory(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "Gi", "4 Gi", "4Gb", "4GB", "1ki", "1K", "1mi", "1e", "1.2.3", "٤Gi", "0x10", "1,5Gi",
     "4Gi\n", "1e٤", "1_000", "1e5Ki", "NaN", "Infinity", "1" * 90 + "B", True, 1.5, None, [], {}],
)  # fmt: skip
def test_refuses_what_is_no_quantity(text):
    with pytest.raises(ValueError, match="is no quantity: write an amount such as 4Gi"):
        parse_memory(text)


@pytest.mark.parametrize(
    "text",
    ["8Ei", "9999P", "1e19", "1e999999999", "-8Ei", "1e99999999999999999999", "9" * 5000, 1 << 63],
)
def test_refuses_a_quantity_that_is_too_large(text):
    with pytest.raises(ValueError, match="too large: write an amount below 8Ei"):
        parse_memory(text)


@given(st.integers(min_value=0, max_value=(1 << 63) - 2))
def test_an_amount_of_memory_is_written_exactly(value):
    assert parse_memory(format_memory(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1"), (1024, "1Ki"), (1 << 20, "1Mi"), (3 << 29, "1536Mi"), (4 << 30, "4Gi")],
)
def test_an_amount_of_memory_is_written_short(value, text):
    assert format_memory(value) == text


@given(st.integers(min_value=0, max_value=1 << 50))
def test_mebibytes_are_rounded_up(value):
    written = parse_memory(mebibytes(value))
    assert value <= written < value + (1 << 20)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("0s", 0),
     ("1h1h", 7200), (15, 15.0), (0.5, 0.5)],
)  # fmt: skip
def test_reads_a_duration(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "90", "5 minutes", "-5s", "1d", "s", "1h 30m", "12345678s", "1s1s1s1s1s", "٣s", True, None],
)  # fmt: skip
def test_refuses_what_is_no_duration(text):
    with pytest.raises(ValueError, match="is no duration: write one such as 90s, 20m or 1h30m"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=9_999_999 * 3_600_000))
def test_a_duration_is_written_exactly_to_the_millisecond(milliseconds):
    text = format_duration(milliseconds / 1000)
    assert round(parse_duration(text) * 1000) == milliseconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (600, "10m"), (5400, "1h30m"), (61.5, "1m1s500ms")]
)
def test_a_duration_is_written_in_the_largest_units(seconds, text):
    assert format_duration(seconds) == text


@given(st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_time_is_written_exactly(time):
    assert parse_time(format_time(time)) == time


@pytest.mark.parametrize(
    "text",
    ["2026-11-21T15:00:00Z", "2026-11-21T16:00:00+01:00", "2026-11-21T15:00:00.000000Z",
     "2026-11-21T15:00:00.000000999Z", "2026-11-21T15:00:00"],
)  # fmt: skip
def test_reads_the_times_that_kubernetes_and_its_clients_write(text):
    assert parse_time(text) == datetime(2026, 11, 21, 15, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", 5, None])
def test_refuses_what_is_no_time(text):
    with pytest.raises(ValueError, match=r"no time|Invalid isoformat"):
        parse_time(text)


def test_time_since_never_runs_backwards():
    now = datetime(2026, 11, 21, 15, tzinfo=UTC)
    assert seconds_since(now - timedelta(seconds=5), now) == 5
    assert seconds_since(now + timedelta(hours=1), now) == 0
    assert seconds_since(None, now) == 0


def test_later_than_can_be_written_is_the_last_time_there_is():
    now = datetime(2026, 11, 21, 15, tzinfo=UTC)
    assert later(now, 5) == now + timedelta(seconds=5)
    assert now < later(now, 1e300) == parse_time(later(now, 10**12))
