"""Processes above their allocation, and without any, beside the whole agent."""

from __future__ import annotations

import signal
import subprocess

from agent.claims import allocate
from agent.node import Body, Node, ended, serve
from support.polling import until

POD = "11111111-2222-4333-8444-555555555555"


def stranger(node: Node, cgroup: str) -> subprocess.Popen[str]:
    """Start a program on the GPU that has no allocation."""
    program = node.gpus.run(
        "wait:50",
        "alloc:500",
        "forever",
        NVIDIA_VISIBLE_DEVICES=node.uuid,
        CUDA_MPS_PIPE_DIRECTORY=str(node.pipes),
    )
    folder = node.proc / str(program.pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(cgroup)
    return program


def unknown(body: Body) -> Body | None:
    """What is said of processes without an allocation."""
    return (body["status"].get("usage") or {}).get("unknownProcesses")


async def test_the_newest_process_above_the_allocation_is_ended_alone(node: Node):
    await serve(node)
    job = await allocate(node, "job", 2000)
    first = job.run("alloc:100", "forever")
    await node.until(lambda b: job.used(b).get("peakMemory"))
    second = job.run("alloc:100", "forever")
    code, said = await ended(second)
    assert (code, "terminated by the server" in said) == (1, True)
    assert first.poll() is None
    body = await node.until(lambda b: job.used(b).get("excessProcesses"))
    assert job.used(body)["excessProcesses"] == 2
    events = await until(job.events)
    assert events[0]["reason"] == "AboveProcesses"
    assert "2 MPS clients with 1 allocated" in events[0]["message"]


async def test_unknown_processes_are_counted_and_on_demand_those_in_pods_are_ended(node: Node):
    await serve(node, "TimeSlicing")
    assert node.gpus.mode() == 0
    assert "mps" not in (await node.body())["status"]
    job = await allocate(node, "job", 2000)
    allocated = job.run("alloc:100", "forever")
    pod = stranger(node, f"0::/kubepods/besteffort/pod{POD}/main\n")
    host = stranger(node, "0::/user.slice\n")
    await node.until(lambda b: unknown(b) == {"count": 2, "inPods": 1, "memory": "1600Mi"})
    assert (pod.poll(), host.poll()) == (None, None)
    patch = {"spec": {"unknownProcesses": "Terminate"}}
    (await node.api.patch(node.path, patch)).ok()
    await ended(pod)
    await node.until(lambda b: unknown(b) == {"count": 1, "inPods": 0, "memory": "800Mi"})
    assert host.poll() is None
    host.kill()
    await node.until(lambda b: unknown(b) is None)
    # Without MPS a program above its allocation is killed.
    code, _ = await ended(job.run("alloc:3000", "forever"))
    assert code == -signal.SIGKILL
    assert allocated.poll() is None
