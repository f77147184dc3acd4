"""Jobs on a fake GPU beside the whole agent."""

from __future__ import annotations

import signal

import pytest

from agent.node import Node, condition, ended, serve
from gpu.fake import MIB
from partita.agent.usage import job_usage
from support.polling import until


async def sampled(node: Node, seconds: float) -> None:
    """Wait until the agent has sampled the GPU for so long."""
    assert node.agent is not None
    jobs = node.agent.jobs
    first = await until(lambda: jobs.sample)
    await until(lambda: jobs.sample is not None and jobs.sample.at >= first.at + seconds)


async def test_it_acquires_the_gpu_serves_it_and_reports_it(node: Node):
    await serve(node)
    status = (await node.body())["status"]
    assert status["node"] == "node-a"
    assert status["uuid"] == node.uuid
    assert (status["product"], status["memory"]) == ("NVIDIA A100-SXM4-40GB", "40960Mi")
    assert (status["smCount"], status["driverVersion"]) == (108, "580.95.05")
    assert (status["mps"]["state"], status["mps"]["clients"]) == ("Ready", 0)
    assert node.gpus.mode() == 3


async def test_an_idle_gpu_is_not_written_about(node: Node):
    await serve(node)
    before = (await node.body())["metadata"]["resourceVersion"]
    await sampled(node, 1)
    assert (await node.body())["metadata"]["resourceVersion"] == before


async def test_three_jobs_share_the_gpu_and_the_usage_of_each_is_reported(node: Node):
    await serve(node)
    jobs = [await node.allocate(f"job-{n}", 1000) for n in range(3)]
    programs = [job.run(f"alloc:{100 * (n + 1)}", "forever") for n, job in enumerate(jobs)]

    def told(body) -> bool:
        peaks = [job.used(body).get("peakMemory") for job in jobs]
        return peaks == ["400Mi", "500Mi", "600Mi"]

    await node.until(told)
    await node.until(lambda b: b["status"]["usage"]["memory"] == "1500Mi")
    await node.until(lambda b: b["status"]["mps"]["clients"] == 3)
    assert all(program.poll() is None for program in programs)


async def test_clients_are_idle_only_if_the_gpu_is(node: Node, monkeypatch: pytest.MonkeyPatch):
    """NVML credits what MPS's clients compute to the server: it says 0 of each of them."""
    monkeypatch.setattr(job_usage, "IDLE_AFTER", 1.0)
    await serve(node)
    busy, other = await node.allocate("busy", 1000), await node.allocate("other", 1000)
    program = busy.run("alloc:100", "forever")
    other.run("alloc:100", "sleep:60000")
    await node.until(lambda b: all(job.used(b).get("gpuUtilization") for job in (busy, other)))
    await sampled(node, 2)
    body = await node.body()
    assert not any("idleSince" in job.used(body) for job in (busy, other))
    program.terminate()
    await node.until(lambda b: "idleSince" in other.used(b))


async def test_a_program_above_its_memory_is_terminated_alone(node: Node):
    await serve(node)
    greedy, modest = await node.allocate("greedy", 1000), await node.allocate("modest", 1000)
    neighbour = modest.run("alloc:500", "forever")
    await node.until(lambda b: modest.used(b).get("peakMemory") == "800Mi")
    program = greedy.run("unset", "alloc:2000", "forever")
    await until(lambda: node.gpus.pids().get(program.pid, 0) >= 2000 * MIB)
    code, said, _ = await ended(program)
    assert (code, "terminated by the server" in said) == (1, True)
    assert neighbour.poll() is None
    (event,) = await until(greedy.events)
    assert (event["reason"], event["type"]) == ("AboveAllocation", "Warning")
    assert "1000Mi allocated" in event["message"]
    assert await modest.events() == []
    body = await node.until(lambda b: greedy.used(b).get("peakMemory") == "2300Mi")
    assert condition(body, "Ready")[0] == "True"


