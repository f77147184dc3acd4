"""When the jobs and Pods in a file would start, and what would make it sooner."""

import json

import pytest
import yaml

from cli.objects import BORN, create, job, lists, node, partition, running, server
from partita.cli.cluster_state import state_of
from partita.cli.explain.planned import requests_in
from partita.console import expected_start
from partita.console.expected_start import PlannedStart, StartPlanner
from partita.models import EstimatedStart
from support.api import Api
from support.builders import at

AT_ONCE = EstimatedStart(earliest=at(30), latest=at(30), probability=0.9, as_of=at(30))


async def answers(
    asks: dict, *objects: dict, duration: str | None = "10m", budget: float = expected_start.BUDGET
) -> PlannedStart:
    """When a job starts and after whom, and the same with the changes that make it sooner."""
    busy = job("busy", "30Gi", expectedDuration=duration, status=running("shared-0"))
    pool = partition(maxPriority=5)
    state = state_of(lists(node(), pool, server("shared-0", busy), busy, *objects))
    planned = job("planned", **{"memory": "8Gi", "expectedDuration": "60s", **asks})
    ((_, request),) = requests_in("f", yaml.safe_dump(planned).encode(), state)
    return await StartPlanner(state, at(30), budget).plan("SharedGPUJob", "planned", request)


def before(**status) -> dict:
    queued = {"phase": "Queued", **status}
    return job("before", "35Gi", expectedDuration="30m", status=queued)


async def test_what_would_make_a_job_start_sooner_is_tried_in_the_same_futures() -> None:
    plan = await answers({})
    first = plan.start
    assert at(330) < first.earliest < at(610) < first.latest < at(930)
    assert plan.after == "team/busy"
    plan = await answers({}, partition("other"), server("other-0", of="other"), before())
    assert (plan.start.earliest > first.latest, plan.after) == (True, "team/before")
    less = "4.0 GiB of GPU memory, if that is enough"
    sooner = {one.change: one.start for one in plan.sooner}
    assert at(330) < sooner.pop("priority 5").latest < at(930)
    assert sooner == {less: AT_ONCE, "partition other": AT_ONCE}


@pytest.mark.parametrize(
    ("asks", "duration", "why"),
    [
        ({"memory": "50Gi"}, "10m", "needs 50.0 GiB of GPU memory, but the largest GPU"),
        ({"partition": "missing"}, "10m", "there is no GPUPartition missing"),
        ({}, None, "how long the jobs here run is unknown"),
    ],
)  # fmt: skip
async def test_where_nothing_can_be_said_there_is_a_reason(asks, duration, why) -> None:
    start = (await answers(asks, duration=duration)).start
    assert (start.latest, why in start.reason) == (None, True)


async def test_a_long_queue_is_simulated_only_for_a_while() -> None:
    plan = await answers({}, before(estimatedStart={"latest": BORN}), budget=0.0)
    assert plan.start.reason.endswith("team/before, the last one before it, is to start by "
                                      "2026-01-01 12:00 UTC")  # fmt: skip
    assert plan.unreached == ["50 % of the threads", "priority 5"]


async def test_the_commands_read_the_cluster(partita, api: Api, tmp_path) -> None:
    alone, accuracy = partition("alone"), {"started": 40, "held": 37, "medianWidth": "1m30s"}
    alone["status"]["estimatedStarts"] = {**accuracy, "medianError": "20s"}
    await create(api, alone)
    try:
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(job("planned", "20Gi", partition="alone")))
        said = "SharedGPUJob/planned in partition alone starts at a time of which nothing"
        assert said in (await partita("when", str(file))).stdout
        submit = ("submit", "planned", "--partition", "alone", "--image", "i", "-n", "default")
        assert said in (await partita(*submit, "--when")).stdout
        jobs = "/apis/partita.dev/v1alpha1/namespaces/default/sharedgpujobs"
        assert not (await api.get(jobs)).ok().body["items"]
        (found,) = json.loads((await partita("when", str(file), "-o", "json")).stdout)
        assert (found["name"], found["start"]["latest"], found["sooner"]) == ("planned", None, [])
        table = (await partita("when", "--accuracy")).stdout
        assert "alone 40 92.5 % 1m30s 20s" in " ".join(table.split())
        (known,) = json.loads((await partita("when", "--accuracy", "-o", "json")).stdout)
        assert known == {"partition": "alone", **accuracy, "medianWidth": 90, "medianError": 20}
    finally:  # its GPUs are those of other tests
        await api.delete("/apis/partita.dev/v1alpha1/gpupartitions/alone")
