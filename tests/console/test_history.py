"""The last hours, as they are remembered and as the jobs tell them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.objects import job, lists, node, partition, running, server
from cli.workloads import allocate, workload
from partita.cli.cluster_state import state_of
from partita.console import history
from partita.console.history import PERIOD, History
from partita.console.page_state import page_state_of
from partita.store.state import State

NOW = datetime(2026, 1, 1, 18, 0, tzinfo=UTC)
GIB = 1 << 30


def at(minutes: float) -> str:
    """The time so many minutes before now."""
    return (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def recalled(*objects: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """What is allocated and how many wait, by minutes before now."""
    state = state_of(lists(node(), partition(), server("gpu-0"), *objects))
    remembered = History()
    remembered.recall(state, page_state_of(state), NOW)
    points = remembered.partitions.of("shared")
    return {
        round((NOW.timestamp() - time) / 60): (allocated // GIB, waiting)
        for time, allocated, _, waiting, _ in points
    }


def ran(queued: float, allocated: float | None, ended: float | None) -> dict[str, Any]:
    attempt = {"number": 1, "servers": ["gpu-0"], "memory": "10Gi", "queuedTime": at(queued)}
    if allocated is not None:
        attempt["bookedTime"] = at(allocated)
    if ended is not None:
        attempt |= {"endTime": at(ended), "outcome": "Succeeded"}
    return attempt


@pytest.mark.parametrize(
    ("times", "seen"),
    [  # 120 minutes ago nothing is known of the first; the others began before these hours
        ((100, 90, 60), {120: None, 95: (0, 1), 75: (10, 0), 50: (0, 0)}),
        ((900, 800, 60), {350: (10, 0), 50: (0, 0)}),
        ((900, 800, 700), {350: None, 50: None}),
    ],
)
def test_what_a_job_had_within_these_hours_is_recalled(times: Any, seen: dict[int, Any]) -> None:
    points = recalled(job("done", status={"phase": "Succeeded", "attempts": [ran(*times)]}))
    assert {minutes: points.get(minutes) for minutes in seen} == seen


def test_a_job_that_still_waits_is_recalled_from_its_submission() -> None:
    body = job("waits", status={"phase": "Queued"})
    body["metadata"]["creationTimestamp"] = at(30)
    seen = recalled(body)
    assert seen[10] == (0, 1)
    assert 40 not in seen


def test_what_a_workload_has_and_how_long_it_waited_is_recalled() -> None:
    pod, claim = workload("serve", on="gpu-1")
    claim["metadata"]["creationTimestamp"] = at(30)
    gpu = allocate(server("gpu-1"), claim, pod, since=at(20))
    seen = recalled(gpu, pod, claim)
    assert (seen[25], seen[10]) == ((0, 1), (8, 0))


def test_use_is_not_made_up_for_the_time_before() -> None:
    state = state_of(
        lists(partition(), job("x", status={"phase": "Running", "attempts": [ran(9, 8, None)]}))
    )
    remembered = History()
    remembered.recall(state, page_state_of(state), NOW)
    assert {point[2] for point in remembered.partitions.of("shared")} == {None}


def using(amount: str, **use: object) -> State:
    """A job with 10 GiB that uses so much."""
    body = job("train", "10Gi", status=running("shared-0"))
    gpu = server("shared-0", body, used={"train": amount})
    gpu["status"]["usage"]["jobs"]["claim-train"].update(use)
    return state_of(lists(node(), partition(), gpu, body))


def test_what_a_slice_has_and_uses_is_remembered_until_it_is_released() -> None:
    remembered = History()
    remembered.sample(using("4Gi"), {}, NOW)
    remembered.sample(using("5Gi", gpuUtilization=40), {}, NOW + timedelta(seconds=PERIOD))
    start = int(NOW.timestamp())
    assert remembered.slices.of("claim-train") == [
        (start, 10 * GIB, 4 * GIB, None),
        (start + PERIOD, 10 * GIB, 5 * GIB, 40),
    ]
    remembered.sample(state_of(lists(node(), partition(), server("shared-0"))), {}, NOW)
    assert remembered.slices.of("claim-train") == []


def test_no_more_than_some_hours_are_kept() -> None:
    state, remembered = using("4Gi"), History()
    page = page_state_of(state)
    for n in range(history._SAMPLES + 10):
        remembered.sample(state, page, NOW + timedelta(seconds=n * PERIOD))
    for points, kept in (
        (remembered.partitions.of("shared"), history._SAMPLES),
        (remembered.slices.of("claim-train"), history._SAMPLES // 2),
    ):
        assert len(points) == kept
        assert points[-1][0] == NOW.timestamp() + (history._SAMPLES + 9) * PERIOD
