"""A Pod whose limits nothing has replaced is told what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from partita.partitions.pod_limits import explain_gate, explain_limits


def pod(*limits: dict[str, str], **fields: Any) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "resources": {"limits": one}} for i, one in enumerate(limits)]
    meta = {"name": "serve", "namespace": "team-a", **fields.pop("metadata", {})}
    return {"metadata": meta, "spec": {"containers": containers, **fields}}


SIX = {"partita.dev/gpu-memory": "6Gi"}


@pytest.mark.parametrize(
    ("limits", "annotations", "template"),
    [
        (SIX, {}, "partita-6442450944"),
        (SIX | {"partita.dev/gpu-threads": "50"}, {}, "partita-6442450944-50"),
        (SIX, {"partita.dev/partition": "shared"}, "partita-shared-6442450944"),
    ],
)
def test_the_same_amounts_are_offered_by_a_template(
    limits: dict[str, str], annotations: dict[str, str], template: str
):
    said = explain_limits(pod({"cpu": "1"}, limits, metadata={"annotations": annotations}))
    assert f"resourceClaims: [{{name: gpu, resourceClaimTemplateName: {template}}}]" in said
    assert "Kubernetes 1.36" in said
    assert len(said) <= 1024, "longer than the message of an Event"


@pytest.mark.parametrize(
    "limits",
    [
        [SIX, SIX],
        [{"partita.dev/gpu-threads": "50"}],
        [{"partita.dev/gpu-memory": "6"}],
        [SIX | {"partita.dev/gpu-threads": "101"}],
    ],
)
def test_amounts_that_no_template_has_are_explained_in_the_docs(limits: list[dict[str, str]]):
    said = explain_limits(pod(*limits))
    assert "docs/how-to/run-workloads.md" in said
    assert "resourceClaimTemplateName" not in said


@pytest.mark.parametrize(
    "body",
    [
        pod({"nvidia.com/gpu": "1"}),
        pod(SIX, nodeName="node-1"),
        pod(SIX, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)
def test_others_are_left_alone(body: dict[str, Any]):
    assert explain_limits(body) == explain_gate(body) == ""


def test_a_gate_without_a_claim_is_explained():
    gated = {"schedulingGates": [{"name": "partita.dev/allocation"}]}
    assert "name a ResourceClaimTemplate" in explain_gate(pod(**gated))
    assert explain_gate(pod(**gated, resourceClaims=[{"name": "gpu"}])) == ""
