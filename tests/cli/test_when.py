"""When the jobs and Pods in a file would start, and what would make it sooner."""

import json

import pytest
import yaml

from cli.objects import create, job, lists, node, partition, running, server
from partita.cli.cluster_state import state_of
from partita.cli.explain.planned import requests_in
from partita.console.expected_start import ExpectedStart, expected_start, sooner_starts
from support.api import Api
from support.builders import at


async def answers(asks: dict, *objects: dict, duration: str | None = "10m"):
    busy = job("busy", "30Gi", expectedDuration=duration, status=running("shared-0"))
    state = state_of(lists(node(), partition(), server("shared-0", busy), busy, *objects))
    planned = job("planned", **{"memory": "8Gi", "expectedDuration": "60s", **asks})
    ((_, request),) = requests_in("f", yaml.safe_dump(planned).encode(), state)
    start = await expected_start(request, state, at(30))
    return start, {
        one.change: one.start for one in await sooner_starts(request, start, state, at(30))
    }


async def test_what_would_make_a_job_start_sooner_is_tried() -> None:
    start, sooner = await answers({}, partition("other"), server("other-0", of="other"))
    assert 300 < start.earliest < 580 < start.latest < 900
    assert sooner == {
        "4.0 GiB of GPU memory, if that is enough": ExpectedStart(0.0, 0.0),
        "partition other": ExpectedStart(0.0, 0.0),
    }


@pytest.mark.parametrize(
    ("asks", "duration", "why"),
    [
        ({"memory": "50Gi"}, "10m", "needs 50.0 GiB of GPU memory, but the largest GPU"),
        ({"partition": "missing"}, "10m", "there is no GPUPartition missing: name one of shared"),
        ({}, None, "how long the jobs here run is unknown"),
    ],
)  # fmt: skip
async def test_where_nothing_can_be_said_there_is_a_reason(asks, duration, why) -> None:
    start, _ = await answers(asks, duration=duration)
    assert (start.latest, why in start.reason) == (None, True)


async def test_the_command_reads_the_cluster(partita, api: Api, tmp_path) -> None:
    await create(api, partition("alone"))
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("planned", "20Gi", partition="alone")))
    text = (await partita("when", str(file))).stdout
    assert "SharedGPUJob/planned in partition alone starts at a time of which nothing" in text
    (found,) = json.loads((await partita("when", str(file), "-o", "json")).stdout)
    assert (found["name"], found["start"]["latest"], found["sooner"]) == ("planned", None, [])
    await api.delete("/apis/partita.dev/v1alpha1/gpupartitions/alone")
