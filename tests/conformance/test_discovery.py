"""What a client learns about the server before it knows any kind."""

from __future__ import annotations

import pytest

from conformance.objects import GROUP
from support.api import Api


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_says_that_it_is_well(api: Api, path: str):
    answer = await api.get(path)
    assert (answer.status, answer.body) == (200, "ok")


async def resources(api: Api, path: str) -> dict[str, dict]:
    body = (await api.get(path)).ok().body
    assert body["kind"] == "APIResourceList"
    assert body["groupVersion"] == path.removeprefix("/apis/").removeprefix("/api/")
    return {resource["name"]: resource for resource in body["resources"]}


async def test_describes_custom_resources_and_their_subresources(api: Api):
    found = await resources(api, f"/apis/{GROUP}/v1")
    assert set(found) == {"widgets", "widgets/status", "widgets/scale", "gadgets"}
    widgets = found["widgets"]
    assert widgets["namespaced"] is True
    assert widgets["kind"] == "Widget"
    assert widgets["singularName"] == "widget"
    assert widgets["shortNames"] == ["wdg"]
    assert widgets["categories"] == ["conformance"]
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(widgets["verbs"])
    assert found["gadgets"]["namespaced"] is False
    assert set(found["widgets/status"]["verbs"]) == {"get", "patch", "update"}
    scale = found["widgets/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
