"""The commands of people: submit, retry, suspend, resume, drain, bundle, completion."""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from cli.objects import create, job, node, partition, server
from partita.cli.completion import kubectl_complete
from partita.kube.client import NODES, PARTITIONS, Kind, Kube
from partita.kube.errors import ForbiddenError
from support.api import Api
from support.clusters import ApiServer
from support.faults import When, writes
from support.polling import until
from support.proxy import FaultProxy

GROUP = "/apis/partita.dev/v1alpha1"


def path_of(namespace: str, name: str) -> str:
    return f"{GROUP}/namespaces/{namespace}/sharedgpujobs/{name}"


@pytest.fixture
def submit(partita, namespace: str):
    async def run(*args: str, name: str = "train", **more):
        return await partita("submit", name, "-n", namespace, "--partition", "pool", *args, **more)

    return run


async def test_submit_makes_the_job_and_says_where_to_look(submit, api: Api, namespace) -> None:
    wanted = ("--image", "trainer:1", "--gpu-memory", "6Gi", "--env", "EPOCHS=3")
    done = await submit(*wanted)
    assert f"`partita explain {namespace}/train`" in done.stderr
    made = (await api.get(path_of(namespace, "train"))).ok().body
    assert made["spec"]["gpuMemory"] == "6Gi"
    again = await submit(*wanted, code=1)
    assert f"SharedGPUJob {namespace}/train already exists" in again.stderr


@pytest.mark.usefixtures("partita")
async def test_submit_knows_its_own_job_if_the_answer_is_lost(
    invoke, api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    args = ("submit", "train", "-n", namespace, "--partition", "pool", "--image", "trainer:1")
    async with FaultProxy(api_server) as proxy:
        lost = proxy.inject(writes("sharedgpujobs"), when=When.AFTER, cut=True)
        kubeconfig = proxy.write_kubeconfig(tmp_path, "administrator")
        made = await asyncio.to_thread(invoke, *args, "-o", "json", "--kubeconfig", kubeconfig)
    assert json.loads(made.stdout)["metadata"]["uid"]
    assert f"{namespace}/train is submitted" in made.stderr
    assert lost.happened


def test_submit_takes_a_pod_from_a_pipe_and_prints_yaml(invoke) -> None:
    pod = "{kind: Pod, metadata: {name: old}, spec: {containers: [{name: main, image: i}]}}"
    args = ("submit", "-f", "-", "--partition", "shared", "--dry-run")
    body = yaml.safe_load(invoke(*args, stdin=pod).stdout)
    assert (body["kind"], body["metadata"]) == ("SharedGPUJob", {"name": "old"})
    assert body["spec"]["partition"] == "shared"
    assert json.loads(invoke(*args, "-o", "json", stdin=pod).stdout) == body


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("submit",), 2, "write a NAME and --image"),
        (("submit", "a", "--image", "i", "--env", "X"), 2, "write NAME=VALUE"),
        (("submit", "a", "--image", "i", "-f", "-"), 2, "come from the file"),
        (("submit", "a", "-f", "-"), 1, "has 0 objects: write one Pod or Job"),
        (("submit", "A_b", "--image", "i", "--partition", "p", "--dry-run"), 1, "metadata.name"),
        (("drain",), 2, "name either GPUs or a node"),
        (("drain", "a", "--node", "b"), 2, "name either GPUs or a node"),
        (("completion", "tcsh"), 2, "'bash', 'zsh', 'fish'"),
    ],
)
def test_wrong_usage_says_what_to_write(invoke, args, code: int, said: str) -> None:
    assert said in invoke(*args, code=code, stdin="").stderr


def test_submit_names_the_line_of_bad_yaml(invoke) -> None:
    result = invoke("submit", "-f", "-", stdin="kind: Pod\nspec: [", code=1)
    assert "-:2:" in result.stderr


async def test_submit_asks_which_partition_where_there_are_several(
    partita, api: Api, namespace: str
) -> None:
    names = [f"{letter}-{namespace}" for letter in "ab"]
    for name in names:
        await create(api, partition(name, gpus=0))
    result = await partita("submit", "train", "-n", namespace, "--image", "trainer:1", code=1)
    assert "name a partition with --partition (there are: " in result.stderr
    for name in names:
        assert name in result.stderr
        await api.delete(f"{GROUP}/gpupartitions/{name}")


async def test_retry_marks_a_failed_job_and_no_other(partita, api: Api, namespace: str) -> None:
    common = {"namespace": namespace, "partition": "pool"}
    await create(api, job("failed", "1Gi", status={"phase": "Failed"}, **common))
    await create(api, job("waits", "1Gi", status={"phase": "Queued"}, **common))
    await partita("retry", f"{namespace}/failed")
    meta = (await api.get(path_of(namespace, "failed"))).ok().body["metadata"]
    assert meta["annotations"]["partita.dev/retry"].endswith("Z")
    refused = await partita("retry", "waits", "-n", namespace, code=1)
    assert "has not failed, it is Queued" in refused.stderr


async def test_suspend_and_resume_turn_one_field(partita, api: Api, namespace: str) -> None:
    await create(
        api, job("one", "1Gi", status={"phase": "Queued"}, namespace=namespace, partition="pool")
    )

    async def suspended() -> bool:
        body = (await api.get(path_of(namespace, "one"))).ok().body
        return body["spec"].get("suspend", False)

    await partita("resume", f"{namespace}/one", code=1)
    await partita("suspend", f"{namespace}/one")
    assert await suspended()
    again = await partita("suspend", f"{namespace}/one", code=1)
    assert "is already suspended" in again.stderr
    await partita("resume", f"{namespace}/one")
    assert not await suspended()


