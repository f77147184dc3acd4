"""What a client learns about the server before it knows any kind."""

from __future__ import annotations

import pytest

from conformance.objects import GROUP
from support.api import Api


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_says_that_it_is_well(api: Api, path: str):
    answer = await api.get(path)
    assert (answer.status, answer.body) == (200, "ok")


async def test_lists_groups_with_their_versions(api: Api):
    body = (await api.get("/apis")).ok().body
    assert body["kind"] == "APIGroupList"
    groups = {group["name"]: group for group in body["groups"]}
    assert {"apiextensions.k8s.io", "coordination.k8s.io", GROUP} <= set(groups)
    version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert groups[GROUP]["versions"] == [version]
    assert groups[GROUP]["preferredVersion"] == version


async def resources(api: Api, path: str) -> dict[str, dict]:
    body = (await api.get(path)).ok().body
    assert body["kind"] == "APIResourceList"
    assert body["groupVersion"] == path.removeprefix("/apis/").removeprefix("/api/")
    return {resource["name"]: resource for resource in body["resources"]}


ALL_VERBS = {
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
}


async def test_describes_custom_resources_and_their_subresources(api: Api):
    found = await resources(api, f"/apis/{GROUP}/v1")
    assert set(found) == {"widgets", "widgets/status", "widgets/scale", "gadgets"}
    widgets = found["widgets"]
    assert widgets["namespaced"] is True
    assert widgets["kind"] == "Widget"
    assert widgets["singularName"] == "widget"
    assert widgets["shortNames"] == ["wdg"]
    assert widgets["categories"] == ["conformance"]
    assert set(widgets["verbs"]) == ALL_VERBS
    assert found["gadgets"]["namespaced"] is False
    assert set(found["widgets/status"]["verbs"]) == {"get", "patch", "update"}
    scale = found["widgets/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


@pytest.mark.parametrize(
    ("name", "kind", "namespaced", "short"),
    [
        ("pods", "Pod", True, ["po"]),
        ("nodes", "Node", False, ["no"]),
        ("namespaces", "Namespace", False, ["ns"]),
        ("events", "Event", True, ["ev"]),
        ("configmaps", "ConfigMap", True, ["cm"]),
    ],
)
async def test_describes_core_resources(
    api: Api, name: str, kind: str, *, namespaced: bool, short: list[str]
):
    found = (await resources(api, "/api/v1"))[name]
    assert (found["kind"], found["namespaced"], found["shortNames"]) == (kind, namespaced, short)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(found["verbs"])


async def test_describes_the_subresources_of_pods(api: Api):
    found = await resources(api, "/api/v1")
    assert found["pods/binding"]["kind"] == "Binding"
    assert found["pods/binding"]["verbs"] == ["create"]
    assert {"get", "patch", "update"} <= set(found["pods/status"]["verbs"])
    assert {"get", "patch", "update"} <= set(found["nodes/status"]["verbs"])


@pytest.mark.parametrize(
    "path",
    [
        "/apis/nothing.example.org",
        "/apis/nothing.example.org/v1",
        f"/apis/{GROUP}/v2/gadgets",
        f"/apis/{GROUP}/v1/nothings",
        "/api/v1/nothings",
        "/nothing",
    ],
)
async def test_has_no_page_for_what_it_does_not_serve(api: Api, path: str):
    assert (await api.get(path)).status == 404
