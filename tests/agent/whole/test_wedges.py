"""Clients that are killed, and the wedges that follow, beside the whole agent."""

from __future__ import annotations

from dataclasses import replace

from agent.claims import allocate, running
from agent.node import Body, Node, ended, serve
from support.api import condition


def mps(body: Body) -> Body:
    return dict(body.get("status", {}).get("mps", {}))


def ready_since(body: Body) -> str:
    found = (c for c in body["status"]["conditions"] if c["type"] == "Ready")
    return str(next(found)["lastTransitionTime"])


async def test_a_silent_wedge_is_found_and_mps_is_back(node: Node):
    node.times = replace(node.times, canary_within=5.0)
    await serve(node)
    node.gpus.mps(kill="orphan")
    killed, program = await running(node, "killed")
    beside, neighbour = await running(node, "beside")
    program.kill()
    await ended(program)
    await killed.ends("Failed", 137)
    body = await node.says("MPSWedged", "Faulted", "True")
    assert mps(body)["killedClient"]["claim"] == killed.uid
    assert condition(body, "Ready") == ("False", "MPSWedged")
    node.gpus.mps()
    code, _ = await ended(neighbour)
    assert code != 0
    await beside.ends("Failed", code)
    for job in (killed, beside):
        await job.release()
    body = await node.is_ready()
    assert mps(body)["restarts"]["Wedged"] == 1
    late = await allocate(node, "late", 1000)
    assert (await ended(late.run("alloc:100")))[0] == 0


async def test_a_wedge_by_a_client_too_short_to_be_seen_is_found_beside_other_jobs(node: Node):
    node.times = replace(node.times, canary_within=5.0)
    await serve(node)
    await running(node, "beside")
    short = await allocate(node, "short", 1000)
    node.gpus.wedge()
    await short.ends("Failed", 137)
    await short.release()
    body = await node.says("MPSWedged", "Faulted", "True")
    assert mps(body)["restarts"]["Wedged"] == 1


async def test_a_client_that_mps_has_terminated_ended_cleanly(node: Node):
    """It has exceeded its allocation."""
    await serve(node)
    since = ready_since(await node.body())
    job = await allocate(node, "greedy", 200)
    code, said = await ended(job.run("unset", "alloc:4000", "forever"))
    assert (code, "terminated by the server" in said) == (1, True)
    await job.ends("Failed", 1)
    await job.release()
    body = await node.until(lambda b: mps(b)["clients"] == 0 and mps(b)["canary"]["checks"] > 1)
    assert ready_since(body) == since
    assert mps(body)["restarts"] == {}
