"""The use of each slice over the last hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cli.objects import job, lists, node, partition, running, server
from partita.cli.cluster_state import state_of
from partita.console.use_history import KEPT, UseHistory
from partita.informer.state import State

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MEBI = 1 << 20


def using(amount: str, **use: object) -> State:
    body = job("train", "10Gi", status=running("shared-0"))
    gpu = server("shared-0", body, used={"uid-train": amount})
    gpu["status"]["usage"]["jobs"]["uid-train"].update(use)
    return state_of(lists(node(), partition(), gpu, body))


def test_samples_have_what_is_allocated_and_used() -> None:
    history = UseHistory()
    history.sample(using("4Gi"), NOW)
    later = NOW + timedelta(seconds=15)
    history.sample(using("5Gi", gpuUtilization=40), later)
    start = int(NOW.timestamp())
    assert history.of("uid-train") == [
        (start, 10240 * MEBI, 4096 * MEBI, None),
        (start + 15, 10240 * MEBI, 5120 * MEBI, 40),
    ]


def test_the_oldest_samples_are_dropped_and_released_slices_forgotten() -> None:
    history, state = UseHistory(), using("4Gi")
    for second in range(KEPT + 10):
        history.sample(state, NOW + timedelta(seconds=second))
    points = history.of("uid-train")
    assert (len(points), points[0][0]) == (KEPT, int(NOW.timestamp()) + 10)
    history.sample(state_of(lists(node(), partition(), server("shared-0"))), NOW)
    assert history.of("uid-train") == []
