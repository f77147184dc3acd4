"""The commands that run until they are stopped, as processes."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from partita.cli.terminal import UserError
from partita_testcluster.cli.local_cluster import sandbox
from partita_testcluster.nodes import NodeSpec
from support.api import Api
from support.output import check_output
from support.polling import TIMEOUT
from support.programs import program


@asynccontextmanager
async def running(
    *args: str | Path, within: float = TIMEOUT
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a command; it is ended when the test is over."""
    async with program(sys.executable, "-m", "partita", *map(str, args)) as process:
        async with asyncio.timeout(within):
            yield process


async def line(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.readline()).decode().rstrip("\n")


def config_of(path: Path) -> tuple[str, Path]:
    """Return the URL of a kubeconfig's server, and the file."""
    config = yaml.safe_load(path.read_text())
    return config["clusters"][0]["cluster"]["server"], path


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def children_of(pid: int) -> list[Path]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}") for child in children]


def still_there(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.exists()]


async def kinds_of(url: str) -> list[str]:
    async with aiohttp.ClientSession() as session:
        answer = await Api(session, url, ssl_context=None).get(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        )
        return answer.ok().names


async def test_the_api_server_prints_its_kubeconfig_and_has_our_kinds() -> None:
    async with running("apiserver") as process:
        said = await line(process.stdout)
        url, kubeconfig = config_of(Path(said.removeprefix("export KUBECONFIG=")))
        assert (await line(process.stderr)).startswith("Serving on http://127.0.0.1:")
        assert "gpupartitions.partita.dev" in await kinds_of(url)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert not still_there([kubeconfig])


async def test_the_kubeconfig_is_written_where_it_is_wanted(tmp_path) -> None:
    out = tmp_path / "config"
    async with running("apiserver", "--no-crds", "--kubeconfig-out", out, "-o", "json") as process:
        served = check_output("apiserver", (await process.stdout.readuntil(b"}\n")).decode())
        assert (served["url"], Path(served["kubeconfig"])) == config_of(out)
        assert await kinds_of(served["url"]) == []
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


def test_a_taken_port_is_told_with_what_to_do(invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = invoke("apiserver", "--port", str(taken.getsockname()[1]), code=1)
    assert "name another --port or --host" in result.stderr


async def test_nodes_appear_and_stay_when_they_are_stopped(api_server, api, namespace) -> None:
    args = ("--kubeconfig", api_server.kubeconfig, "--nodes", "2", "--gpus", "3")
    args += ("--gpu-memory", "24Gi", "--product", "NVIDIA A10", "--speed", "5", "-o", "json")
    async with running("nodes", *args) as process:
        assert await line(process.stderr) == (
            "2 nodes with 3 GPUs of 24Gi each, at speed 5, until Ctrl-C."
        )
        printed = check_output("nodes", (await process.stdout.readuntil(b"\n}\n")).decode())
        assert (printed["nodes"], printed["gpuMemory"]) == (["sim-0", "sim-1"], 24 << 30)
        nodes = (await api.get("/api/v1/nodes")).ok().body["items"]
        simulated = [n for n in nodes if n["metadata"]["name"] in {"sim-0", "sim-1"}]
        assert [n["status"]["allocatable"]["nvidia.com/gpu"] for n in simulated] == ["3", "3"]
        assert simulated[0]["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A10"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    for name in ("sim-0", "sim-1"):
        (await api.delete(f"/api/v1/nodes/{name}")).ok()


async def test_the_sandbox_notices_when_its_operator_is_gone_and_ends_its_nodes(tmp_path) -> None:
    async with asyncio.timeout(TIMEOUT):
        async with sandbox(tmp_path, [NodeSpec("sim-0")], speed=10.0) as box:
            box.check()
            box.operator.kill()
            await box.operator.wait()
            with pytest.raises(UserError, match=f"exit code -9; see the end of {tmp_path}"):
                box.check()
        assert box.nodes.done()


async def test_the_demo_of_workloads_shows_services_and_batch_on_the_same_gpus(
    monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    args = ("demo", "--workloads", "--serve", "--speed", "40", "-o", "json")
    async with running(*args, within=140) as demo:
        events = [await line(demo.stderr)]
        while not events[-1].startswith("The cluster stays up until Ctrl-C."):
            assert demo.returncode is None, events
            events.append(await line(demo.stderr))
        commands = [(await line(demo.stderr)).split("  #")[0].split() for _ in range(6)]
        assert commands[1] == ["partita", "workloads", "-n", "team-vision"]
        kubeconfig = events[2].strip().removeprefix("export KUBECONFIG=")
        async with running(*commands[1][1:], "--kubeconfig", kubeconfig) as process:
            listed, _ = await process.communicate()
            assert process.returncode == 0
        demo.send_signal(signal.SIGINT)
        assert await demo.wait() == 0
        rows = check_output("demo", (await demo.stdout.read()).decode())
    assert not left_in(tmp_path)
    assert events[0].startswith("A model server, a notebook, a Job and three SharedGPUJobs share 2")
    printed = "\n".join(events)
    assert re.search(r"notebook-0 gets 4\.0 GiB on shared-\d beside chat-", printed)
    batch = r"(finetune|gromacs|lammps|qmcpack)-\S+"
    assert re.search(batch + r" (starts|gets \S+ GiB) on shared-\d beside (.*, )?chat-", printed)
    assert "StatefulSet/notebook" in listed.decode()
    assert sorted((row["name"].partition("-")[0], row["result"]) for row in rows) == [
        ("chat", "deleted"), ("chat", "runs on"), ("chat", "runs on"),
        ("chat", "waited: ServicesLimitReached"),
        ("finetune", "succeeded"), ("finetune", "succeeded"), ("gromacs", "succeeded"),
        ("lammps", "succeeded"), ("notebook", "runs on"), ("qmcpack", "succeeded"),
    ]  # fmt: skip


async def test_a_demo_stopped_half_way_leaves_nothing_running(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with running("demo", "--speed", "1") as process:
        while not (said := await line(process.stderr)).startswith("applying the partition"):
            assert said or process.returncode is None
        children = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 1
    assert children
    assert not still_there(children)
    assert not left_in(tmp_path)
