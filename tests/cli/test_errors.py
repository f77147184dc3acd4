"""What each command reports when its cluster, its kubeconfig or a name is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.objects import create, job, node
from cli.test_json_output import ARGUMENTS
from partita.times import Times
from support.api import Api
from support.clusters import ApiServer

NAMES = {"ns": "team", "pool": "p", "tmp": "."}
ONLINE = sorted(ARGUMENTS.keys() - {"policies", "validate", "simulate", "replay", "advise"})
READERS = (
    *((name, *ARGUMENTS[name].format(**NAMES).split()) for name in ONLINE),
    ("submit", "train", "--image", "i"), ("explain", "pod/train"), ("advise",),
    ("console", "--port", "0"), ("run",),
)  # fmt: skip
"""Each command that reads the cluster of a kubeconfig."""


def kubeconfig(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    } | changes


def of_cluster(**fields: Any) -> dict[str, Any]:
    cluster = {"server": "https://127.0.0.1:1", **fields}
    return kubeconfig(clusters=[{"name": "c", "cluster": cluster}])


def by_plugin(command: str, *args: str) -> dict[str, Any]:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": [*args]}
    return kubeconfig(users=[{"name": "u", "user": {"exec": plugin}}])


@pytest.mark.parametrize("args", READERS, ids=" ".join)
def test_no_kubeconfig_is_one_sentence(invoke, tmp_path: Path, monkeypatch, args) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    result = invoke(*args, *(() if args == ("run",) else ("-o", "json")), code=1)
    assert not result.stdout
    assert result.stderr == (
        "Error: the kubeconfig ~/.kube/config cannot be used: the file does not exist. Name a "
        "kubeconfig with --kubeconfig or KUBECONFIG, or start a cluster with `partita apiserver`\n"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it is empty, or not a kubeconfig"),
        ("{}", "it has no current context: set one with"),
        ("a: [\n", "it is not valid YAML (line 2)"),
        (kubeconfig(**{"current-context": ""}), "it has no current context: set one with"),
        (kubeconfig(clusters=[]), "clusters list"),
        (of_cluster(server="nonsense"), "the cluster's server is no URL: 'nonsense'"),
        (of_cluster(**{"proxy-url": "socks5://p:1"}), "its proxy-url is not of the form http"),
        (of_cluster(**{"proxy-url": {"a": 1}}), "its proxy-url is not of the form http"),
        (of_cluster(**{"certificate-authority-data": "AAAA"}), "a certificate or key in it cannot"),
        (kubeconfig(users=[{"name": "u", "user": {"token": "a\nb"}}]), "its token contains a line"),
        (kubeconfig(users=[{"name": "u", "user": {"tokenFile": "/no"}}]), "or directory: /no"),
        (by_plugin("no-plugin"), "its credential plugin no-plugin failed ([Errno 2] No such file"),
        (
            by_plugin("sh", "-c", "echo log in >&2; exit 3"),
            "returned 3. log in): install it, or log in",
        ),
        (by_plugin("echo", "{}"), "its credential plugin echo failed (malformed response."),
    ],
)
def test_a_wrong_kubeconfig_is_named_with_the_reason(
    invoke, tmp_path: Path, content: Any, reason: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    for args in (("top", "--once"), ("logs", "train")):
        result = invoke(*args, "--kubeconfig", path, code=1)
        assert result.stderr.startswith(f"Error: the kubeconfig {path} cannot be used: ")
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_wrong_context_names_those_of_the_kubeconfig(invoke, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig()))
    for args in (("top", "--once"), ("jobs",)):
        result = invoke(*args, "--kubeconfig", path, "--context", "prod", code=1)
        assert "it has no context prod (it has: c)" in result.stderr


@pytest.mark.parametrize("args", READERS[:-1], ids=" ".join)
def test_a_server_that_does_not_answer_is_reported(
    invoke, tmp_path: Path, monkeypatch, args
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig()))
    result = invoke(*args, "--kubeconfig", path, times=Times(request_pause=0.0), code=1)
    assert "the API server does not answer (" in result.stderr
    assert "Traceback" not in result.stderr


async def test_a_namespace_that_does_not_exist_is_named(partita) -> None:
    for args in (
        ("submit", "nosuch/train", "--image", "i", "--partition", "p"),
        ("submit", "train", "-n", "nosuch", "--image", "i", "--partition", "p"),
        ("jobs", "-n", "nosuch"),
        ("explain", "train", "-n", "nosuch"),
        ("logs", "nosuch/train"),
        ("suspend", "nosuch/train"),
    ):
        result = await partita(*args, code=1)
        assert not result.stdout, args
        assert result.stderr == (
            "Error: namespace nosuch does not exist: name another with -n, or create it with "
            "`kubectl create namespace nosuch`\n"
        ), args


async def test_a_job_that_does_not_exist_is_named(partita, namespace: str) -> None:
    for command in ("explain", "logs", "retry", "suspend", "resume"):
        result = await partita(command, f"{namespace}/nosuch", code=1)
        assert f"there is no SharedGPUJob nosuch in namespace {namespace}" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("explain", "/train"), "'/train' names no job: write NAME or NAMESPACE/NAME"),
        (("explain", "a/b/c"), "names no job"),
        (("explain", "a", "-f", "-"), "write either NAME or --filename FILE"),
        (("logs", "team-a/"), "names no job"),
        (("logs", "team-a/train", "-n", "team-b"), "name different namespaces"),
        (("submit", "team-a/train", "-n", "team-b", "--image", "i"), "name different namespaces"),
        (("jobs", "-A", "-n", "team-a"), "exclude each other"),
        (("top", "-o", "xml"), "'xml' is not one of 'table', 'json', 'yaml'"),
        (("top", "--kubeconfig", "x" * 300), "there is no file xxx"),
        (("top", "--kubeconfig", "~nosuch/config"), "there is no file ~nosuch/config"),
    ],
)
def test_names_and_formats_are_checked_before_the_cluster_is_asked(invoke, args, message) -> None:
    result = invoke(*args, code=2)
    assert message in result.stderr


@pytest.mark.parametrize("amount", ["", "0", "8Ei"])
def test_a_bad_quantity_is_wrong_usage(invoke, amount: str) -> None:
    for args in (
        ("submit", "a", "--image", "i", "--partition", "p", "--dry-run", "--gpu-memory", amount),
        ("run", "--record-limit", amount),
    ):
        result = invoke(*args, code=2)
        assert "write an amount" in result.stderr


def test_a_quantity_is_printed_as_kubectl_reads_it(invoke) -> None:
    args = ("submit", "a", "--image", "i", "--partition", "p", "--dry-run")
    result = invoke(*args, "--gpu-memory", "1e9", "--env", "RATE=1e5")
    assert "  gpuMemory: '1000000000'\n" in result.stdout
    assert "value: '1e5'\n" in result.stdout
    result = invoke(*args, "--gpu-memory", "12Gi", "--env", "NAME=\N{ROCKET}")
    assert "value: \N{ROCKET}\n" in result.stdout
    assert "  gpuMemory: 12Gi\n" in result.stdout


async def test_logs_say_that_a_pod_has_no_log_yet(
    partita, api: Api, api_server: ApiServer, namespace: str
) -> None:
    status = {"attempts": [{"number": 1, "pod": "train-1"}]}
    await create(api, job("train", "1Gi", namespace=namespace, partition="pool", status=status))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-1"}}
    machine = f"node-{namespace}"  # it has no kubelet
    await create(api, node(machine))
    pod["spec"] = {"nodeName": machine, "containers": [{"name": "main", "image": "i"}]}
    (await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)).ok()
    pending = await partita("logs", f"{namespace}/train", code=1)
    assert f"Pod {namespace}/train-1 exists, but the API server has no log" in pending.stderr
    assert f"`kubectl logs -n {namespace} train-1 -c main`" in pending.stderr
    await api.delete(f"/api/v1/nodes/{machine}")


def test_an_interrupted_command_exits_with_130(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("partita.validation.files.check_files", interrupted)
    (tmp_path / "a.yaml").touch()
    assert not invoke("validate", tmp_path, code=130).stdout
