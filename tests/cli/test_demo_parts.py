"""The demo's parts by themselves: its events, its summary, and what it is compared with."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from rich.live import Live

from cli.objects import attempt, job, lists, node, partition, server
from cli.test_pictures import drawn
from partita.cli.cluster.install import create
from partita.cli.cluster_state import state_of
from partita.cli.terminal import UserError
from partita.console.view import partitions_view
from partita.constants import OTHERS_JOB
from partita.models import SharedGPUJob
from partita.models.partition_status import ShadowStatus
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.demo_display import DemoDisplay
from partita_testcluster.cli.demo_events import DemoEvents, settled
from partita_testcluster.cli.demo_result import makespan, rows, summary
from partita_testcluster.cli.examples import load_examples, work_of
from partita_testcluster.cli.one_job_per_gpu import one_job_per_gpu
from partita_testcluster.nodes.gpu import Work

BEGAN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GIB = 1 << 30


def work(name: str, duration: float) -> Work:
    return Work(name, duration, (GIB,), (50.0,))


def done(after: int, kind: str = "Complete") -> list[dict[str, str]]:
    at = (BEGAN + timedelta(seconds=after)).isoformat()
    return [{"type": kind, "status": "True", "reason": "x", "lastTransitionTime": at}]


def at(second: int) -> str:
    return (BEGAN + timedelta(seconds=second)).isoformat()


LAMMPS = job("lammps", "6Gi", application="lammps", status={
    "phase": "Succeeded", "conditions": done(30),
    "attempts": [
        attempt(1, "shared-0", memory="6Gi", bookedTime=at(1), endTime=at(8),
                outcome="OutOfMemory", beside=["team/vgg"]),
        attempt(2, "shared-1", memory="9Gi", bookedTime=at(12), endTime=at(29),
                outcome="Succeeded"),
    ],
})  # fmt: skip
VGG = job("vgg", "6Gi", application="vgg16", status={
    "phase": "Succeeded", "conditions": done(10),
    "attempts": [attempt(1, "shared-0", memory="6Gi", bookedTime=at(0), endTime=at(10),
                         outcome="Succeeded")],
})  # fmt: skip
LATE = job("late", "6Gi", namespace="another", status={
    "phase": "Failed", "reason": "RetryLimitExceeded", "conditions": done(22, "Failed"),
    "attempts": [attempt(1, "shared-1", memory="6Gi", bookedTime=at(20), endTime=at(22),
                         outcome="Failed"),
                 attempt(2, "shared-1", memory="6Gi", bookedTime=at(20), endTime=at(22),
                         outcome="Failed")],
})  # fmt: skip
HUGE = job("huge", "96Gi", status={
    "phase": "Queued", "reason": "NeverFits", "message": "needs 96.0 GiB: ask for less",
})  # fmt: skip
PAUSED = job("paused", "6Gi", suspend=True, status={"phase": "Suspended"})
NEW = job("new", "6Gi", status={"estimatedStart": {"earliest": at(31), "latest": at(33)}})
ALL = (LAMMPS, VGG, LATE, HUGE, PAUSED, NEW)


def state():
    return state_of(
        lists(node(), partition(), server("shared-0"), server("shared-1", ready=False), *ALL)
    )


CLOCK = DemoClock(10.0, BEGAN)


def test_one_job_per_gpu_takes_turns_in_the_order_of_submission() -> None:
    jobs = [(work("a", 10), 0), (work("b", 4), 0), (work("c", 5), 0), (work("d", 3), 0)]
    assert one_job_per_gpu(jobs, gpus=2, memory=8 * GIB) == 12.0
    assert one_job_per_gpu(jobs, gpus=1, memory=8 * GIB) == 22.0
    assert one_job_per_gpu([], gpus=1, memory=8 * GIB) == 0.0


def test_alone_only_the_gpu_limits_a_jobs_memory() -> None:
    grows = Work("a", 10, (GIB, 9 * GIB), (50.0,))
    assert one_job_per_gpu([(grows, 2)], gpus=1, memory=10 * GIB) == 10.0
    assert one_job_per_gpu([(grows, 2)], gpus=1, memory=8 * GIB) == 15.0


def test_each_event_is_reported_once() -> None:
    history = DemoEvents(CLOCK)
    events = history.update(state(), BEGAN + timedelta(seconds=30))
    assert [f"{e.subject} {e.what}" for e in events] == [
        "shared-0 is ready: NVIDIA A100-SXM4-40GB on node-1",
        "shared-1 is unready",
        "lammps starts on shared-0 beside vgg",
        "lammps ran out of GPU memory at 6.0 GiB: queued again for more memory",
        "lammps starts again on shared-1 with 9.0 GiB",
        "lammps has succeeded after 3m00s",
        "vgg starts on shared-0",
        "vgg has succeeded after 1m40s",
        "late starts on shared-1",
        "late attempt 1 ended: Failed",
        "late starts again on shared-1 with 6.0 GiB",
        "late attempt 2 ended: Failed",
        "late has failed: RetryLimitExceeded",
        "huge waits: needs 96.0 GiB",
        "paused is suspended; `partita resume` queues it",
        "new waits; starts between 5m10s and 5m30s, with 90 %",
    ]
    assert {e.at for e in events} == {300.0}
    assert history.update(state(), BEGAN + timedelta(seconds=31)) == []


def test_jobs_whose_names_the_status_hides_are_counted() -> None:
    job = {**LAMMPS, "status": {"phase": "Running", "attempts": [
        attempt(1, "shared-0", beside=["team/vgg", OTHERS_JOB, OTHERS_JOB])]}}  # fmt: skip
    cluster = state_of(lists(node(), partition(), server("shared-0"), job))
    events = DemoEvents(CLOCK).update(cluster, BEGAN + timedelta(seconds=30))
    others = "2 jobs or workloads of other namespaces"
    assert events[-1].what == f"starts on shared-0 beside vgg, {others}"


def test_a_job_is_settled_when_only_yaml_helps() -> None:
    assert [settled(SharedGPUJob.parse(body)) for body in ALL] == [True] * 5 + [False]


def test_the_summary_has_a_line_for_each_job(text_golden) -> None:
    jobs = list(state().jobs.values())
    picture = summary(
        rows(jobs, CLOCK),
        width=100,
        taken=makespan(jobs, CLOCK),
        alone=450.0,
        gpus=2,
        speed=10.0,
        shadows=[ShadowStatus(name="fifo", cycles=8, agreed=5)],
    )
    text_golden("summary.txt", drawn(picture, 100))


def test_the_examples_are_read_with_their_work() -> None:
    examples = load_examples("sjf")
    assert examples.partition.spec.policy.name == "sjf"
    jobs = [SharedGPUJob.parse(body) for body in examples.jobs]
    lammps = next(job for job in jobs if job.metadata.name == "lammps-melt")
    assert work_of(lammps).duration == 100.0
    assert max(work_of(lammps).memory) > (lammps.spec.gpu_memory or 0)


async def test_other_kinds_are_left_to_kubectl() -> None:
    with pytest.raises(UserError, match="use kubectl for it"):
        await create(None, {"apiVersion": "v1", "kind": "ConfigMap"})  # type: ignore[arg-type]


def test_without_a_terminal_the_display_prints_lines(capsys) -> None:
    display = DemoDisplay(None)
    display.step("starting")
    now = BEGAN + timedelta(seconds=30)
    display.show(partitions_view(state(), now), DemoEvents(CLOCK).update(state(), now)[:1], 300.0)
    display.close()
    said = capsys.readouterr()
    assert said.err == "starting\n 5m00s  shared-0 is ready: NVIDIA A100-SXM4-40GB on node-1\n"
    assert not said.out


@pytest.mark.parametrize("height", [16, 40])
def test_in_a_terminal_the_display_fits_the_screen(height: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=height)
    with Live(console=console, auto_refresh=False) as live:
        display = DemoDisplay(live)
        display.step("starting")
        now = BEGAN + timedelta(seconds=30)
        seen = partitions_view(state(), now)
        display.show(seen, DemoEvents(CLOCK).update(state(), now), 300.0)
        picture = drawn(live.renderable, 80)
        display.close()
    lines = picture.splitlines()
    assert len(lines) <= height
    assert lines[0] == "Partita demo  starting · 5m00s"
    assert lines[-1].endswith("new waits; starts between 5m10s and 5m30s, with 90 %")
    assert max(map(len, lines)) <= 80
