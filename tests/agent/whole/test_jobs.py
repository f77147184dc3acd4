"""Jobs on a fake GPU beside the whole agent."""

from __future__ import annotations

import asyncio
import signal

from agent.node import Node, condition, ended, healths, serve
from gpu.fake import MIB


async def test_it_claims_the_gpu_serves_it_and_reports_it(node: Node):
    await serve(node)
    status = (await node.body())["status"]
    assert status["node"] == "node-a"
    assert status["uuid"] == node.uuid
    assert (status["product"], status["memory"]) == ("NVIDIA A100-SXM4-40GB", "40960Mi")
    assert (status["smCount"], status["driverVersion"]) == (108, "580.95.05")
    assert status["mps"] == {"state": "Ready", "clients": 0}
    assert node.gpus.mode() == 3
    assert await healths(node) == {"Healthy"}


async def test_an_idle_gpu_is_not_written_about(node: Node):
    await serve(node)
    before = (await node.body())["metadata"]["resourceVersion"]
    await asyncio.sleep(1)
    assert (await node.body())["metadata"]["resourceVersion"] == before


async def test_three_jobs_share_the_gpu_and_each_ones_use_is_told(node: Node):
    await serve(node)
    jobs = [await node.allocate(f"job-{n}", 1000) for n in range(3)]
    programs = [job.run(f"alloc:{100 * (n + 1)}", "forever") for n, job in enumerate(jobs)]

    def told(body) -> bool:
        peaks = [job.used(body).get("peakMemory") for job in jobs]
        return peaks == ["400Mi", "500Mi", "600Mi"]

    await node.until(told)
    await node.until(lambda b: b["status"]["usage"]["memory"] == "1500Mi")
    await node.until(lambda b: b["status"]["mps"] == {"state": "Ready", "clients": 3})
    assert all(program.poll() is None for program in programs)


async def test_a_program_that_takes_twice_its_allocation_is_stopped_alone_within_two_seconds(
    node: Node,
):
    await serve(node)
    greedy, modest = await node.allocate("greedy", 1000), await node.allocate("modest", 1000)
    neighbour = modest.run("alloc:500", "forever")
    await node.until(lambda b: modest.used(b).get("peakMemory") == "800Mi")
    program = greedy.run("unset", "alloc:2000", "forever")
    await asyncio.to_thread(
        node.gpus.until, lambda: node.gpus.pids().get(program.pid, 0) >= 2000 * MIB
    )
    code, said, seconds = await ended(program)
    assert (code, "terminated by the server" in said) == (1, True)
    assert seconds < 2
    assert neighbour.poll() is None
    async with asyncio.timeout(10):
        while not (events := await greedy.events()):
            await asyncio.sleep(0.05)
    (event,) = events
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
    await asyncio.sleep(0.5)
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
    async with asyncio.timeout(10):
        while not (items := (await node.api.get(path)).ok().body["items"]):
            await asyncio.sleep(0.05)
    (profile,) = items
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
    async with asyncio.timeout(10):
        while True:
            (measured,) = (await node.api.get(f"{path}/{name}")).body["spec"]["measurements"]
            if measured["runs"] == 2:
                break
            await asyncio.sleep(0.05)
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
    await asyncio.sleep(0.3)
    path = f"/apis/partita.dev/v1alpha1/namespaces/{node.namespace}/applicationprofiles"
    assert (await node.api.get(path)).ok().body["items"] == []


async def test_twenty_five_small_programs_share_one_gpu(node: Node):
    """Like TensorFlow's, each with 5 % of the GPU's memory allocated and less in use."""
    await serve(node)
    jobs = [await node.allocate(f"small-{n}", 2048) for n in range(25)]
    programs = [job.run("alloc:900", "forever") for job in jobs]
    await node.until(lambda b: [job.used(b).get("memory") for job in jobs] == ["1200Mi"] * 25)
    await node.until(lambda b: b["status"]["mps"]["clients"] == 25)
    assert all(program.poll() is None for program in programs)
    assert condition(await node.body(), "Ready")[0] == "True"