async def test_in_time_slicing_a_program_above_its_allocation_is_killed_alone(node: Node):
    await serve(node, "TimeSlicing")
    assert node.gpus.mode() == 0
    assert "mps" not in (await node.body())["status"]
    greedy, modest = await node.allocate("greedy", 1000), await node.allocate("modest", 1000)
    neighbour = modest.run("alloc:500", "forever")
    program = greedy.run("alloc:2000", "forever")
    code, _, _ = await ended(program)
    assert code == -signal.SIGKILL
    assert neighbour.poll() is None


async def test_a_job_with_the_gpu_to_itself_is_never_stopped(node: Node):
    await serve(node, "Exclusive")
    job = await node.allocate("alone", 1000)
    program = job.run("alloc:30000", "forever")
    await node.until(lambda b: job.used(b).get("peakMemory") == "30300Mi")
    await sampled(node, 0.5)
    assert program.poll() is None


async def test_a_run_that_succeeded_is_kept_as_a_profile(node: Node):
    await serve(node)
    job = await node.allocate("train", 2000, application="ResNet50")
    program = job.run("alloc:500", "compute:2500:70")
    await node.until(lambda b: job.used(b).get("peakMemory") == "800Mi")
    assert (await ended(program))[0] == 0
    await job.ends()
    await job.release()
    path = f"/apis/partita.dev/v1alpha1/namespaces/{node.namespace}/applicationprofiles"
    (profile,) = (await node.api.until(path, lambda found: found["items"]))["items"]
    assert profile["spec"]["application"] == "ResNet50"
    (measured,) = profile["spec"]["measurements"]
    assert (measured["runs"], measured["environment"]["product"]) == (1, "NVIDIA A100-SXM4-40GB")
    assert max(s["gpuMemory"] for s in measured["steps"]) == "800Mi"
    assert 30 < max(s["gpuUtilization"] for s in measured["steps"]) <= 70

    again = await node.allocate("again", 2000, application="ResNet50")
    program = again.run("alloc:600", "compute:1200:70")
    await node.until(lambda b: again.used(b).get("peakMemory") == "900Mi")
    await ended(program)
    await again.ends()
    await again.release()
    name = profile["metadata"]["name"]
    profile = await node.api.until(
        f"{path}/{name}", lambda found: found["spec"]["measurements"][0]["runs"] == 2
    )
    (measured,) = profile["spec"]["measurements"]
    assert max(s["gpuMemory"] for s in measured["steps"]) == "900Mi"


async def test_a_run_that_failed_spoils_no_profile(node: Node):
    await serve(node)
    job = await node.allocate("train", 2000, application="resnet")
    program = job.run("alloc:100", "compute:800", "alloc:5000")
    await node.until(lambda b: job.used(b).get("peakMemory"))
    assert "out of memory" in (await ended(program))[1]
    await job.ends("Failed", 1)
    await job.release()
    await node.until(lambda b: not job.used(b))
    # Runs are merged one after the other: the next one shows that this one was not.
    other = await node.allocate("other", 2000, application="other")
    program = other.run("alloc:100", "compute:800:70")
    await node.until(lambda b: other.used(b).get("peakMemory"))
    await ended(program)
    await other.ends()
    await other.release()
    path = f"/apis/partita.dev/v1alpha1/namespaces/{node.namespace}/applicationprofiles"
    (profile,) = (await node.api.until(path, lambda found: found["items"]))["items"]
    assert profile["spec"]["application"] == "other"


async def test_twenty_five_small_programs_share_one_gpu(node: Node):
    """Like TensorFlow's, each with 5 % of the GPU's memory allocated and less in use."""
    await serve(node)
    jobs = [await node.allocate(f"small-{n}", 2048) for n in range(25)]
    programs = [job.run("alloc:900", "forever") for job in jobs]
    await node.until(lambda b: [job.used(b).get("memory") for job in jobs] == ["1200Mi"] * 25)
    await node.until(lambda b: b["status"]["mps"]["clients"] == 25)
    assert all(program.poll() is None for program in programs)
    assert condition(await node.body(), "Ready")[0] == "True"
