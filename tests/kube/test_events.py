"""Events: said once, in the background, and never so many that they matter."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from partita.kube import events as events_module
from partita.kube.errors import ForbiddenError
from partita.kube.events import Events, EventSubject
from support.builders import a_job, a_partition
from support.fake_kube import FakeKube


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
def events(kube: FakeKube) -> Events:
    return Events(kube)  # type: ignore[arg-type]


def written(kube: FakeKube) -> list[dict[str, Any]]:
    """Return the events that the API server took."""
    return [body for _, name, body in kube.writes if name in kube.created]


async def all_written(events: Events) -> None:
    task = asyncio.create_task(events.run())
    while events._queue:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()


@pytest.mark.parametrize(
    ("subject", "kind", "name", "where"),
    [
        (a_job(), "partita.dev/v1alpha1 SharedGPUJob", "train", "team-a"),
        (EventSubject.pod("team-a", "serve", "uid-serve"), "v1 Pod", "serve", "team-a"),
        (a_partition(), "partita.dev/v1alpha1 GPUPartition", "shared", ""),
    ],
)
async def test_an_event_tells_of_its_object(
    kube: FakeKube, events: Events, subject: Any, kind: str, name: str, where: str
):
    """Those of the cluster have no namespace; the API server takes their Events in `default`."""
    events.warn(subject, "VariableOverridden", "x" * 2000)
    events.warn(subject, "VariableOverridden", "x" * 2001)
    events.inform(subject, "Carving", "one more")
    await all_written(events)
    event, other = written(kube)
    about = event["involvedObject"]
    assert event["metadata"]["namespace"] == (where or "default")
    assert event["metadata"]["name"].startswith(f"{name}.")
    assert f"{about['apiVersion']} {about['kind']}" == kind
    assert (about["name"], about["namespace"], about["uid"]) == (name, where, f"uid-{name}")
    assert (event["type"], event["reason"]) == ("Warning", "VariableOverridden")
    assert (len(event["message"]), other["type"]) == (1024, "Normal")


async def test_the_same_is_not_said_twice_until_a_while_has_passed(
    kube: FakeKube, events: Events, monkeypatch: pytest.MonkeyPatch
):
    times = iter([0.0, 1.0, 2.0, 299.0, 300.0])
    clock = SimpleNamespace(monotonic=lambda: next(times), time_ns=time.time_ns)
    monkeypatch.setattr(events_module, "time", clock)
    for about in ("a", "a", "b", "a", "a"):
        events.warn(a_job(), "Reason", about)
    await all_written(events)
    assert [event["message"] for event in written(kube)] == ["a", "b", "a"]


async def test_one_that_cannot_be_written_does_not_stop_the_next(kube: FakeKube, events: Events):
    kube.errors = [ForbiddenError("create", 403, "no")]
    events.warn(a_job(), "Reason", "first")
    events.warn(a_job(), "Reason", "second")
    await all_written(events)
    assert [event["message"] for event in written(kube)] == ["second"]


async def test_a_flood_of_one_namespace_is_cut_off_and_does_not_delay_those_of_others(
    kube: FakeKube, events: Events
):
    for n in range(7000):
        events.warn(a_job(), "Reason", f"message {n}")
    assert len(events._said) <= 5000
    events.warn(EventSubject.pod("team-b", "a-" * 126, "uid-b"), "Reason", "message")
    await all_written(events)
    assert max(len(event["metadata"]["name"]) for event in written(kube)) < 254
    spaces = [event["metadata"]["namespace"] for event in written(kube)]
    assert (spaces.index("team-b") <= 1, len(spaces)) == (True, 501)


async def test_dropped_events_are_counted_in_a_log_line_a_minute_and_one_at_the_end(
    kube: FakeKube, events: Events, monkeypatch: pytest.MonkeyPatch
):
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns)
    monkeypatch.setattr(events_module, "time", clock)

    def flood(reason: str, number: int) -> list[Any]:
        with structlog.testing.capture_logs() as logs:
            for n in range(number):
                events.warn(a_job(), reason, f"message {n}")
        return [(line["event"].partition(":")[0], line["number"], line["last"]) for line in logs]

    assert flood("Fits", 500) == []
    assert flood("First", 20) == [("events dropped", 1, "First: message 0")]
    now[0] += 59.9
    assert flood("Second", 20) == []
    now[0] += 0.1
    assert flood("Third", 20) == [("events dropped", 40, "Third: message 0")]
    with structlog.testing.capture_logs() as logs:
        await all_written(events)
    assert [line["number"] for line in logs] == [19]
