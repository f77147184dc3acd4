"""The whole agent, on a fake GPU, with a kubelet and an API server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from agent.kubelet import health_of
from agent.world import Node, condition, ended, node_for_test
from gpu.fake import MIB, FakeGPUs
from partita.agent import daemon, device_plugin, gpu_watch, main, mps_watch, report, setup
from partita.agent import threads as threads_module
from partita.agent.health import XidKind
from partita.agent.mps import ControlDaemon, ServerState
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds

_INSTALLED: set[str] = set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for seconds waits for less."""
    monkeypatch.setattr(main, "POLL_EVERY", 0.2)
    monkeypatch.setattr(main, "LOOK_EVERY", 0.5)
    monkeypatch.setattr(main, "REPORT_EVERY", 0.05)
    monkeypatch.setattr(main, "SET_UP_AGAIN", 0.1)
    monkeypatch.setattr(report, "NUMBERS_EVERY", 0.1)
    monkeypatch.setattr(report, "PEAKS_EVERY", 0.05)
    monkeypatch.setattr(device_plugin, "_POLL", 0.05)
    monkeypatch.setattr(daemon, "_POLL", 0.05)
    monkeypatch.setattr(daemon, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(daemon, "_END_DEADLINE", 1.0)
    monkeypatch.setattr(threads_module, "_AFTER_ERROR", 0.1)
    monkeypatch.setattr(threads_module, "_EVENT_WAIT", 50)
    monkeypatch.setattr(setup, "_LOCK_TRIES", 3)
    monkeypatch.setattr(mps_watch, "RESTART_AFTER", 1.0)
    monkeypatch.setattr(mps_watch, "TOLD_FOR", 1.0)
    monkeypatch.setattr(gpu_watch, "QUIET", {XidKind.FAULT: 0.5, XidKind.RESET: 1.0})


@pytest.fixture
async def node(
    api: Api, api_server: ApiServer, namespace: str, fake_gpus: FakeGPUs
) -> AsyncIterator[Node]:
    if api_server.url not in _INSTALLED:
        await install_crds(api)
        _INSTALLED.add(api_server.url)
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
    async with node_for_test(api, api_server, namespace, fake_gpus) as made:
        yield made


async def serve(node: Node, mode: str = "MPS") -> None:
    await node.create(mode)
    node.start_agent()
    if mode == "MPS":
        node.start_mps()
    await node.is_ready()


async def healths(node: Node) -> set[str]:
    asked = await node.kubelet.registered()
    watch = node.kubelet.watch(asked.endpoint)
    found = set(health_of(await watch.read()).values())
    watch.cancel()
    return found


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
    jobs = [await node.book(f"job-{n}", 1000) for n in range(3)]
    programs = [job.run(f"alloc:{100 * (n + 1)}", "forever") for n, job in enumerate(jobs)]

    def told(body) -> bool:
        peaks = [job.used(body).get("peakMemory") for job in jobs]
        return peaks == ["400Mi", "500Mi", "600Mi"]

    await node.until(told)
    await node.until(lambda b: b["status"]["usage"]["memory"] == "1500Mi")
    await node.until(lambda b: b["status"]["mps"] == {"state": "Ready", "clients": 3})
    assert all(program.poll() is None for program in programs)


async def test_a_program_that_takes_twice_its_booking_is_stopped_alone_within_two_seconds(
    node: Node,
):
    await serve(node)
    greedy, modest = await node.book("greedy", 1000), await node.book("modest", 1000)
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
    assert (event["reason"], event["type"]) == ("AboveBooking", "Warning")
    assert "1000Mi booked" in event["message"]
    assert await modest.events() == []
    body = await node.until(lambda b: greedy.used(b).get("peakMemory") == "2300Mi")
    assert condition(body, "Ready")[0] == "True"


async def test_in_time_slicing_a_program_above_its_booking_is_killed_alone(node: Node):
    await serve(node, "TimeSlicing")
    assert node.gpus.mode() == 0
    assert "mps" not in (await node.body())["status"]
    greedy, modest = await node.book("greedy", 1000), await node.book("modest", 1000)
    neighbour = modest.run("alloc:500", "forever")
    program = greedy.run("alloc:2000", "forever")
    code, _, _ = await ended(program)
    assert code == -signal.SIGKILL
    assert neighbour.poll() is None


async def test_a_job_with_the_gpu_to_itself_is_never_stopped(node: Node):
    await serve(node, "Exclusive")
    job = await node.book("alone", 1000)
    program = job.run("alloc:30000", "forever")
    await node.until(lambda b: job.used(b).get("peakMemory") == "30300Mi")
    await asyncio.sleep(0.5)
    assert program.poll() is None


async def test_a_run_that_succeeded_is_kept_as_a_profile(node: Node):
    await serve(node)
    job = await node.book("train", 2000, application="ResNet50")
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

    again = await node.book("again", 2000, application="ResNet50")
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
    job = await node.book("train", 2000, application="resnet")
    program = job.run("alloc:100", "compute:800", "alloc:5000")
    await node.until(lambda b: job.used(b).get("peakMemory"))
    assert "out of memory" in (await ended(program))[1]
    await job.ends("Failed", 1)
    await job.release()
    await node.until(lambda b: not job.used(b))
    await asyncio.sleep(0.3)
    path = f"/apis/partita.dev/v1alpha1/namespaces/{node.namespace}/applicationprofiles"
    assert (await node.api.get(path)).ok().body["items"] == []


async def test_a_fault_takes_all_clients_and_the_gpu_comes_back(node: Node):
    await serve(node)
    jobs = [await node.book(f"job-{n}", 1000) for n in range(2)]
    neighbour = jobs[0].run("alloc:100", "forever")
    await node.until(lambda b: jobs[0].used(b).get("peakMemory") == "400Mi")
    neighbour.send_signal(signal.SIGSTOP)  # it ignores the error, and so the fault lasts
    jobs[1].run("alloc:100", "fault")
    body = await node.says("MPSFault", "Faulted", "True")
    assert body["status"]["mps"]["state"] == "Faulted"
    assert condition(body, "Ready") == ("False", "MPSFault")
    assert await healths(node) == {"Unhealthy"}
    for job in jobs:
        await job.ends("Failed", 1)
        await job.release()
    neighbour.send_signal(signal.SIGCONT)
    body = await node.is_ready()
    assert condition(body, "Faulted")[0] == "False"
    assert condition(body, "Ready")[1] == "Recovered"
    late = await node.book("late", 1000)
    assert (await ended(late.run("alloc:100")))[0] == 0


async def test_a_fault_whose_victims_end_at_once_is_told_nevertheless(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    """When MPS is asked all is well again: its clients have left."""
    monkeypatch.setattr(ControlDaemon, "look", looks_well)
    await serve(node)
    jobs = [await node.book(f"job-{n}", 1000) for n in range(2)]
    neighbour = jobs[0].run("alloc:100", "forever")
    await node.until(lambda b: jobs[0].used(b).get("peakMemory") == "400Mi")
    jobs[1].run("alloc:100", "fault")
    assert (await ended(neighbour))[0] == 1
    await node.says("MPSFault", "Faulted", "True")
    for job in jobs:
        await job.release()
    await node.is_ready()


async def test_the_fault_of_a_job_that_had_the_gpu_to_itself_is_its_own(node: Node):
    await serve(node)
    job = await node.book("job", 1000)
    program = job.run("alloc:100", "fault")
    assert (await ended(program))[0] == 1
    body = await node.says("MPSFault")
    assert condition(body, "Faulted")[0] != "True"
    await job.release()
    await node.is_ready()


async def test_a_fault_that_only_the_servers_log_tells_of_is_told(node: Node):
    await serve(node)
    jobs = [await node.book(f"job-{n}", 1000) for n in range(2)]
    jobs[0].run("alloc:100", "forever")
    await node.until(lambda b: jobs[0].used(b).get("peakMemory") == "400Mi")
    with (node.paths.logs(node.uuid) / "server.log").open("a") as file:
        file.write("[Server 17] Server encountered a fatal exception\n")
    body = await node.says("MPSFault", "Faulted", "True")
    message = next(c["message"] for c in body["status"]["conditions"] if c["type"] == "Faulted")
    assert "fatal exception" in message
    for job in jobs:
        await job.release()
    await node.is_ready()


@pytest.mark.parametrize("mode", ["TimeSlicing", "Exclusive"])
async def test_a_programs_own_fault_is_nobody_elses_without_mps(node: Node, mode: str):
    await serve(node, mode)
    node.gpus.xid(31)
    node.gpus.xid(62)
    body = await node.says("XidError", "Faulted", "True")
    message = next(c["message"] for c in body["status"]["conditions"] if c["type"] == "Faulted")
    assert "Xid 62" in message


async def looks_well(control: ControlDaemon, server: int) -> tuple[ServerState, list[int]]:
    return ServerState.ACTIVE, await control.clients(server)


async def test_a_control_daemon_that_is_killed_is_replaced(node: Node):
    await serve(node)
    job = await node.book("job", 1000)
    job.run("alloc:100", "forever")
    await node.until(lambda b: b["status"]["mps"]["clients"] == 1)
    pid = int((node.pipes / "nvidia-cuda-mps-control.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    await node.until(lambda b: condition(b, "Faulted")[0] == "True")
    await job.release()
    await node.is_ready()
    assert int((node.pipes / "nvidia-cuda-mps-control.pid").read_text()) != pid


async def test_a_control_daemon_that_hangs_is_replaced(node: Node):
    await serve(node)
    assert node.agent is not None
    assert node.agent._mps is not None
    pid = int((node.pipes / "nvidia-cuda-mps-control.pid").read_text())
    node.agent._mps.control = replace(node.agent._mps.control, deadline=0.3)
    os.kill(pid, signal.SIGSTOP)
    await node.says("MPSHung", "Faulted", "True")
    await node.is_ready()
    assert int((node.pipes / "nvidia-cuda-mps-control.pid").read_text()) != pid


async def test_a_control_daemon_that_talks_nonsense_is_not_taken_for_a_healthy_one(node: Node):
    await serve(node)
    node.gpus.mps(garbage=1)
    body = await node.says("MPSHung", "Faulted", "True")
    assert body["status"]["mps"]["state"] == "Faulted"
    node.gpus.mps()
    await node.is_ready()


async def test_an_xid_faults_the_gpu_and_quiet_heals_it(node: Node):
    await serve(node)
    node.gpus.xid(62)
    body = await node.says("XidError", "Faulted", "True")
    message = next(c["message"] for c in body["status"]["conditions"] if c["type"] == "Faulted")
    assert "Xid 62" in message
    await node.is_ready()


async def test_a_lost_gpu_faults_and_comes_back_with_its_mode_set_again(node: Node):
    await serve(node)
    job = await node.book("job", 1000)
    job.run("alloc:100", "forever")
    await node.until(lambda b: job.used(b).get("peakMemory") == "400Mi")
    node.gpus.add(0, lost=1)
    await node.says("GPULost", "Faulted", "True")
    (node.gpus.folder / "gpu-0.mode").write_text("0")  # a reset forgets it
    node.gpus.add(0, lost=None)
    await job.release()
    await node.is_ready()
    assert node.gpus.mode() == 3
    again = await node.book("again", 1000)
    again.run("alloc:200", "forever")
    await node.until(lambda b: again.used(b).get("peakMemory") == "500Mi")


async def test_a_killed_agent_leaves_its_jobs_alone_and_finds_them_again(node: Node):
    await serve(node)
    job = await node.book("job", 1000)
    program = job.run("alloc:100", "forever")
    await node.until(lambda b: job.used(b).get("peakMemory") == "400Mi")
    mps = int((node.pipes / "nvidia-cuda-mps-control.pid").read_text())
    await node.kill_agent()
    assert program.poll() is None
    assert node.gpus.mode() == 3
    node.start_agent()
    await node.is_ready()
    other = await node.book("other", 1000)
    other.run("alloc:200", "forever")
    await node.until(lambda b: b["status"]["mps"] == {"state": "Ready", "clients": 2})
    assert int((node.pipes / "nvidia-cuda-mps-control.pid").read_text()) == mps
    assert program.poll() is None


async def test_an_agent_that_finds_its_mps_hung_has_it_mended(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    await serve(node)
    await node.kill_agent()
    pid = int((node.pipes / "nvidia-cuda-mps-control.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(setup, "ControlDaemon", partial(ControlDaemon, deadline=0.3))
    monkeypatch.setattr(main, "ControlDaemon", partial(ControlDaemon, deadline=0.3))
    node.start_agent()
    await node.says("MPSHung", "Faulted", "True")
    await node.is_ready()
    assert int((node.pipes / "nvidia-cuda-mps-control.pid").read_text()) != pid


async def test_an_agent_that_only_restarts_leaves_the_gpu_as_it_is(node: Node):
    await serve(node)
    await node.stop_agent()
    assert node.gpus.mode() == 3
    assert (node.pipes / "control").exists()
    assert condition(await node.body(), "Ready")[0] == "True"


async def test_when_its_pod_goes_it_gives_the_gpu_back(node: Node):
    await serve(node)
    (node.paths.shm() / "left").write_text("by a client")
    path = f"/api/v1/namespaces/{node.namespace}/pods/{node.name}"
    await node.api.delete(path, {"gracePeriodSeconds": 0})
    await node.stop_agent()
    assert node.gpus.mode() == 0
    body = await node.body()
    assert condition(body, "Ready") == ("False", "AgentStopped")
    assert body["status"]["mps"] == {"state": "Stopped", "clients": 0}
    assert not node.pipes.exists()
    assert not list(node.kubelet.plugins.glob("partita-*"))
    await node.stop_mps()
    assert list(node.paths.run.iterdir()) == []


async def test_what_the_api_server_cannot_tell_at_first_it_is_asked_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    answers = [True, None]

    async def slow(self: main.Agent) -> bool | None:
        return answers.pop()

    await serve(node)
    monkeypatch.setattr(main.Agent, "_pod_goes", slow)
    await node.stop_agent()
    await node.stop_mps()
    assert list(node.paths.run.iterdir()) == []


async def test_a_pod_that_may_come_back_finds_its_shared_memory_where_it_was(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    async def unknown(self: main.Agent) -> None:
        pass

    await serve(node)
    monkeypatch.setattr(main.Agent, "_pod_goes", unknown)
    await node.stop_agent()
    assert node.gpus.mode() == 0
    assert [path.name for path in node.paths.shm().iterdir()] == []


async def test_a_kubelet_that_restarts_learns_of_the_slots_again(node: Node):
    await serve(node)
    await node.kubelet.stop()
    (node.kubelet.plugins / "kubelet.sock").unlink(missing_ok=True)
    await node.says("NotRegistered")
    await node.kubelet.start()
    await node.is_ready()
    assert len(node.kubelet.registrations) >= 2


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"mig": 1}, "MIGEnabled"),
        ({"capability_major": 6}, "GPUTooOld"),
        ({"denied": 1}, "ComputeModeRefused"),
        ({"lost": 1}, "GPULost"),
    ],
)
async def test_a_gpu_that_cannot_be_served_says_why_and_is_served_when_it_can(
    node: Node, figures, reason: str
):
    node.gpus.add(0, **figures)
    await node.create()
    node.start_mps()
    node.start_agent()
    await node.says(reason)
    node.gpus.add(0, **dict.fromkeys(figures))
    await node.is_ready()


async def test_without_a_driver_it_says_so_and_waits_for_one(node: Node):
    (node.gpus.folder / "driver").unlink()
    await node.create()
    node.start_mps()
    node.start_agent()
    await node.says("NoDriver")
    node.gpus.install_driver("470.82.01")
    body = await node.says("DriverTooOld")
    assert body["status"]["driverVersion"] == "470.82.01"
    node.gpus.install_driver()
    await node.is_ready()


async def test_a_gpu_that_somebody_else_uses_is_left_to_them(node: Node):
    await node.create()
    stranger = node.gpus.run("alloc:10", "forever")
    await asyncio.to_thread(node.gpus.until, lambda: stranger.pid in node.gpus.pids())
    node.start_agent()
    node.start_mps()
    body = await node.says("GPUInUse")
    ready = next(c for c in body["status"]["conditions"] if c["type"] == "Ready")
    assert str(stranger.pid) in ready["message"]
    assert node.gpus.mode() == 0
    assert not (node.pipes / "control").exists()
    stranger.kill()
    await node.is_ready()


async def test_two_agents_on_one_gpu_are_one_too_many(
    node: Node, api: Api, api_server: ApiServer, namespace: str, fake_gpus: FakeGPUs
):
    await serve(node)
    second = Node(api, api_server, namespace, fake_gpus)
    await second.create()
    try:
        second.start_agent()
        body = await second.says("AgentElsewhere")
        assert "two may not serve one GPU" in str(body["status"]["conditions"])
        assert condition(await node.body(), "Ready")[0] == "True"
    finally:
        await second.close()
    assert not second.paths.agent_lock.exists(), "it leaves nothing"
    assert node.paths.agent_lock.exists()


async def test_a_directory_that_cannot_be_written_is_told(node: Node):
    await node.create()
    node.paths.run.write_text("a file where a directory should be")
    node.start_agent()
    await node.says("DirectoryNotWritable")
    node.paths.run.unlink()
    node.start_mps()
    await node.is_ready()


async def test_two_gpus_of_a_node_have_an_agent_each(
    node: Node, api: Api, api_server: ApiServer, namespace: str, fake_gpus: FakeGPUs
):
    await serve(node)
    fake_gpus.add(1)
    second = Node(api, api_server, namespace, fake_gpus, gpu=1)
    second.kubelet.folder = node.kubelet.folder
    await second.create()
    try:
        second.start_agent()
        second.start_mps()
        await second.is_ready()
        one, other = (await node.book("one", 1000)), (await second.book("other", 1000))
        one.run("alloc:100", "forever")
        other.run("alloc:200", "forever")
        await node.until(lambda b: one.used(b).get("peakMemory") == "400Mi")
        body = await second.until(lambda b: other.used(b).get("peakMemory") == "200Mi")
        assert one.uid not in body["status"]["usage"]["jobs"]
    finally:
        await second.close()


async def test_twenty_five_small_programs_share_one_gpu(node: Node):
    """Like TensorFlow's, each with 5 % of the GPU's memory booked and less in use."""
    await serve(node)
    jobs = [await node.book(f"small-{n}", 2048) for n in range(25)]
    programs = [job.run("alloc:900", "forever") for job in jobs]
    await node.until(lambda b: [job.used(b).get("memory") for job in jobs] == ["1200Mi"] * 25)
    await node.until(lambda b: b["status"]["mps"]["clients"] == 25)
    assert all(program.poll() is None for program in programs)
    assert condition(await node.body(), "Ready")[0] == "True"


async def test_a_driver_that_does_not_answer_is_told_and_forgiven(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(main, "SILENT_AFTER", 0.5)
    monkeypatch.setattr(threads_module, "WITHIN", 0.5)
    await serve(node)
    node.gpus.add(0, hang=1)
    body = await node.says("NVMLHangs")
    assert condition(body, "Faulted")[0] == "False"
    node.gpus.add(0, hang=None)
    await node.is_ready()


async def test_the_commands_do_it_as_processes_of_their_own(node: Node):
    await node.create()
    common = {
        "PARTITA_SERVER": node.name,
        "PARTITA_RUN_DIRECTORY": str(node.paths.run),
        "PARTITA_KUBELET_DIRECTORY": str(node.kubelet.folder),
        "PARTITA_NODE": "node-a",
        "PARTITA_POD": node.name,
        "PARTITA_NAMESPACE": node.namespace,
        "PARTITA_MAX_JOBS": "4",
        "KUBECONFIG": str(node.kubeconfig),
    }
    agent = node.gpus.start(sys.executable, "-m", "partita", "agent", **common)
    mps = node.gpus.start(sys.executable, "-m", "partita", "agent", "mps", **common)
    await node.is_ready()
    assert node.gpus.mode() == 3
    path = f"/api/v1/namespaces/{node.namespace}/pods/{node.name}"
    await node.api.delete(path, {"gracePeriodSeconds": 0})
    for process in (agent, mps):
        process.terminate()
    for process in (agent, mps):
        code, said, _ = await ended(process)
        assert (code, "Traceback" in said) == (0, False), said
    assert node.gpus.mode() == 0
    assert condition(await node.body(), "Ready") == ("False", "AgentStopped")
    assert list(node.paths.run.iterdir()) == []
