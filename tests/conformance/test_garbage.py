"""Garbage collection by owner references, and namespaces' ends.

A real controller manager learns of a new kind only every 30 s, hence the long limits; nothing
here waits for a fixed time.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.objects import GADGETS, config_map, gadget, widget, widgets
from support.api import Api


def owned_by(owner: dict[str, Any]) -> list[dict[str, Any]]:
    """Return owner references to ``owner``."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


async def seen_by_the_collector(api: Api, namespace: str) -> None:
    """Return when the collector knows of every ConfigMap made so far.

    It learns of them in order, and an object without its owner goes as soon as it learns of it.
    """
    ghost = widget("ghost")
    ghost["metadata"]["uid"] = "00000000-0000-0000-0000-000000000001"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    (await api.post(path, config_map("ghost", ownerReferences=owned_by(ghost)))).ok()
    await api.gone(f"{path}/ghost")


async def family(api: Api, namespace: str, **metadata: Any) -> tuple[str, str]:
    """Create a Widget that owns a ConfigMap ``c``; return both paths."""
    owner = (await api.post(widgets(namespace), widget("owner"))).ok().body
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    child = config_map(ownerReferences=owned_by(owner), **metadata)
    (await api.post(path, child)).ok()
    return widgets(namespace, "owner"), f"{path}/c"


@pytest.mark.parametrize("policy", [None, "Background"])
async def test_dependents_follow_their_owner(api: Api, namespace: str, policy: str | None):
    owner, child = await family(api, namespace)
    (await api.delete(owner, {"propagationPolicy": policy} if policy else None)).ok()
    assert (await api.get(owner)).status == 404
    await api.gone(child)


async def test_orphaned_dependents_lose_their_reference(api: Api, namespace: str):
    owner, child = await family(api, namespace)
    await seen_by_the_collector(api, namespace)
    (await api.delete(owner, {"propagationPolicy": "Orphan"})).ok()
    await api.gone(owner)
    assert "ownerReferences" not in (await api.get(child)).ok().body["metadata"]


async def test_a_cluster_scoped_owner_has_dependents_in_namespaces(api: Api, namespace: str):
    name = f"owner-of-{namespace}"
    owner = (await api.post(GADGETS, gadget(name))).ok().body
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    (await api.post(path, config_map(ownerReferences=owned_by(owner)))).ok()
    (await api.post(widgets(namespace), widget("kept"))).ok()
    (await api.delete(f"{GADGETS}/{name}")).ok()
    await api.gone(f"{path}/c")
    assert (await api.get(widgets(namespace, "kept"))).status == 200


async def test_an_owner_made_anew_is_another_owner(api: Api, namespace: str):
    owner, child = await family(api, namespace, finalizers=["partita.dev/hold"])
    (await api.delete(owner)).ok()
    (await api.post(widgets(namespace), widget("owner"))).ok()
    (await api.patch(child, {"metadata": {"finalizers": None}})).ok()
    await api.gone(child)
    assert (await api.get(owner)).status == 200


async def new_namespace(api: Api, name: str) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return (await api.post("/api/v1/namespaces", body)).ok().body


async def test_a_namespace_takes_its_objects_with_it(api: Api):
    await new_namespace(api, "passing")
    (await api.post(widgets("passing"), widget())).ok()
    path = "/api/v1/namespaces/passing"
    (await api.post(f"{path}/configmaps", config_map())).ok()
    (await api.delete(path)).ok()
    await api.gone(path)
    assert (await api.get(widgets("passing"))).ok().body["items"] == []
    await new_namespace(api, "passing")
    assert (await api.get(f"{path}/configmaps/c")).status == 404
    await api.delete(path)


async def test_a_terminating_namespace_takes_nothing_new(api: Api):
    await new_namespace(api, "ending")
    path = "/api/v1/namespaces/ending"
    obj = widget()
    obj["metadata"]["finalizers"] = ["partita.dev/hold"]
    (await api.post(widgets("ending"), obj)).ok()
    (await api.delete(path)).ok()
    assert (await api.get(path)).body["status"]["phase"] == "Terminating"
    refused = await api.post(widgets("ending"), widget("late"))
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    cause = refused.body["details"]["causes"][0]
    assert (cause["reason"], cause["field"]) == ("NamespaceTerminating", "metadata.namespace")
    assert "is being terminated" in refused.body["message"]

    async with api.watch(widgets("ending"), resourceVersion="0") as watch:
        while "deletionTimestamp" not in (await watch.next())[1]["metadata"]:
            pass
    (await api.patch(widgets("ending", "w"), {"metadata": {"finalizers": None}})).ok()
    await api.gone(path)


async def test_a_missing_namespace_is_not_found(api: Api):
    answer = await api.post(widgets("missing"), widget())
    assert (answer.status, answer.body["reason"]) == (404, "NotFound")
    assert answer.body["message"] == 'namespaces "missing" not found'
    assert answer.body["details"] == {"name": "missing", "kind": "namespaces"}
