"""What top and explain draw, from objects alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from cli.objects import attempt, job, lists, node, partition, running, server
from partita.claims.workloads import find_workloads, job_workload
from partita.cli import terminal
from partita.cli.cluster_state import state_of
from partita.cli.explain.text import explanation_text
from partita.cli.number_format import duration
from partita.cli.partitions.partition_view import Colours, partition_view
from partita.console.as_data import as_data
from partita.console.ask_policies import ask_policies, put_back
from partita.console.explanation import explain
from partita.console.view import partitions_view

NOW = datetime(2026, 1, 1, 12, 1, 30, tzinfo=UTC)


def drawn(renderable, width: int) -> str:
    console = Console(width=width, color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as text:
        console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in text.get().splitlines())


A = job("train-a", "18Gi", status=running("shared-0"))
B = job("a-job-with-a-long-name", "10Gi", status=running("shared-0", "team/train-a"))
FIRST = job("first", "20Gi", namespace="other", status={
    "phase": "Queued", "queuePosition": 1, "reason": "InsufficientMemory",
    "message": "needs 20.0 GiB of GPU memory; the most that is free is 9.2 GiB",
})  # fmt: skip
GROWN = job("grown", "10Gi", status={
    "phase": "Queued", "queuePosition": 2, "reason": "InsufficientMemory", "message": "needs more",
    "attempts": [attempt(1, "shared-0", outcome="OutOfMemory", peakMemory="9Gi", exitCode=1,
                         queuedTime="2026-01-01T11:58:00Z", bookedTime="2026-01-01T11:59:57Z",
                         firstUseTime="2026-01-01T12:00:08Z", endTime="2026-01-01T12:00:30Z",
                         message="CUDA out of memory")],
})  # fmt: skip
PAUSED = job("paused", None, suspend=True, status={"phase": "Suspended", "reason": "Suspended"})
LOST = job("lost", "1Gi", partition="nowhere", status={
    "phase": "Queued", "reason": "PartitionNotFound", "message": "there is no GPUPartition nowhere",
})  # fmt: skip


def cluster():
    policy = {"name": "fifo", "shadow": ["sjf"]}
    return lists(
        node(),
        partition(policy=policy, trouble="shared-1 is Unready"),
        server("shared-0", A, B, used={"train-a": "9Gi"}),
        server("shared-1", ready=False),
        A, B, FIRST, GROWN, PAUSED, LOST,
    )  # fmt: skip


@pytest.mark.parametrize("width", [80, 140])
def test_top_draws_slices_their_use_and_the_queue(text_golden, width: int) -> None:
    seen = partitions_view(state_of(cluster()), NOW)
    assert [p.name for p in seen] == ["nowhere", "shared"]
    text = "\n".join(drawn(partition_view(p, Colours(), queue_rows=2), width) for p in seen)
    assert max(map(len, text.splitlines())) <= width
    text_golden(f"top-{width}.txt", text)


def test_no_text_of_users_moves_the_cursor_or_begins_a_row(capsys) -> None:
    evil = "\x1b]0;a\x07\nb"
    for show in (terminal.data, terminal.say, terminal.warn, terminal.display):
        show(evil)
    terminal.columns([["NAME"], [evil]])
    out, err = capsys.readouterr()
    assert (out, err) == (2 * "]0;a\nb\n" + "NAME\n]0;a b\n", "]0;a\nb\nWarning: ]0;a\nb\n")


def test_a_script_reads_bytes_and_seconds() -> None:
    (_, shared) = as_data(partitions_view(state_of(cluster()), NOW))
    assert as_data([1.5, float("inf"), float("nan")]) == [1.5, None, None]
    assert (shared["mode"], shared["policy"], shared["wanted"]) == ("MPS", "fifo", 2)
    (gpu, unready) = shared["gpus"]
    assert unready["state"] == "Unready"
    seen = [gpu[key] for key in ("name", "state", "allocated", "used", "utilization")]
    assert seen == ["shared-0", "Ready", 28 << 30, 10 << 30, 70]
    piece = gpu["slices"][0]
    assert (piece["uid"], piece["memory"], piece["used"]) == ("uid-train-a", 18 << 30, 9 << 30)
    assert (piece["threadPercent"], piece["memoryLimit"], piece["idle"]) == (100, None, None)
    assert [(j["name"], j["position"], j["memory"]) for j in shared["queue"]] == [
        ("first", 1, 20 << 30), ("grown", 2, 15 << 30), ("paused", None, None),
    ]  # fmt: skip


BURST = job("burst", "8Gi", gpuMemoryLimit="30Gi", status={
    "phase": "Running",
    "assignment": {"servers": ["shared-0"], "node": "node-1", "memory": "8Gi",
                   "memoryLimit": "30Gi", "pod": "burst-2", "attempt": 2},
    "attempts": [attempt(1, "shared-0", outcome="Reclaimed", memory="8Gi", memoryLimit="30Gi",
                         message="MPS ended it")],
})  # fmt: skip


def test_guarantee_and_ceiling_are_shown() -> None:
    limited = server("shared-0", BURST, used={"burst": "12Gi"})
    limited["status"]["allocations"]["claim-burst"]["memoryLimit"] = "30Gi"
    state = state_of(lists(node(), partition(), limited, BURST))
    (seen,) = partitions_view(state, NOW)
    text = drawn(partition_view(seen, Colours(), queue_rows=2), 100)
    assert "memory above guarantees: 4.0 GiB" in text
    (view,) = find_workloads("team", "SharedGPUJob", "burst", state)
    text = drawn(explanation_text([explain(view, state, NOW)]), 160)
    assert "on node node-1, 8.0 GiB, up to 30.0 GiB and 100 % of the threads" in text
    assert "Asks for   8.0 GiB, up to 30.0 GiB" in text
    assert "1  Reclaimed  shared-0  8.0 GiB, up to 30.0 GiB" in text
    waiting = job("waiting", "8Gi", gpuMemoryLimit="30Gi", status={"phase": "Queued"})
    spare = partition(sharing={"burst": "Spare"})
    (seen,) = partitions_view(state_of(lists(node(), spare, waiting)), NOW)
    assert seen.queue[0].asks == "8.0 GiB, up to 30.0 GiB"


def test_top_and_explain_show_limits_of_the_driver_and_why_gpus_take_no_jobs() -> None:
    shared = partition()
    shared["status"]["gpuSummary"] = [
        {"name": "shared-0", "state": "Ready", "enforcement": "Driver"},
        {"name": "shared-1", "state": "Unready", "message": "install driver r615 or newer"},
    ]
    limited = server("shared-0", A)
    limited["status"]["enforcement"] = "Driver"
    state = state_of(lists(node(), shared, limited, server("shared-1", ready=False), A, FIRST))
    (seen,) = partitions_view(state, NOW)
    text = drawn(partition_view(seen, Colours(), queue_rows=2), 100)
    assert "MPS with limits of the driver on 1 of 2 GPUs" in text
    assert "unready: install driver r615 or newer" in text
    views = (job_workload(state.jobs[uid], state) for uid in ("uid-train-a", "uid-first"))
    runs, waits = (explain(view, state, NOW) for view in views)
    text = drawn(explanation_text([runs]), 100)
    assert "10.0 GiB (limited by the driver)" in text
    assert "shared-1" not in text
    text = drawn(explanation_text([waits]), 100)
    assert "shared-1 is Unready: install driver r615 or newer" in text


async def explained(name: str, *, back: bool = False) -> str:
    uid, found = f"uid-{name}", cluster()
    state = state_of(put_back(found, uid) if back else found)
    answers = await ask_policies(state, uid, "shared", NOW)
    state = state_of(found)
    about = explain(job_workload(state.jobs[uid], state), state, NOW)
    text = drawn(explanation_text([replace(about, policies=answers)]), 100)
    # How old a job is depends on today.
    return "".join(
        f"{line}\n" for line in text.splitlines() if not line.startswith(("Age", "1  running"))
    )


@pytest.mark.parametrize(
    ("name", "back"),
    [("first", False), ("grown", False), ("train-a", True), ("paused", True), ("lost", False)],
)
async def test_explain_tells_what_each_policy_would_do(text_golden, name: str, back) -> None:
    text_golden(f"explain-{name}.txt", await explained(name, back=back))


async def test_a_policy_that_cannot_be_had_is_named() -> None:
    waiting, policy = job("waiting", status={"phase": "Queued"}), {"name": "magic"}
    pool = partition(policy={**policy, "fallback": "fifo"})
    objects = lists(node(), pool, server("shared-0"), waiting)
    verdicts = await ask_policies(state_of(objects), "uid-waiting", "shared", NOW)
    assert [(v.policy, v.role, v.decision) for v in verdicts] == [
        ("magic", "active", "fail"), ("fifo", "fallback", "start"),
        ("sjf", "", "start"), ("tetris", "", "start"),
    ]  # fmt: skip
    assert verdicts[0].message == "there is no policy 'magic'; installed are: fifo, sjf, tetris"


async def test_neighbours_are_those_allocated_and_those_started_with_it() -> None:
    held = job("held", "5Gi", status=running("shared-0"))
    queue = [job(name, "5Gi", status={"phase": "Queued"}) for name in ("one", "two")]
    objects = lists(node(), partition(), server("shared-0", held), held, *queue)
    verdicts = await ask_policies(state_of(objects), "uid-two", "shared", NOW)
    assert verdicts[0].gpus == ("shared-0",)
    assert verdicts[0].beside == ("team/held", "team/one")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (3599, "59m59s"), (7500, "2h05m")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds).total_seconds()) == text