async def test_drain_takes_gpus_by_name_or_node_and_gives_them_back(
    partita, api: Api, namespace: str
) -> None:
    gpu, machine = f"gpu-{namespace}", f"node-{namespace}"
    await create(api, node(machine))
    held = await create(api, job("held", "1Gi", namespace=namespace, partition="pool"))
    await create(api, server(gpu, held, on=machine, of="pool"))
    path = f"{GROUP}/gpuservers/{gpu}"

    async def drained() -> bool:
        return bool((await api.get(path)).ok().body["spec"].get("drainSince"))

    done = await partita("drain", gpu)
    assert f"{gpu} accepts no new jobs; running: {namespace}/held" in done.stderr
    assert await drained()
    assert f"{gpu} already is drained" in (await partita("drain", "--node", machine)).stderr
    assert f"{gpu} accepts jobs again" in (await partita("drain", gpu, "--undo")).stderr
    assert not await drained()
    unknown = await partita("drain", "nothing", code=1)
    assert "there is no GPUServer nothing" in unknown.stderr
    nowhere = await partita("drain", "--node", "nowhere", code=1)
    assert "no partition has a GPU on node nowhere" in nowhere.stderr
    await api.delete(path)
    await api.delete(f"/api/v1/nodes/{machine}")


async def test_a_bundle_holds_our_objects_without_secrets(
    partita, api: Api, namespace: str, tmp_path: Path
) -> None:
    body = job("secretive", "1Gi", namespace=namespace, partition="pool")
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "TOKEN", "value": "S3CRET"}
    ]
    await create(api, body)
    target = tmp_path / "bundle.tar.gz"
    await partita("bundle", "--file", str(target))
    with tarfile.open(target) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    jobs = json.loads(files["bundle/sharedgpujobs.json"])
    assert "secretive" in {found["metadata"]["name"] for found in jobs}
    assert b"S3CRET" not in b"".join(files.values())
    assert not [name for name in files if "secret" in name or "configmap" in name]
    again = await partita("bundle", "--file", str(target), code=1)
    assert "already exists" in again.stderr


async def test_a_bundle_names_what_could_not_be_read(
    partita, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Kube.list

    async def some(kube: Kube, kind: Kind, **options: str):
        if kind == NODES:
            raise ForbiddenError("GET /api/v1/nodes", 403, "nodes is forbidden")
        if kind == PARTITIONS:
            quotas = [{"namespace": "a", "memory": "8Ei"}]
            return [{"metadata": {"name": "huge"}, "spec": {"gpus": 1, "quotas": quotas}}], "1"
        return await read(kube, kind, **options)

    monkeypatch.setattr(Kube, "list", some)
    target = tmp_path / "bundle.tar.gz"
    result = await partita("bundle", "--file", str(target))
    with tarfile.open(target) as archive:
        missing = archive.extractfile("bundle/missing.txt").read().decode().splitlines()
        kept = json.loads(archive.extractfile("bundle/gpupartitions.json").read())
    assert "nodes are missing: nodes is forbidden" in missing
    (unreadable,) = [line for line in missing if line.startswith("GPUPartition huge cannot be")]
    assert "spec.quotas[0].memory" in unreadable
    assert kept[0]["metadata"]["name"] == "huge"
    assert unreadable in " ".join(result.stderr.split("\n"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(invoke, shell: str) -> None:
    result = invoke("completion", shell)
    assert "_PARTITA_COMPLETE" in result.stdout


def completed(monkeypatch: pytest.MonkeyPatch, capsys, *words: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-partita", *words])
    kubectl_complete()
    return capsys.readouterr().out.splitlines()


def test_kubectl_is_told_what_may_follow(monkeypatch, capsys) -> None:
    lines = completed(monkeypatch, capsys, "dra")
    assert lines == ["drain\tStop new jobs on GPUs, for maintenance.", ":4"]
    assert completed(monkeypatch, capsys, "completion", "z") == ["zsh", ":4"]


def test_where_there_is_no_cluster_nothing_is_offered(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert completed(monkeypatch, capsys, "explain", "") == [":4"]


async def test_names_are_offered_from_the_cluster(
    monkeypatch, capsys, api_server, partita, api: Api, namespace: str
) -> None:
    await create(api, job("train-7", "1Gi", namespace=namespace, partition="pool"))
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    words, wanted = ("explain", f"{namespace}/"), f"{namespace}/train-7"
    await until(lambda: asyncio.to_thread(lambda: wanted in completed(monkeypatch, capsys, *words)))


async def test_logs_say_why_there_are_none(partita, api: Api, namespace: str) -> None:
    common = {"namespace": namespace, "partition": "pool"}
    started = {"number": 1, "pod": "ran-1", "outcome": "Failed", "message": "exit code 3"}
    await create(api, job("waits", "1Gi", **common))
    await create(api, job("ran", "1Gi", status={"attempts": [started]}, **common))
    for args, said in (
        (("waits",), "has not started yet"),
        (("ran", "--attempt", "2"), "has no attempt 2 (it has: 1)"),
        (("ran", "-c", "side"), "has no container side (it has: main)"),
        (
            ("ran",),
            f"Pod {namespace}/ran-1 is gone, and its log with it; the attempt ended as Failed: exit code 3",
        ),
    ):
        assert said in (await partita("logs", "-n", namespace, *args, code=1)).stderr
