"""Faults of GPU and MPS beside the whole agent."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from agent.catalogue import IGNORE, RESTART_APP
from agent.claims import allocate, running
from agent.node import Body, Node, ended, message, serve
from partita.agent.errors import DeviceAccessLostError
from support.api import condition


async def test_a_fault_takes_all_clients_and_the_gpu_comes_back(node: Node):
    await serve(node)
    jobs = [await allocate(node, f"job-{n}", 1000) for n in range(2)]
    neighbour = jobs[0].run("alloc:100", "forever")
    await node.until(lambda b: jobs[0].used(b).get("peakMemory") == "400Mi")
    neighbour.send_signal(signal.SIGSTOP)  # it ignores the error, and so the fault lasts
    jobs[1].run("alloc:100", "fault")
    body = await node.says("MPSFault", "Faulted", "True")
    assert body["status"]["mps"]["state"] == "Faulted"
    assert condition(body, "Ready") == ("False", "MPSFault")
    for job in jobs:
        await job.ends("Failed", 1)
        await job.release()
    neighbour.send_signal(signal.SIGCONT)
    body = await node.is_ready()
    assert condition(body, "Faulted")[0] == "False"
    assert condition(body, "Ready")[1] == "Recovered"
    late = await allocate(node, "late", 1000)
    assert (await ended(late.run("alloc:100")))[0] == 0


@pytest.mark.parametrize(
    ("mode", "xids"),
    [
        ("MPS", (IGNORE | RESTART_APP) - {13, 31}),  # these are fatal to its clients
        ("TimeSlicing", IGNORE | RESTART_APP),
    ],
)
async def test_an_xid_that_asks_for_no_reset_ends_no_job(
    node: Node, mode: str, xids: frozenset[int]
):
    await serve(node, mode)
    _, program = await running(node, "job")
    for xid in (*xids, 9999):
        node.gpus.xid(xid)
    body = await node.says("XidError")
    assert "Xid 9999" in message(body)
    assert condition(body, "Faulted")[0] != "True"
    await node.is_ready()
    assert program.poll() is None


async def test_a_lost_gpu_faults_and_comes_back_with_its_mode_set_again(node: Node):
    await serve(node)
    job, _ = await running(node, "job")
    node.gpus.add(0, lost=1)
    await node.says("GPULost", "Faulted", "True")
    (node.gpus.folder / "gpu-0.mode").write_text("0")  # a reset forgets it
    node.gpus.add(0, lost=None)
    await job.release()
    await node.is_ready()
    assert node.gpus.mode() == 3
    again = await allocate(node, "again", 1000)
    again.run("alloc:200", "forever")
    await node.until(lambda b: again.used(b).get("peakMemory") == "500Mi")


IRQ = ("NVMLError", "NVML_ERROR_IRQ_ISSUE (11): read the kernel's log")


@pytest.mark.parametrize(
    ("figure", "reason", "said"),
    [
        ({"error": "11"}, *IRQ),
        ({"error": "11 nvmlDeviceGetComputeRunningProcesses_v2"}, *IRQ),  # no samples
        ({"error": "11 nvmlDeviceGetFieldValues"}, *IRQ),  # nothing on its health
        ({"error": "11 nvmlEventSetWait_v2"}, *IRQ),  # no Xids
        ({"hang": 1}, "NVMLHangs", "the driver did not answer for 0.5 s"),
    ],
)
async def test_an_error_of_nvml_is_named_keeps_new_jobs_away_and_ends_nothing(
    node: Node, figure: Body, reason: str, said: str
):
    node.times = replace(node.times, samples_within=0.5, driver_answers_within=0.5)
    await serve(node)
    _, program = await running(node, "job")
    node.gpus.add(0, **figure)
    body = await node.until(lambda b: message(b).startswith(said))
    assert condition(body, "Ready") == ("False", reason)
    assert condition(body, "Faulted")[0] != "True"
    node.gpus.add(0, **dict.fromkeys(figure))
    await node.is_ready()
    assert program.poll() is None


@pytest.mark.parametrize("mode", ["MPS", "TimeSlicing"])
async def test_an_agent_that_lost_its_devices_says_so_and_ends_to_be_made_anew(
    node: Node, mode: str
):
    node.times = replace(node.times, samples_within=0.5)
    await serve(node, mode)
    _, program = await running(node, "job")
    node.gpus.add(0, error=999)
    node.gpus.install_driver(error=999)
    for _ in range(2):  # while it serves, and a new one that cannot even begin
        failed = await node.fails()
        assert isinstance(failed, ExceptionGroup)
        assert failed.subgroup(DeviceAccessLostError) is not None
        body = await node.body()
        assert condition(body, "Ready") == ("False", "DeviceAccessLost")
        assert "NVML_ERROR_UNKNOWN (999)" in message(body)
        assert "systemctl daemon-reload" in message(body)
        node.start_agent()
    node.gpus.add(0, error=None)
    node.gpus.install_driver()
    await node.is_ready()
    assert program.poll() is None


async def test_clients_that_nvml_does_not_list_keep_new_jobs_away_and_run_on(node: Node):
    node.times = replace(node.times, samples_within=0.5)
    await serve(node)
    _, listed = await running(node, "job")
    node.gpus.add(0, lists=1)
    other = await allocate(node, "other", 1000)
    unlisted = other.run("alloc:100", "forever")
    said = f"(PID {unlisted.pid}), and 400Mi of no process"
    body = await node.until(lambda b: said in message(b) and "install another driver" in message(b))
    assert condition(body, "Ready") == ("False", "ClientsNotListed")
    node.gpus.add(0, lists=None)
    await node.is_ready()
    assert (listed.poll(), unlisted.poll()) == (None, None)
