"""Patches: merge patch and strategic merge patch."""

from __future__ import annotations

import pytest

from conformance.objects import config_map, pod, widget, widgets
from support.api import MERGE, STRATEGIC, Api


@pytest.mark.parametrize(("content_type", "body"), [(MERGE, "["), (MERGE, "[]"), (MERGE, "")])
async def test_a_malformed_patch_is_a_bad_request(
    api: Api, namespace: str, content_type: str, body: str
):
    (await api.post(widgets(namespace), widget())).ok()
    answer = await api.patch(widgets(namespace, "w"), body, content_type)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("content_type", [STRATEGIC, "application/json", "text/plain"])
async def test_custom_kinds_refuse_other_types_of_patch(
    api: Api, namespace: str, content_type: str
):
    (await api.post(widgets(namespace), widget())).ok()
    answer = await api.patch(widgets(namespace, "w"), {}, content_type)
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")


async def test_a_patch_cannot_move_an_object(api: Api, namespace: str):
    (await api.post(widgets(namespace), widget())).ok()
    answer = await api.patch(widgets(namespace, "w"), {"metadata": {"name": "other"}})
    assert answer.status in {400, 422}
    assert (await api.get(widgets(namespace, "w"))).status == 200


async def test_strategic_patch_merges_conditions_by_type(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/pods"
    (await api.post(path, pod())).ok()
    for kind, status in (("Ready", "False"), ("Initialized", "True"), ("Ready", "True")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        answer = await api.patch(f"{path}/p/status", patch, STRATEGIC)
    conditions = {c["type"]: c["status"] for c in answer.ok().body["status"]["conditions"]}
    assert conditions == {"Ready": "True", "Initialized": "True"}
    gone = {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    answer = await api.patch(f"{path}/p/status", gone, STRATEGIC)
    assert [c["type"] for c in answer.ok().body["status"]["conditions"]] == ["Initialized"]


async def test_strategic_patch_adds_to_and_takes_from_finalizers(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    (await api.post(path, config_map(finalizers=["partita.dev/a"]))).ok()
    more = {"metadata": {"finalizers": ["partita.dev/b"]}}
    answer = await api.patch(f"{path}/c", more, STRATEGIC)
    assert set(answer.ok().body["metadata"]["finalizers"]) == {"partita.dev/a", "partita.dev/b"}
    less = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["partita.dev/a"]}}
    answer = await api.patch(f"{path}/c", less, STRATEGIC)
    assert answer.ok().body["metadata"]["finalizers"] == ["partita.dev/b"]
    (await api.patch(f"{path}/c", {"metadata": {"finalizers": None}}, STRATEGIC)).ok()
