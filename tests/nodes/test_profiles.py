"""The ApplicationProfiles of what ran on simulated nodes."""

from __future__ import annotations

import pytest

from partita.models.quantities import parse_duration
from partita_testcluster.nodes.gpu import GIB, Ended, UsageSample
from partita_testcluster.nodes.simulated_profiles import SimulatedProfiles, uses

PROFILES = "/apis/partita.dev/v1alpha1/namespaces/{}/applicationprofiles"


def test_a_run_is_cut_into_equal_steps_with_peak_memory_and_mean_use() -> None:
    history = (UsageSample(10.0, GIB, 20.0), UsageSample(42.0, 4 * GIB, 60.0))
    steps = uses(Ended("a", 74.0, 4 * GIB, history=history))
    assert len(steps) == 64
    assert {step.memory for step in steps[:31]} == {GIB}
    assert {step.memory for step in steps[33:]} == {4 * GIB}
    assert steps[0].utilization == pytest.approx(20.0)
    assert steps[-1].utilization == pytest.approx(60.0)


async def test_the_runs_of_an_application_that_succeed_are_merged(
    cluster, nodes, node_spec
) -> None:
    path = PROFILES.format(cluster.namespace)
    async with nodes.running(node_spec(gpus=1)):
        server = await cluster.ready(await cluster.server())
        sim = {"duration": "20s", "memory": "1Gi,3Gi", "gpu": "40"}
        await cluster.job("first", server, application="My App", **sim)
        await cluster.job("bad", server, application="My App", exit_code="1", duration="1s")
        await cluster.job("other", server, duration="1s")
        for name in ("first", "bad", "other"):
            await cluster.ended(name)
        one = await cluster.api.until(path, lambda found: found["items"])
        await cluster.job("second", server, application="My App", **sim)
        await cluster.ended("second")
        both = await cluster.api.until(
            path, lambda found: found["items"][0]["spec"]["measurements"][0]["runs"] == 2
        )
    (profile,) = one["items"]
    (measured,) = profile["spec"]["measurements"]
    assert profile["spec"]["application"] == "My App"
    assert measured["environment"]["product"] == "NVIDIA A100-SXM4-40GB"
    assert measured["steps"][0]["gpuMemory"] == "1Gi"
    assert measured["steps"][-1]["gpuMemory"] == "3Gi"
    assert 20 <= parse_duration(measured["duration"]) < 40
    assert [item["metadata"]["name"] for item in both["items"]] == [profile["metadata"]["name"]]


async def test_a_gpu_that_comes_while_a_profile_is_written_stops_no_pod(
    cluster, nodes, node_spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = SimulatedProfiles.keep

    async def beside_a_new_gpu(*args: object, **more: object) -> None:
        await cluster.ready(await cluster.server())
        await keep(*args, **more)

    monkeypatch.setattr(SimulatedProfiles, "keep", beside_a_new_gpu)
    async with nodes.running(node_spec(gpus=2)):
        server = await cluster.ready(await cluster.server())
        await cluster.job("first", server, application="My App", duration="2s", memory="1Gi")
        await cluster.api.until(PROFILES.format(cluster.namespace), lambda found: found["items"])
        await cluster.job("second", server, duration="1s")
        await cluster.ended("second")
