"""Jobs on a fake GPU beside the whole agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.claims import allocate
from agent.node import Node, ended, serve
from support.polling import until


async def test_clients_are_idle_only_if_the_gpu_is(node: Node):
    """NVML credits what MPS's clients compute to the server: it says 0 of each of them."""
    node.times = replace(node.times, idle_after=0.5)
    await serve(node)
    busy, other = await allocate(node, "busy", 1000), await allocate(node, "other", 1000)
    program = busy.run("alloc:100", "forever")
    other.run("alloc:100", "sleep:60000")
    await node.until(lambda b: all(job.used(b).get("gpuUtilization") for job in (busy, other)))
    assert node.agent is not None
    jobs = node.agent.jobs
    at = jobs.sample.at if jobs.sample is not None else 0.0
    await until(lambda: jobs.sample is not None and jobs.sample.at >= at + 1)
    body = await node.body()
    assert not any("idleSince" in job.used(body) for job in (busy, other))
    program.terminate()
    await node.until(lambda b: "idleSince" in other.used(b))


async def test_a_job_with_the_gpu_to_itself_is_never_stopped(node: Node):
    await serve(node, "Exclusive")
    job = await allocate(node, "alone", 1000)
    program = job.run("alloc:30000", "forever")
    await node.until(lambda b: job.used(b).get("peakMemory") == "30300Mi")
    assert node.agent is not None
    jobs = node.agent.jobs
    before = jobs.sample
    await until(lambda: jobs.sample is not before)
    assert program.poll() is None


@pytest.mark.smoke
async def test_a_run_that_succeeded_is_kept_as_a_profile(node: Node):
    await serve(node)
    job = await allocate(node, "train", 2000, application="ResNet50")
    program = job.run("sigterm:0", "alloc:500", "forever:0:70")
    await node.until(lambda b: job.used(b).get("gpuUtilization", 0) > 0)
    program.terminate()
    assert (await ended(program))[0] == 0
    await job.ends()
    await job.release()
    path = f"/apis/partita.dev/v1alpha1/namespaces/{node.namespace}/applicationprofiles"
    (profile,) = (await node.api.until(path, lambda found: found["items"]))["items"]
    assert profile["spec"]["application"] == "ResNet50"
    (measured,) = profile["spec"]["measurements"]
    assert (measured["runs"], measured["environment"]["product"]) == (1, "NVIDIA A100-SXM4-40GB")
    assert max(s["gpuMemory"] for s in measured["steps"]) == "800Mi"
    assert 0 < max(s["gpuUtilization"] for s in measured["steps"]) <= 70
