"""The parts of the demo of workloads by themselves: its events and its result."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cli.objects import job, lists, node, partition, server
from cli.test_pictures import drawn
from cli.workloads import allocate, workload
from partita.cli.cluster_state import state_of
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.workload_history import WorkloadHistory
from partita_testcluster.cli.workload_result import workload_rows, workload_summary

Json = dict[str, Any]
BEGAN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GIB = 1 << 30
LIMIT = "services may have 9.0 GiB together, and this needs 8.0 GiB: scale another one down"

SERVE, SERVE_CLAIM = workload("serve-1", on="shared-0")
EXTRA, EXTRA_CLAIM = workload("serve-2", says=f"ServicesLimitReached: {LIMIT}")
TRAIN, TRAIN_CLAIM = workload(
    "train-1", on="shared-0", owner={"kind": "Job", "name": "train", "uid": "uid-job"}
)
WAITS = job("late", "30Gi", status={
    "phase": "Queued", "reason": "InsufficientMemory", "message": "needs 30.0 GiB of GPU memory",
})  # fmt: skip
SOON = job("soon", "1Gi", status={"phase": "Queued", "reason": "Scheduling", "message": "queued"})


def at(second: int) -> datetime:
    return BEGAN + timedelta(seconds=second)


def gpu(*pods: tuple[Json, Json, Json]) -> Json:
    body = server("shared-0")
    for pod, claim, fields in pods:
        allocate(body, claim, pod, **fields)
    return body


def told() -> tuple[WorkloadHistory, list[list[str]]]:
    """A service starts, a Job's Pod runs beside it and ends, a second replica waits and goes."""
    history = WorkloadHistory(DemoClock(10.0, BEGAN))
    serve = (SERVE, SERVE_CLAIM, {"since": at(1).isoformat()})
    train = (TRAIN, TRAIN_CLAIM, {
        "since": at(2).isoformat(), "application": "Job/train", "lasting": False, "memory": "4Gi",
    })  # fmt: skip
    ended = {**TRAIN, "status": {**TRAIN["status"], "phase": "Succeeded"}}
    waits = [EXTRA, EXTRA_CLAIM]
    states = [
        [gpu(serve), SERVE, SERVE_CLAIM, *waits, WAITS, SOON],
        [gpu(serve, train), SERVE, SERVE_CLAIM, TRAIN, TRAIN_CLAIM, *waits, WAITS, SOON],
        [gpu(serve), SERVE, SERVE_CLAIM, ended, WAITS, SOON],
    ]
    base = node(), partition()
    said = [
        [f"{e.subject} {e.what}" for e in history.update(state_of(lists(*base, *objects)), at(now))]
        for now, objects in zip((3, 6, 9), states, strict=True)
    ]
    return history, said


def test_it_is_told_who_gets_a_slice_and_who_waits_and_why() -> None:
    _, said = told()
    assert said == [
        [
            "late waits: needs 30.0 GiB of GPU memory",
            "serve-1 gets 8.0 GiB on shared-0",
            f"serve-2 waits: {LIMIT}",
        ],
        ["train-1 gets 4.0 GiB on shared-0 beside serve-1"],
        ["serve-2 is deleted", "train-1 has succeeded after 40s"],
    ]


def test_the_result_has_a_line_for_each_pod_and_what_it_shows(text_golden) -> None:
    history, _ = told()
    clock = DemoClock(10.0, BEGAN)
    table = workload_rows(history, [], clock)
    picture = workload_summary(table, history, clock, width=100, gpus=1, allocatable=37 * GIB)
    text_golden("workloads.txt", drawn(picture, 100))
