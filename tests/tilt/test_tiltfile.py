"""The Tiltfile, run as Starlark with stand-ins for Tilt's functions: names, paths and wiring.

What Tilt itself makes of it needs its binary and a cluster, and is not tested.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import starlark
import yaml

from partita.cli import COMMANDS

ROOT = Path(__file__).parents[2]
BUILTINS = ("k8s_resource", "k8s_yaml", "kustomize", "local_resource", "fall_back_on", "sync")
"""Functions of https://docs.tilt.dev/api.html that only note what they are called with."""


def read_objects(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / path).read_text()))


@pytest.fixture(scope="module")
def tilt() -> SimpleNamespace:
    """What the Tiltfile asks of Tilt: arguments of each function's calls, in order."""
    calls: dict[str, list[Any]] = {name: [] for name in (*BUILTINS, "docker_build_with_restart")}

    def stand_in(name: str):
        def note(*args: Any, **named: Any) -> str:
            calls[name].append(SimpleNamespace(args=args, **named))
            return str(args[0]) if args else ""

        return note

    module = starlark.Module()
    for name in BUILTINS:
        module.add_callable(name, stand_in(name))
    module.add_callable(
        "listdir", lambda path: [f"{path}/{f.name}" for f in (ROOT / path).iterdir()]
    )
    module.add_callable("read_file", lambda path: path)
    module.add_callable("decode_yaml_stream", read_objects)
    extension = starlark.Module()
    extension.add_callable("docker_build_with_restart", stand_in("docker_build_with_restart"))

    def load(path: str) -> starlark.FrozenModule:
        assert path == "ext://restart_process"  # an extension of Tilt's own repository
        return extension.freeze()

    source = starlark.parse(
        "Tiltfile", (ROOT / "Tiltfile").read_text(), starlark.Dialect.extended()
    )
    starlark.eval(module, source, starlark.Globals.extended_by([]), starlark.FileLoader(load))
    return SimpleNamespace(**calls)


def test_the_image_is_the_one_that_the_manifests_run(tilt: SimpleNamespace) -> None:
    (build,) = tilt.docker_build_with_restart
    (overlay,) = tilt.kustomize
    kustomization = yaml.safe_load((ROOT / overlay.args[0] / "kustomization.yaml").read_text())
    assert build.args[0] in {image["name"] for image in kustomization["images"]}
    assert build.entrypoint == ["partita"]


def test_what_is_copied_synced_and_watched_is_there(tilt: SimpleNamespace) -> None:
    (build,) = tilt.docker_build_with_restart
    copies = [
        shlex.split(line)[1:]
        for line in build.dockerfile_contents.splitlines()
        if line.startswith("COPY ")
    ]
    copied: dict[str, str] = {}
    for words in copies:
        *sources, target = [word for word in words if not word.startswith("--")]
        copied |= dict.fromkeys(sources, target)
    assert set(copied) == set(build.only)
    assert all((ROOT / source).exists() for source in copied)
    for sync in tilt.sync:
        source, target = sync.args
        assert copied[source] == target
    (rebuilds,) = tilt.fall_back_on
    assert set(rebuilds.args[0]) <= set(copied)


def test_each_resource_names_what_the_manifests_or_the_examples_hold(tilt: SimpleNamespace) -> None:
    *ours, examples = tilt.k8s_resource
    deployments = [
        body
        for path in (ROOT / "manifests/base").glob("*.yaml")
        for body in yaml.safe_load_all(path.read_text())
        if body and body.get("kind") == "Deployment"
    ]
    ports = {
        d["metadata"]["name"]: [
            port["containerPort"]
            for container in d["spec"]["template"]["spec"]["containers"]
            for port in container["ports"]
        ]
        for d in deployments
    }
    assert {resource.args[0]: resource.port_forwards for resource in ours} == ports
    assert "shared:gpupartition" in examples.objects
    assert examples.resource_deps == ["partita-operator"]


def test_each_command_exists(tilt: SimpleNamespace) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for resource in tilt.local_resource:
        for command in (*resource.args[1:], getattr(resource, "serve_cmd", "")):
            program, *words = shlex.split(command) or [""]
            if program == "make":
                target = words[0].replace(".venv/.runtime", "$(RUNTIME)")
                assert f"\n{target}:" in makefile, command
            elif program:
                assert program == ".venv/bin/partita", command
                assert words[0] in COMMANDS, command
        assert all((ROOT / path).exists() for path in getattr(resource, "deps", ()))
