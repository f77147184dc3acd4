"""Watches: what is told, in which order, from when, and when they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.objects import GROUP, binding, pod, widget, widgets
from support.api import Api
from support.polling import until


async def test_changes_arrive_in_order_from_a_version(api: Api, namespace: str):
    path = widgets(namespace)
    before = (await api.get(path)).version
    (await api.post(path, widget("a"))).ok()
    (await api.patch(f"{path}/a", {"spec": {"replicas": 2}})).ok()
    async with api.watch(path, resourceVersion=before) as watch:
        (await api.patch(f"{path}/a/status", {"status": {"phase": "On"}})).ok()
        (await api.delete(f"{path}/a")).ok()
        events = [await watch.next() for _ in range(4)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert events[1][1]["spec"]["replicas"] == 2
    assert events[3][1]["status"] == {"phase": "On"}
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(before)


@pytest.mark.parametrize("params", [{}, {"resourceVersion": "0"}])
async def test_without_a_version_it_begins_with_what_there_is(
    api: Api, namespace: str, params: dict[str, str]
):
    path = widgets(namespace)
    for name in "ab":
        (await api.post(path, widget(name))).ok()
    async with api.watch(path, **params) as watch:
        names = {(await watch.next())[1]["metadata"]["name"] for _ in "ab"}
        (await api.delete(f"{path}/a")).ok()
        kind, obj = await watch.next()
    assert names == {"a", "b"}
    assert (kind, obj["metadata"]["name"]) == ("DELETED", "a")


async def test_a_watch_of_a_namespace_sees_no_other(api: Api, namespace: str):
    path = widgets(namespace)
    version = (await api.get(path)).version
    async with api.watch(path, resourceVersion=version) as watch:
        (await api.post(widgets("default"), widget(f"stranger-{namespace}"))).ok()
        (await api.delete(widgets("default", f"stranger-{namespace}"))).ok()
        (await api.post(path, widget("mine"))).ok()
        assert (await watch.next())[1]["metadata"]["name"] == "mine"


async def test_a_label_selector_turns_changes_into_comings_and_goings(api: Api, namespace: str):
    path = widgets(namespace)
    version = (await api.get(path)).version
    async with api.watch(path, resourceVersion=version, labelSelector="in=yes") as watch:
        (await api.post(path, widget("a"))).ok()
        for value, expected in (("yes", "ADDED"), ("no", "DELETED")):
            (await api.patch(f"{path}/a", {"metadata": {"labels": {"in": value}}})).ok()
            kind, obj = await watch.next()
            assert kind == expected
            assert obj["metadata"]["labels"] == {"in": "yes"}
        (await api.delete(f"{path}/a")).ok()
        (
            await api.post(path, widget("b") | {"metadata": {"name": "b", "labels": {"in": "yes"}}})
        ).ok()
        assert (await watch.next())[1]["metadata"]["name"] == "b"


async def test_a_watch_of_pods_by_node_sees_the_binding_as_an_arrival(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/pods"
    version = (await api.get(path)).version
    async with api.watch(path, resourceVersion=version, fieldSelector="spec.nodeName=n1") as watch:
        (await api.post(path, pod())).ok()
        (await api.post(f"{path}/p/binding", binding())).ok()
        kind, obj = await watch.next()
    assert (kind, obj["spec"]["nodeName"]) == ("ADDED", "n1")


async def test_a_bookmark_tells_the_version_before_the_end(api: Api, namespace: str):
    path = widgets(namespace)
    (await api.post(path, widget("a"))).ok()
    version = (await api.get(path)).version
    asked = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": 3}

    async def events_until_the_end() -> list[tuple[str, dict[str, Any]]]:
        async with api.watch(path, **asked) as watch:
            return await watch.rest()

    # Kubernetes sends it 2 s before the end, and does not promise it: a busy server is too late.
    events = await until(events_until_the_end)
    assert {kind for kind, _ in events} == {"BOOKMARK"}
    bookmark = events[-1][1]
    assert (bookmark["apiVersion"], bookmark["kind"]) == (f"{GROUP}/v1", "Widget")
    assert int(bookmark["metadata"]["resourceVersion"]) >= int(version)
    assert "name" not in bookmark["metadata"]
    async with api.watch(path, resourceVersion=bookmark["metadata"]["resourceVersion"]) as watch:
        (await api.delete(f"{path}/a")).ok()
        assert (await watch.next())[0] == "DELETED"


async def test_a_version_that_is_forgotten_is_gone(api: Api, namespace: str):
    # Version 1 is older than the definition of the kind, so no server remembers its changes.
    async with api.watch(widgets(namespace), resourceVersion="1") as watch:
        kind, status = await watch.next()
    assert kind == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_a_client_that_leaves_does_not_disturb_the_others(api: Api, namespace: str):
    path = widgets(namespace)
    version = (await api.get(path)).version
    async with api.watch(path, resourceVersion=version) as staying:
        async with api.watch(path, resourceVersion=version):
            pass
        await asyncio.gather(*(api.post(path, widget(f"w{n}")) for n in range(20)))
        seen = [(await staying.next())[1]["metadata"] for _ in range(20)]
    assert {m["name"] for m in seen} == {f"w{n}" for n in range(20)}
    versions = [int(m["resourceVersion"]) for m in seen]
    assert versions == sorted(versions)
