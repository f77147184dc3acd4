"""The manifests of `examples/workloads` on a real API server with the real definitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.api import Api
from support.kubectl import Kubectl

EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"
NAMESPACE = "team-vision"
WITHOUT_DEFINITION = {"notebook.yaml"}
"""Kinds whose definition no registry has; of these only the Pods are tried."""

MANIFESTS = sorted(EXAMPLES.glob("*.yaml"), key=lambda file: file.name)
LIMIT = "partita.dev/gpu-memory"

Json = dict[str, Any]


def documents(file: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


def lost(sent: Any, kept: Any, where: str = "") -> Iterator[str]:
    """Name what was sent and is not in what was kept."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            yield from lost(value, kept.get(name), f"{where}.{name}")
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for number, (one, other) in enumerate(zip(sent, kept, strict=True)):
            yield from lost(one, other, f"{where}[{number}]")
    elif sent != kept:
        yield f"{where}: {sent!r} became {kept!r}"


def pod_specs(value: Any) -> Iterator[Json]:
    """Find the Pod specs in a manifest of any kind, by the containers that each has."""
    if isinstance(value, list):
        for item in value:
            yield from pod_specs(item)
    elif isinstance(value, dict):
        if value.get("kind") == "Workflow":
            yield from workflow_pods(value["spec"])
        elif "containers" in value:
            yield value
        else:
            for item in value.values():
                yield from pod_specs(item)


def workflow_pods(spec: Json) -> Iterator[Json]:
    """Return what an Argo Workflow's controller makes of templates with one container."""
    for template in spec["templates"]:
        yield {
            "securityContext": spec["securityContext"],
            "containers": [{"name": "main", **template["container"]}],
            **yaml.safe_load(template["podSpecPatch"]),
        }


def asks_for_a_slice(spec: Json) -> bool:
    """Say whether a container names the Pod's claim, or has a limit of GPU memory."""
    claims = {claim["name"] for claim in spec.get("resourceClaims", ())}
    resources = [container.get("resources", {}) for container in spec["containers"]]
    named = {claim["name"] for resource in resources for claim in resource.get("claims", ())}
    limited = any(LIMIT in resource.get("limits", {}) for resource in resources)
    return bool(claims & named) or limited


@pytest.fixture
async def team(api: Api) -> str:
    """The team's namespace, whose Pods the API server holds to Pod Security `restricted`."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    return NAMESPACE


@pytest.mark.parametrize(
    "file",
    [file for file in MANIFESTS if file.name not in WITHOUT_DEFINITION],
    ids=lambda file: file.stem,
)
async def test_the_api_server_keeps_every_field(file: Path, team: str, kubectl: Kubectl):
    made = await kubectl(
        *("create", "--dry-run=server", "--validate=strict", "--output=yaml"), f"--filename={file}"
    )
    assert list(lost(documents(file), list(yaml.safe_load_all(made.ok())))) == []


@pytest.mark.parametrize(
    "file",
    [file for file in MANIFESTS if file.stem != "claim-template"],
    ids=lambda file: file.stem,
)
async def test_its_pods_are_restricted_and_one_asks_for_a_slice(file: Path, team: str, api: Api):
    specs = [spec for document in documents(file) for spec in pod_specs(document)]
    kept = []
    for spec in specs:
        pod = {"metadata": {"generateName": "example-"}, "spec": spec}
        answer = await api.post(f"/api/v1/namespaces/{team}/pods", pod, dryRun="All")
        kept.append(answer.ok().body["spec"])
    assert any(asks_for_a_slice(spec) for spec in kept)
