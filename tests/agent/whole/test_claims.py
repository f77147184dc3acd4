"""Pods with claims on a fake GPU beside the whole agent, from kubelet's call to the limit."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.claims import PREPARE, Claim, Driver, allocate_claim, prepare_claim
from agent.node import Body, Node, ended, serve
from gpu.fake import MIB
from support.api import condition
from support.polling import until

HEALTHY, UNHEALTHY = 1, 2
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.smoke
async def test_a_pod_with_a_claim_is_held_to_its_allocation(node: Node, driver: Driver):
    await serve(node)
    info = await node.kubelet.registered()
    assert (info.type, info.name) == ("DRAPlugin", "gpu.partita.dev")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
    claim = await allocate_claim(node, "serve", memory=1000)
    prepared = await driver.prepare(node.name, claim)
    assert prepared.error == ""
    (device,) = prepared.devices
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == (node.name, "gpu")
    assert list(device.cdi_device_ids) == [f"partita.dev/slice={claim.uid}-{node.name}"]
    assert claim.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1000M"
    assert claim.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert claim.environment["NVIDIA_VISIBLE_DEVICES"] == node.uuid
    assert "out of memory" in (await ended(claim.run("alloc:1100")))[1]
    program = claim.run("alloc:500", "forever")
    await node.until(lambda b: claim.used(b).get("peakMemory") == "800Mi")
    body = await node.until(lambda b: b["status"]["usage"]["memory"] == "825Mi")
    assert "unknownProcesses" not in body["status"]["usage"]
    # A program that removes its variables is ended by the agent.
    program.kill()
    greedy = claim.run("unset", "alloc:2000", "forever")
    assert (await ended(greedy))[0] == 1
    path = f"/api/v1/namespaces/{node.namespace}/events"
    uid = claim.pod["metadata"]["uid"]

    def about_pod(found: Any) -> bool:
        said = [(e["involvedObject"]["uid"], e["reason"]) for e in found["items"]]
        return (uid, "AboveAllocation") in said

    await node.api.until(path, about_pod)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(2048, (0, "")), (8192, (1, "CUDA error 0 instead of 2: 3 GiB were given"))],
)
async def test_the_program_of_the_smoke_example_tells_whether_a_limit_holds(
    node: Node, driver: Driver, memory: int, expected: tuple[int, str]
):
    *_, job = yaml.safe_load_all((EXAMPLES / "smoke" / "smoke.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    await serve(node)
    claim = await prepare_claim(node, "slice", memory)
    command = [sys.executable, *container["command"][1:], *container["args"]]
    code, said = await ended(claim.start(*command))
    assert (code, said.partition(",")[0].strip()) == expected


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"in_ledger": False}, "does not contain it"),
    ({"parameters": {"gpu": "GPU-other"}}, "its allocation is for GPU GPU-other"),
    ({"parameters": {"memory": "much"}}, "the parameters in its allocation"),
    ({"result": {"pool": "gpus-9"}}, "gpus-9, whose agent does not run on this node"),
    ({"entry": {"podUID": "other"}}, "for another Pod with the name"),
    (
        {
            "entry": {
                "releasingSince": "2026-01-01T00:00:00Z",
                "releaseDeadline": "2026-01-01T00:00:30Z",
            }
        },
        "is being ended",
    ),
]


async def test_nonsense_is_refused_with_a_reason(node: Node, driver: Driver):
    node.times = replace(node.times, prepare_within=0.5)
    await serve(node)
    claims = [
        await allocate_claim(node, f"serve-{number}", **changes)
        for number, (changes, _) in enumerate(NONSENSE)
    ]
    answers = await driver.ask(node.name, PREPARE, *claims)
    for claim, (_, says) in zip(claims, NONSENSE, strict=True):
        assert says in answers[claim.uid].error
        assert f"ResourceClaim {node.namespace}/{claim.name}: " in answers[claim.uid].error
    assert not list(node.cdi.glob("*"))


async def test_a_claim_of_another_uid_or_that_is_gone_is_refused(node: Node, driver: Driver):
    await serve(node)
    claim = await allocate_claim(node, "serve")
    uid = claim.uid
    for claim.uid in ("00000000-0000-4000-8000-000000000000", "../../etc/passwd"):
        assert "it is another one now" in (await driver.prepare(node.name, claim)).error
    assert "is not a UID" in await driver.unprepare(node.name, claim)
    claim.uid = uid
    (await node.api.delete(claim.path)).ok()
    assert "it does not exist any more" in (await driver.prepare(node.name, claim)).error


async def second_pod(claim: Claim) -> Body:
    """Let a second Pod name a claim, as kube-scheduler allows."""
    other = await claim.node.make_pod("other", spec=claim.pod["spec"])
    users = [
        {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for pod in (claim.pod, other)
    ]
    patch = {"status": {"reservedFor": users}}
    (await claim.node.api.patch(f"{claim.path}/status", patch)).ok()
    return other


async def test_a_claim_has_one_pod_and_a_pod_one_claim(node: Node, driver: Driver):
    await serve(node)
    claim = await allocate_claim(node, "serve")
    await second_pod(claim)
    error = (await driver.prepare(node.name, claim)).error
    assert "Pods other, serve-pod share it" in error
    assert "write resourceClaimTemplateName instead of resourceClaimName" in error
    assert not claim.file.exists()
    # Nor does a Pod get two slices.
    first = await allocate_claim(node, "first")
    second = await allocate_claim(node, "second", pod=first.pod)
    answers = await driver.ask(node.name, PREPARE, first, second)
    (error,) = [answer.error for answer in answers.values() if answer.error]
    assert "already has a slice of a GPU by another claim" in error
    assert len(list(node.cdi.glob("*.json"))) == 1


async def test_programs_of_a_second_pod_on_a_prepared_claim_are_ended_and_its_user_is_told(
    node: Node, driver: Driver
):
    """kubelet does not ask the agent again."""
    await serve(node)
    claim = await prepare_claim(node, "serve", 1000)
    program = claim.run("alloc:500", "forever")
    other = await second_pod(claim)
    second = Claim(node, claim.name, claim.uid, other).run("alloc:500", "forever")
    await ended(second)
    assert program.poll() is None

    def says(found: Any) -> bool:
        return any(
            (e["reason"], e["involvedObject"]["uid"]) == ("ClaimShared", other["metadata"]["uid"])
            and "ResourceClaim serve is allocated for Pod serve-pod" in e["message"]
            and "resourceClaimTemplateName" in e["message"]
            for e in found["items"]
        )

    await node.api.until(f"/api/v1/namespaces/{node.namespace}/events", says)


async def test_kubelet_waits_for_a_gpu_that_takes_no_containers_yet_and_may_give_up(
    node: Node, driver: Driver
):
    """It would try a refused Pod again only after a minute."""
    await node.create()
    node.start_agent()
    claim, given_up = await allocate_claim(node, "serve"), await allocate_claim(node, "given-up")
    preparing = asyncio.create_task(driver.prepare(node.name, claim))
    in_vain = asyncio.create_task(driver.prepare(node.name, given_up))
    await node.until(lambda b: condition(b, "Ready")[0] == "False")
    assert not preparing.done()
    in_vain.cancel()
    assert await driver.unprepare(node.name, given_up) == ""
    node.start_mps()
    assert (await preparing).error == ""
    assert (await ended(claim.run("alloc:500")))[0] == 0
    assert not given_up.file.exists()


async def test_files_of_claims_that_left_the_ledger_are_removed(node: Node, driver: Driver):
    await serve(node)
    stuck, first, second = [await prepare_claim(node, name, 1000) for name in "abc"]
    stuck.file.unlink()
    stuck.file.mkdir()
    await stuck.release()
    assert "cannot be written" in await driver.unprepare(node.name, stuck)
    await first.release()
    await until(lambda: not first.file.exists())
    assert second.file.exists()
    # Also those of claims that left it while no agent ran.
    await node.kill_agent()
    await second.release()
    node.start_agent()
    await until(lambda: not second.file.exists())


async def test_an_agent_without_a_gpu_unprepares(node: Node, driver: Driver):
    node.times = replace(node.times, prepare_within=0.5)
    await serve(node)
    claim = await allocate_claim(node, "serve")
    await driver.prepare(node.name, claim)
    await node.kill_agent()
    await node.stop_mps()
    node.gpus.install_driver("450.51")
    node.start_agent()
    assert "accepts no containers now" in (await driver.prepare(node.name, claim)).error
    assert await driver.unprepare(node.name, claim) == ""
    assert not claim.file.exists()


async def test_kubelet_is_told_again_and_again_whether_the_gpu_works(node: Node, driver: Driver):
    """It may have forgotten it."""
    node.times = replace(node.times, health_every=0.2)
    await serve(node)
    async with contextlib.aclosing(driver.healths(node.name)) as reports:
        for _ in range(2):
            assert await anext(reports) == (node.name, HEALTHY, "")
        with (node.paths.logs(node.uuid) / "server.log").open("a") as file:
            file.write("[Server 17] Server encountered a fatal exception\n")
        health, message = HEALTHY, ""
        while health == HEALTHY:
            _, health, message = await anext(reports)
        assert (health, message.partition(": ")[0]) == (UNHEALTHY, "MPSFault")
        while health == UNHEALTHY:
            _, health, message = await anext(reports)
        assert (health, message) == (HEALTHY, "")


@pytest.mark.smoke
async def test_what_a_service_uses_is_learnt_while_it_runs(node: Node, driver: Driver):
    node.times = replace(node.times, learn_after=1.0)
    await serve(node)
    entry = {"application": "Deployment/serve", "lasting": True}
    claim = await allocate_claim(node, "serve", entry=entry)
    assert (await driver.prepare(node.name, claim)).error == ""
    program = claim.run("alloc:500", "forever")
    path = f"/apis/partita.dev/v1alpha1/namespaces/{node.namespace}/applicationprofiles"

    def learnt_twice(found: Any) -> bool:
        specs = [item["spec"] for item in found["items"]]
        return [spec["measurements"][0]["runs"] >= 2 for spec in specs] == [True]

    (profile,) = (await node.api.until(path, learnt_twice))["items"]
    assert profile["spec"]["application"] == "Deployment/serve"
    steps = profile["spec"]["measurements"][0]["steps"]
    assert max(step["gpuMemory"] for step in steps) == "800Mi"
    assert program.poll() is None


async def test_the_peak_of_a_pod_is_written_before_kubelet_knows_its_end(node: Node):
    node.times = replace(node.times, numbers_every=(3600.0, 3600.0), decisive_every=3600.0)
    await serve(node)
    claim = await prepare_claim(node, "train", 2000)
    program = claim.run("alloc:600", "forever")
    assert node.agent is not None
    jobs = node.agent.jobs
    await until(lambda: claim.uid in jobs.usage() and jobs.usage()[claim.uid].peak == 900 * MIB)
    program.kill()
    assert await Driver(node.kubelet.folder).unprepare(node.name, claim) == ""
    assert claim.used(await node.body())["peakMemory"] == "900Mi"
