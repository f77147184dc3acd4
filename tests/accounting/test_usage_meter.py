"""What is counted for whom, while GPUs are allocated, used and released."""

from datetime import UTC, date, datetime, timedelta
from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.accounting.daily_usage import MAX_ROWS, OTHERS, Amounts, DailyUsage, UsageKey
from partita.accounting.usage_meter import UsageMeter
from partita.models.quantities import format_time
from partita.store.state import State
from support.builders import (
    GIB,
    START,
    a_partition,
    a_state,
    allocation,
    at,
    partition_body,
    seconds,
    server_body,
)
from support.claims import claim_entry

GPU = 40 * GIB
TODAY = START.date()


def used(memory: str, utilization: int) -> dict[str, Any]:
    return {"memory": memory, "peakMemory": memory, "gpuUtilization": utilization}


def change(state: State, meter: UsageMeter, now: datetime, **server: Any) -> None:
    """Let a new version of the GPUServer arrive."""
    state.apply_server(server_body(**server))
    meter.read_server("shared-0", now)


def begun(*bodies: Any, now: datetime = START):
    reserve = {"sharing": {"memoryReservePercent": 0}}
    state = a_state(partition_body(**reserve), *bodies)
    meter = UsageMeter(state, by_namespace=True)
    meter.resume((), now)
    return state, meter


def amounts(meter: UsageMeter, day: date = TODAY) -> dict[UsageKey, Amounts]:
    return meter.days[day].amounts if day in meter.days else {}


def test_an_allocation_counts_from_its_start_to_its_release() -> None:
    state, meter = begun(server_body())
    ledger = {
        "claim-train": allocation("train", memory=10 * GIB, since=at(5), application="resnet")
    }
    change(state, meter, at(6), allocations=ledger)
    change(state, meter, at(25), allocations={})
    meter.read(at(100))
    (key, found), *more = amounts(meter).items()
    assert not more
    assert key == UsageKey("shared", "team-a", "resnet")
    assert (found.gpu_seconds_allocated, found.gib_seconds_allocated) == (0.25 * 20, 10 * 20)
    assert (found.gpu_seconds_used, found.gib_seconds_used) == (0, 0)
    assert meter.days[TODAY].until == at(100)


def test_a_gpu_that_is_allocated_to_one_job_alone_counts_whole() -> None:
    ledger = {"u": allocation(memory=10 * GIB, alone=True)}
    _, meter = begun(server_body(allocations=ledger))
    meter.read(at(10))
    (found,) = amounts(meter).values()
    assert (found.gpu_seconds_allocated, found.gib_seconds_allocated) == (10, 100)


def test_usage_is_that_of_the_last_report() -> None:
    ledger = {"u": allocation(memory=10 * GIB)}
    state, meter = begun(server_body(allocations=ledger))
    report = {"usage": {"jobs": {"u": used("4Gi", 50)}}}
    change(state, meter, at(10), allocations=ledger, status=report)
    meter.read(at(20))
    idle = {"usage": {"jobs": {"u": used("2Gi", 0)}}}
    change(state, meter, at(30), allocations=ledger, status=idle)
    meter.read(at(40))
    (found,) = amounts(meter).values()
    assert found.gpu_seconds_used == 0.5 * 20
    assert found.gib_seconds_used == 4 * 20 + 2 * 10


def test_use_that_the_gpu_does_not_tell_counts_as_the_allocated_share() -> None:
    ledger = {
        name: allocation(name, memory=10 * GIB, since=at(0)) for name in ("uid-busy", "uid-gone")
    }
    jobs = {"uid-busy": {"memory": "5Gi", "peakMemory": "5Gi"}}
    jobs["uid-gone"] = {"memory": "0", "peakMemory": "5Gi"}
    _, meter = begun(server_body(allocations=ledger, status={"usage": {"jobs": jobs}}))
    meter.read(at(10))
    (found,) = amounts(meter).values()
    assert found.gpu_seconds_used == 0.25 * 10


