"""What the Deployments tell operator and console is what these understand."""

from __future__ import annotations

import inspect
from types import ModuleType

import click
import pytest
import yaml

from manifests.rendering import BASE, documents, kustomize
from partita.cli import main
from partita.cli.cluster.run import command
from partita.cli.partitions.console import command as console_command
from partita.console import web_server as server
from partita.models.quantities import parse_memory
from partita.process import image
from partita.process import probes as health
from support.clusters import ApiServer

# click keeps the help option of a command's first context: with its group it has -h, too.
ROOT_CONTEXT = click.Context(main, **main.context_settings)


def objects(name: str) -> list[dict]:
    return list(yaml.safe_load_all((BASE / name).read_text()))


def pod(file: str = "operator.yaml") -> dict:
    (deployment,) = (d for d in objects(file) if d["kind"] == "Deployment")
    return deployment["spec"]["template"]["spec"]


def test_its_arguments_are_known_and_agree_with_the_other_manifests() -> None:
    (container,) = pod()["containers"]
    name, *arguments = container["args"]
    assert name == command.name
    given = command.make_context(name, list(arguments), parent=ROOT_CONTEXT).params
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("http", given["health_port"])
    namespaces = {d["metadata"]["name"] for d in objects("namespaces.yaml")}
    assert namespaces == {given["namespace"], given["server_namespace"]}
    (account,) = (d["metadata"] for d in objects("agent-rights.yaml") if "Account" in d["kind"])
    assert account["name"] == given["service_account"]
    assert account["namespace"] == given["server_namespace"]
    (priority,) = objects("priority.yaml")
    assert priority["metadata"]["name"] == given["server_priority_class"]
    assert pod()["priorityClassName"] == given["server_priority_class"]
    assert priority["preemptionPolicy"] == "Never", "a server Pod would take others' GPUs"


def test_the_variables_of_recordings_and_traces_are_read(api_server: ApiServer) -> None:
    pod = documents(kustomize("example"))["Deployment", "partita-operator"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    variables = {e["name"]: e.get("value") for e in container["env"]}
    context = {
        option.name: option.envvar for option in command.params if option.envvar in variables
    }
    assert context["record"] == "PARTITA_RECORD"
    assert context["trace"] == "PARTITA_TRACE"
    (volume,) = [v for v in container["volumeMounts"] if v["mountPath"] == "/recordings"]
    assert variables["PARTITA_RECORD"] == volume["mountPath"]
    limit, size = (
        parse_memory(text)
        for text in (
            variables["PARTITA_RECORD_LIMIT"],
            next(v for v in pod["spec"]["volumes"] if v["name"] == volume["name"])["emptyDir"][
                "sizeLimit"
            ],
        )
    )
    assert limit < size, "kubelet would evict the Pod before the operator deletes old recordings"


@pytest.mark.parametrize(
    ("file", "served"), [("operator.yaml", health), ("console.yaml", server)], ids=str
)
def test_their_probes_ask_what_is_answered(file: str, served: ModuleType) -> None:
    (container,) = pod(file)["containers"]
    (port,) = container["ports"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == port["name"]
        assert f'"{asked["path"]}"' in inspect.getsource(served)


def test_it_finds_its_own_image_by_its_containers_name() -> None:
    (container,) = pod()["containers"]
    assert container["name"] == image._CONTAINER


def test_the_console_listens_in_the_cluster_where_its_probes_ask() -> None:
    (container,) = pod("console.yaml")["containers"]
    name, *arguments = container["args"]
    assert name == console_command.name
    given = console_command.make_context(name, list(arguments), parent=ROOT_CONTEXT).params
    assert given["in_cluster"]
    (port,) = container["ports"]
    assert port["containerPort"] == given["port"]


def test_the_network_lets_nothing_out_but_to_the_api_server() -> None:
    for policy in objects("network.yaml"):
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        assert ports == [443, 6443]


def test_its_variables_are_read() -> None:
    (container,) = pod()["containers"]
    known = {option.envvar for option in command.params}
    assert {entry["name"] for entry in container["env"]} <= known
