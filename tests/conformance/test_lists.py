"""Lists: selectors, pages and versions."""

from __future__ import annotations

import pytest

from conformance.objects import GROUP, config_map, pod, widget, widgets
from support.api import Api


@pytest.fixture
async def three(api: Api, namespace: str) -> str:
    """Three widgets a, b and c with labels; the path of their collection."""
    for name, size, labels in (
        ("a", "small", {"app": "x", "tier": "1"}),
        ("b", "large", {"app": "y", "tier": "1"}),
        ("c", "large", {"app": "y"}),
    ):
        obj = widget(name, size=size)
        obj["metadata"]["labels"] = labels
        (await api.post(widgets(namespace), obj)).ok()
    return widgets(namespace)


async def test_a_list_names_its_kind_and_version(api: Api, three: str):
    answer = (await api.get(three)).ok()
    assert answer.body["kind"] == "WidgetList"
    assert answer.body["apiVersion"] == f"{GROUP}/v1"
    newest = max(int(item["metadata"]["resourceVersion"]) for item in answer.body["items"])
    assert int(answer.version) >= newest
    assert answer.names == ["a", "b", "c"]
    assert {item["kind"] for item in answer.body["items"]} == {"Widget"}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", "a"),
        ("app!=x", "bc"),
        ("app=y,tier=1", "b"),
        ("app in (x,y)", "abc"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier notin (1)", "c"),
        ("app=", ""),
        ("", "abc"),
    ],
)
async def test_label_selectors(api: Api, three: str, selector: str, names: str):
    assert "".join((await api.get(three, labelSelector=selector)).ok().names) == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=b", "b"),
        ("metadata.name!=b", "ac"),
        ("spec.size=large", "bc"),
        ("spec.size=large,metadata.name!=c", "b"),
        ("", "abc"),
    ],
)
async def test_field_selectors(api: Api, three: str, selector: str, names: str):
    assert "".join((await api.get(three, fieldSelector=selector)).ok().names) == names


@pytest.mark.parametrize(
    "selector",
    [
        {"labelSelector": "a=!!b"},
        {"labelSelector": "app in x"},
        {"labelSelector": "=x"},
        {"labelSelector": "app=no spaces"},
        {"fieldSelector": "spec.nothing=1"},
        {"fieldSelector": "metadata.name"},
    ],
)
async def test_refuses_a_selector_it_does_not_understand(api: Api, three: str, selector: dict):
    answer = await api.get(three, **selector)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


async def test_pods_are_selected_by_node_and_phase(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/pods"
    (await api.post(path, pod("bound", nodeName="n1"))).ok()
    (await api.post(path, pod("free"))).ok()
    (await api.patch(f"{path}/bound/status", {"status": {"phase": "Running"}})).ok()
    assert (await api.get(path, fieldSelector="spec.nodeName=n1")).names == ["bound"]
    assert (await api.get(path, fieldSelector="spec.nodeName=")).names == ["free"]
    assert (await api.get(path, fieldSelector="status.phase=Running")).names == ["bound"]
    assert (await api.get(path, fieldSelector="status.phase!=Running")).names == ["free"]
    refused = await api.get(path, fieldSelector="spec.nothing=1")
    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


async def test_pages_follow_one_another_without_gap(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for n in range(7):
        (await api.post(path, config_map(f"c{n}"))).ok()
    wanted = [f"c{n}" for n in range(7)]
    everything = (await api.get(path)).ok()
    assert "continue" not in everything.body["metadata"]
    page = (await api.get(path, limit=3)).ok()
    version, names = page.version, page.names
    assert page.body["metadata"]["remainingItemCount"] == len(everything.names) - 3
    while token := page.body["metadata"].get("continue"):
        page = (await api.get(path, limit=3, **{"continue": token})).ok()
        assert page.version == version
        names += page.names
    assert [name for name in names if name != "kube-root-ca.crt"] == wanted


async def test_later_pages_show_the_time_of_the_first(api: Api, three: str):
    page = (await api.get(three, limit=2)).ok()
    assert page.names == ["a", "b"]
    (await api.post(three, widget("d"))).ok()
    (await api.delete(f"{three}/c")).ok()
    rest = (await api.get(three, limit=2, **{"continue": page.body["metadata"]["continue"]})).ok()
    assert rest.names == ["c"]
    assert not rest.body["metadata"].get("continue")
