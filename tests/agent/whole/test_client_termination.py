"""MPS terminates the clients of a Pod that is being ended, beside the whole agent."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from agent.claims import allocate, prepare_claim, running
from agent.node import Node, ended, serve
from partita.pods.termination import TERMINATE_BEFORE_KILL
from support.api import condition
from support.polling import until

NEVER = 3600.0
"""A grace period that does not end during a test, in seconds."""
LONG = "3600000"
"""Milliseconds that a program which handles SIGTERM takes to save its state."""


async def on_gpu(node: Node, *programs: subprocess.Popen[str]) -> None:
    await until(lambda: all(program.pid in node.gpus.pids() for program in programs))


async def terminated(program: subprocess.Popen[str]) -> None:
    """Wait until a program has ended because MPS terminated it."""
    _, said = await ended(program)
    assert "terminated by the server" in said


@pytest.mark.smoke
async def test_a_program_is_terminated_at_once_unless_it_handles_sigterm(node: Node):
    await serve(node)
    job = await prepare_claim(node, "serve", 1000, entry={"clients": 3})
    neighbour = await allocate(node, "neighbour", 1000)
    handler = job.run(f"sigterm:{LONG}", "alloc:100", "forever")
    programs = [job.run("alloc:100", "forever") for _ in range(2)]
    beside = neighbour.run("alloc:100", "forever")
    await on_gpu(node, handler, *programs, beside)
    await job.is_ended(NEVER)
    for program in programs:
        await terminated(program)
    handler.terminate()
    assert handler.stdout is not None
    assert handler.stdout.readline() == "SIGTERM\n"
    assert handler.poll() is None, "it uses the GPU in its grace period"
    await job.is_ended(TERMINATE_BEFORE_KILL)
    await terminated(handler)
    assert beside.poll() is None
    body = await node.until(lambda b: b["status"]["mps"]["clients"] == 1)
    assert condition(body, "Ready")[0] == "True"


async def test_programs_and_agents_that_start_meanwhile_are_no_exception(node: Node):
    """Such as programs of `kubectl exec`."""
    await serve(node)
    job, program = await running(node, "job")
    await node.kill_agent()
    await job.is_ended(NEVER)
    node.start_agent()
    await terminated(program)
    await terminated(job.run("alloc:100", "forever"))


async def test_mps_that_does_not_terminate_a_client_is_wedged(node: Node):
    node.times = replace(node.times, terminated_within=0.5, mps_answers_within=2.0)
    await serve(node)
    job, program = await running(node, "job")
    node.gpus.mps(terminate_hang=1)
    await job.is_ended(NEVER)
    await node.says("MPSWedged", "Faulted", "True")
    node.gpus.mps()
    await ended(program)
    await job.release()
    await node.is_ready()