def test_time_is_divided_at_midnight() -> None:
    evening = datetime(2026, 1, 1, 23, 59, 50, tzinfo=UTC)
    ledger = {"u": allocation(memory=GIB, since=evening)}
    _, meter = begun(server_body(allocations=ledger), now=evening)
    meter.read(evening + seconds(30))
    both = [amounts(meter, TODAY + timedelta(days=n)) for n in (0, 1)]
    assert [next(iter(day.values())).gib_seconds_allocated for day in both] == [10, 20]
    assert meter.days[TODAY].until == datetime(2026, 1, 2, tzinfo=UTC)


def test_the_totals_forget_namespaces_without_usage_since_midnight() -> None:
    ledger = {"u": allocation("one", memory=GIB), "v": allocation("two", namespace="team-b")}
    state, meter = begun(server_body(allocations=ledger))
    change(state, meter, at(10), allocations={"u": ledger["u"]})
    tomorrow = START + timedelta(days=1)
    meter.read(tomorrow)
    assert set(meter.totals) == {("shared", "team-a"), ("shared", "team-b")}
    before = meter.totals["shared", "team-a"]
    meter.forget([TODAY])
    assert meter.totals == {("shared", "team-a"): before}


def test_nothing_is_counted_before_the_records_are_read() -> None:
    state = a_state(partition_body(), server_body(allocations={"u": allocation()}))
    meter = UsageMeter(state)
    meter.read_server("shared-0", at(10))
    meter.read(at(20))
    assert not meter.days


def test_without_a_record_counting_starts_now() -> None:
    ledger = {"u": allocation(memory=GIB, since=at(-10_000))}
    _, meter = begun(server_body(allocations=ledger))
    ahead = START + timedelta(days=9)
    meter.resume([DailyUsage(ahead.date(), ahead)], START)  # of a clock that was wrong
    meter.read(at(10))
    (found,) = amounts(meter).values()
    assert found.gib_seconds_allocated == 10


def test_a_clock_that_is_set_back_counts_nothing_twice() -> None:
    _, meter = begun(server_body(allocations={"u": allocation(memory=GIB)}))
    for moment in (10, 5, 8, 10, 20):
        meter.read(at(moment))
    (found,) = amounts(meter).values()
    assert found.gib_seconds_allocated == 20


LEDGERS = st.lists(
    st.tuples(
        st.floats(0.1, 50_000),
        st.dictionaries(
            st.sampled_from("abcdef"),
            st.tuples(st.sampled_from(["red", "blue"]), st.booleans()),
            max_size=4,
        ),
    ),
    max_size=6,
)
"""Seconds that each version of a GPU's ledger lasts, and its entries: namespace and whether its
Pod belongs to no job. Each has 10 GiB."""


@given(LEDGERS)
def test_whatever_happens_the_gpu_seconds_add_up(ledgers: list[tuple[float, Any]]) -> None:
    state, meter = begun(server_body())
    now, expected = 0.0, {"red": 0.0, "blue": 0.0}
    since: dict[str, float] = {}
    for lasts, entries in ledgers:
        since = {uid: since.get(uid, now) for uid in entries}
        ledger = {}
        for uid, (namespace, of_other_pod) in entries.items():
            entry = claim_entry if of_other_pod else allocation
            fields = {"memory": "10Gi", "since": format_time(at(since[uid]))}
            ledger[uid] = entry(uid) | {"namespace": namespace, **fields}
            expected[namespace] += lasts * 0.25
        change(state, meter, at(now), allocations=ledger)
        now += lasts
    meter.read(at(now))
    rows = [row for day in meter.days.values() for row in day.amounts.items()]
    for namespace, wanted in expected.items():
        found = sum(a.gpu_seconds_allocated for key, a in rows if key.namespace == namespace)
        assert found == pytest.approx(wanted, abs=1e-3)
        counter = meter.totals["shared", namespace].gpu_seconds_allocated
        assert counter == pytest.approx(wanted, abs=1e-3)
    assert sum(a.gpu_seconds_allocated for _, a in rows) <= now + 1e-3


