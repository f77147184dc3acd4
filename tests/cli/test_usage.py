"""`partita usage`, on records that an operator has written."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from partita.accounting.daily_usage import Amounts, DailyUsage, UsageKey
from support.api import Api

NOW = datetime.now(UTC)
DAYS = {
    0: {
        UsageKey("shared", "team-a", "resnet"): Amounts(3600, 1800, 36000, 18000, 1900),
        UsageKey("shared", "team-b", ""): Amounts(7200, 720, 3600, 360),
    },
    20: {UsageKey("shared", "team-a", "bert"): Amounts(7200, 3600, 7200, 0)},
    60: {UsageKey("large", "team-a", "resnet"): Amounts(360_000, 0, 0, 0)},
}


@pytest.fixture
async def recorded(api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch, invoke: Any) -> None:
    """Records in the namespace that PARTITA_NAMESPACE names."""
    monkeypatch.setenv("PARTITA_NAMESPACE", namespace)
    for ago, rows in DAYS.items():
        time = NOW - timedelta(days=ago)
        data = DailyUsage(time.date(), time, rows).dump()
        await _put(api, namespace, f"partita-usage-{time.date()}", data)
    await _put(api, namespace, "partita-usage-broken", {"usage.csv": "0"})


async def _put(api: Api, namespace: str, name: str, data: dict[str, str]) -> None:
    labels = {"partita.dev/component": "usage"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name, "labels": labels}}  # fmt: skip
    (await api.post(f"/api/v1/namespaces/{namespace}/configmaps", body)).ok()


async def test_namespaces_of_the_last_30_days_by_their_gpu_time(partita, recorded: None) -> None:
    result = await partita("usage")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["NAMESPACE", "GPU-HOURS", "ALLOCATED", "USED", "GIB-HOURS", "ALLOCATED", "USED"],
        ["team-a", "3.00", "1.50", "12.00", "5.00"],
        ["team-b", "2.00", "0.20", "1.00", "0.10"],
        ["total", "5.00", "1.70", "13.00", "5.10"],
    ]
    assert "partita-usage-broken is left out: no record of a day's usage" in result.stderr


async def test_csv_has_seconds_and_every_requested_name(partita, recorded: None) -> None:
    result = await partita(
        "usage", "--since", "90d", "--by", "partition", "--by", "application", "-o", "csv"
    )
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(r["partition"], r["application"], r["gpu_seconds_allocated"]) for r in rows] == [
        ("large", "resnet", "360000.0"),
        ("shared", "", "7200.0"),
        ("shared", "bert", "7200.0"),
        ("shared", "resnet", "3600.0"),
    ]


async def test_scripts_get_data(partita, recorded: None) -> None:
    day = str(NOW.date())
    result = await partita("usage", "--since", day, "--until", day, "-o", "json")
    found = json.loads(result.stdout)
    assert (found["since"], found["until"]) == (day, day)
    row = found["usage"][1]
    assert (row["namespace"], row["application"], row["partition"]) == ("team-a", None, None)
    assert list(row["amounts"].values()) == [3600, 1800, 36000, 18000, 1900]
    assert found["total"]["gpuSecondsAllocated"] == 10800


async def test_days_without_usage_are_told(partita, recorded: None) -> None:
    result = await partita("usage", "--since", "10d", "--until", "5d")
    assert result.stdout == ""
    assert "No usage is recorded from" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "last month"), "'last month' is no day: write one such as 30d or 2026-11-01"),
        (("--since", "2026-13-01"), "is no day"),
        (("--since", "1d", "--until", "2d"), "write the earlier day as --since"),
        (("--by", "job"), "'job' is not one of 'namespace', 'application', 'partition'"),
    ],
)
def test_wrong_usage_is_told(invoke, options: tuple[str, ...], said: str) -> None:
    result = invoke("usage", *options, code=2)
    assert said in result.stderr
