"""The whole agent, on a fake GPU, with a kubelet and an API server."""

from __future__ import annotations

import sys

import pytest

from agent.claims import allocate, running
from agent.node import Body, Node, ended, message, serve
from gpu.fake import FakeGPUs
from partita.kube.errors import UnavailableError
from support.api import Api, condition
from support.clusters import ApiServer
from support.polling import until


async def test_a_killed_agent_leaves_its_jobs_alone_and_finds_them_again(node: Node):
    await serve(node)
    _, program = await running(node, "job")
    mps = int((node.pipes / "nvidia-cuda-mps-control.pid").read_text())
    await node.kill_agent()
    assert program.poll() is None
    assert node.gpus.mode() == 3
    node.start_agent()
    await node.is_ready()
    other = await allocate(node, "other", 1000)
    other.run("alloc:200", "forever")
    await node.until(lambda b: b["status"]["mps"]["clients"] == 2)
    assert int((node.pipes / "nvidia-cuda-mps-control.pid").read_text()) == mps
    assert program.poll() is None


async def test_an_agent_that_only_restarts_leaves_the_gpu_as_it_is(node: Node):
    await serve(node)
    await node.stop_agent()
    assert node.gpus.mode() == 3
    assert (node.pipes / "control").exists()
    assert condition(await node.body(), "Ready")[0] == "True"


async def test_a_stopped_agent_releases_the_gpu_if_the_api_server_does_not_answer(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    async def unavailable(*_: object) -> dict[str, object]:
        raise UnavailableError("get", 503, "down")

    await serve(node)
    assert node.agent is not None
    monkeypatch.setattr(node.agent._kube, "get", unavailable)
    await node.stop_agent()
    await node.stop_mps()
    assert node.gpus.mode() == 0
    assert list(node.paths.run.iterdir()) == []


async def test_an_agent_whose_pod_was_replaced_releases_the_gpu(node: Node):
    await serve(node)
    pods = f"/api/v1/namespaces/{node.namespace}/pods"
    await node.api.delete(f"{pods}/{node.name}", {"gracePeriodSeconds": 0})
    await node.make_pod(node.name)
    await node.stop_agent()
    assert node.gpus.mode() == 0


async def test_a_kubelet_that_restarts_finds_the_driver_again(node: Node):
    await serve(node)
    await node.kubelet.stop()
    body = await node.says("NotRegistered")
    assert "kubelet does not answer" in message(body)
    node.kubelet.refuse = "unsupported version"
    await node.kubelet.start()

    def is_refused(body: Body) -> bool:
        return "it must be 1.34 or newer" in str(body["status"]["conditions"])

    await node.until(is_refused)
    await node.kubelet.stop()
    node.kubelet.refuse = ""
    await node.kubelet.start()
    await node.is_ready()


async def test_a_gpu_that_other_processes_use_is_not_acquired(node: Node):
    await node.create()
    stranger = node.gpus.run("alloc:10", "forever")
    await until(lambda: stranger.pid in node.gpus.pids())
    node.start_agent()
    node.start_mps()
    body = await node.says("GPUInUse")
    assert str(stranger.pid) in message(body)
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
        assert "two agents cannot serve one GPU" in str(body["status"]["conditions"])
        assert condition(await node.body(), "Ready")[0] == "True"
    finally:
        await second.close()
    assert not second.paths.agent_lock.exists(), "it leaves nothing"
    assert node.paths.agent_lock.exists()


@pytest.mark.smoke
async def test_the_commands_do_it_as_processes_of_their_own(node: Node):
    await node.create()
    common = {
        "PARTITA_SERVER": node.name,
        "PARTITA_RUN_DIRECTORY": str(node.paths.run),
        "PARTITA_KUBELET_DIRECTORY": str(node.kubelet.folder),
        "PARTITA_NODE": "node-a",
        "PARTITA_NAMESPACE": node.namespace,
        "KUBECONFIG": str(node.kubeconfig),
    }
    agent = node.gpus.start(sys.executable, "-m", "partita", "agent", **common)
    mps = node.gpus.start(sys.executable, "-m", "partita", "agent", "mps", **common)
    status = (await node.is_ready())["status"]
    assert (status["node"], status["uuid"]) == ("node-a", node.uuid)
    assert (status["product"], status["memory"]) == ("NVIDIA A100-SXM4-40GB", "40960Mi")
    assert (status["smCount"], status["driverVersion"]) == (108, "580.95.05")
    assert (status["mps"]["state"], status["mps"]["clients"]) == ("Ready", 0)
    assert (status["enforcement"], status["capabilities"]["memoryBackend"]) == ("Client", "none")
    assert node.gpus.mode() == 3
    path = f"/api/v1/namespaces/{node.namespace}/pods/{node.name}"
    await node.api.delete(path, {"gracePeriodSeconds": 0})
    for process in (agent, mps):
        process.terminate()
    for process in (agent, mps):
        code, said = await ended(process)
        assert (code, "Traceback" in said) == (0, False), said
    assert node.gpus.mode() == 0
    body = await node.body()
    assert condition(body, "Ready") == ("False", "AgentStopped")
    assert (body["status"]["mps"]["state"], body["status"]["mps"]["clients"]) == ("Stopped", 0)
    assert list(node.kubelet.plugins.iterdir()) == []
    assert list(node.paths.run.iterdir()) == []