@given(st.lists(st.floats(0, 100), max_size=8), st.sets(st.integers(0, 7)))
def test_a_new_leader_continues_where_the_last_record_ends(
    moments: list[float], crashes: set[int]
) -> None:
    """Whenever the process crashes, what stays allocated counts once and whole."""
    ledger = {
        "u": allocation("one", memory=GIB),
        "v": allocation("two", memory=2 * GIB, namespace="team-b", since=at(30)),
    }
    state, meter = begun(server_body(allocations=ledger))
    record: DailyUsage | None = None
    for number, moment in enumerate(sorted(moments)):
        meter.read(at(moment))
        if number in crashes:  # this read is not recorded any more
            meter = UsageMeter(state)
            meter.resume([record or DailyUsage(TODAY, START)], at(moment))
        elif TODAY in meter.days:
            data = {"data": meter.days[TODAY].dump(), "metadata": {"resourceVersion": "1"}}
            record = DailyUsage.parse(data)
    meter.read(at(200))
    by_namespace = {k.namespace: a.gib_seconds_allocated for k, a in amounts(meter).items()}
    assert by_namespace == pytest.approx({"team-a": 200, "team-b": 340}, abs=0.05)


def test_a_day_has_a_bounded_number_of_rows() -> None:
    day = DailyUsage(TODAY, START)
    teams = [f"team-{number}" for number in range(2 * MAX_ROWS + 5)]
    for namespace in teams:
        day.add(UsageKey("shared", namespace, "app"), Amounts(1, 1, 1, 1))
    assert list(day.amounts) == [
        *(UsageKey("shared", team, "app") for team in teams[:MAX_ROWS]),
        *(UsageKey("shared", team, OTHERS) for team in teams[MAX_ROWS : 2 * MAX_ROWS]),
        UsageKey("shared", OTHERS, OTHERS),
    ]
    assert sum(a.gpu_seconds_used for a in day.amounts.values()) == len(teams)


def test_the_largest_record_fits_into_a_config_map() -> None:
    day = DailyUsage(TODAY, START)
    amount = Amounts(123456.789, 123456.789, 123456.789, 123456.789)
    for number in range(5000):
        day.add(UsageKey("p" * 52, f"{number:063}", f"{number:0253}"), amount)
    assert sum(map(len, day.dump().values())) < 1 << 20


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
finite = st.floats(0, 1e12).map(lambda x: round(x, 3))


@given(st.dictionaries(st.builds(UsageKey, names, names, names),
                       st.builds(Amounts, finite, finite, finite, finite), max_size=5))  # fmt: skip
def test_what_was_written_is_read_again(rows: dict[UsageKey, Amounts]) -> None:
    day = DailyUsage(TODAY, at(3), rows, "7")
    assert DailyUsage.parse({"data": day.dump(), "metadata": {"resourceVersion": "7"}}) == day


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"day": "2026-01-01", "until": "2026-01-01T00:00:00Z"},
        {"day": "x", "until": "2026-01-01T00:00:00Z", "usage.csv": ""},
        {"day": "2026-01-01", "until": "soon", "usage.csv": ""},
        {"day": "2026-01-01", "until": "2026-01-01T00:00:00Z", "usage.csv": "partition\nshared"},
    ],
)
def test_a_record_that_somebody_broke_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        DailyUsage.parse({"data": data, "metadata": {"resourceVersion": "1"}})


def test_past_use_counts_half_after_the_half_life() -> None:
    """team-a had a half of the GPU all day long, two half-lives ago; team-b has it now."""
    day = timedelta(days=1)
    half_day = Amounts(dominant_seconds_allocated=0.5 * day.total_seconds())
    records = [
        DailyUsage(TODAY - 3 * day, START - 2 * day, {UsageKey("shared", "team-a", "x"): half_day}),
        DailyUsage(TODAY - day, START, {UsageKey("shared", "team-b", ""): half_day}),
    ]
    state, meter = begun(server_body())
    meter.resume(records, START)
    partition = a_partition(fairness={"halfLife": "24h"})
    window = 1 / log(2)  # days
    shares = meter.past_shares(partition, START)
    assert shares == pytest.approx({"team-a": 0.5 / window / 4, "team-b": 0.5 / window})
    assert meter.past_shares(a_partition(), START) == {}
    assert state.partitions


def test_what_is_allocated_counts_with_its_largest_share() -> None:
    ledger = {"many": allocation("many", memory=GIB, clients=47, since=at(0))}
    _, meter = begun(server_body(allocations=ledger))
    meter.read(at(10))
    (found,) = amounts(meter).values()
    assert found.dominant_seconds_allocated == pytest.approx(10.0)
