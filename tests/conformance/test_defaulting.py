"""What the server adds to and takes from a custom object: defaults, pruning, dry runs."""

from __future__ import annotations

from conformance.objects import GADGETS, gadget, widget, widgets
from support.api import Api


async def test_defaults_are_filled_in_on_create(api: Api, namespace: str):
    spec = (await api.post(widgets(namespace), widget())).ok().body["spec"]
    assert spec == {"size": "small", "replicas": 1, "options": {"mode": "fast"}}


async def test_null_is_as_good_as_nothing(api: Api, namespace: str):
    created = await api.post(widgets(namespace), widget(replicas=None))
    assert created.ok().body["spec"]["replicas"] == 1


async def test_unknown_fields_are_pruned(api: Api, namespace: str):
    obj = widget(unknown=1, options={"mode": "slow", "unknown": 2}, ports=[{"name": "a", "x": 1}])
    obj["unknown"] = 3
    created = (await api.post(widgets(namespace), obj)).ok().body
    assert "unknown" not in created
    assert created["spec"]["options"] == {"mode": "slow"}
    assert created["spec"]["ports"] == [{"name": "a"}]
    assert "unknown" not in created["spec"]


async def test_unknown_fields_are_kept_where_the_schema_says_so(api: Api, namespace: str):
    template = {"known": 1, "deep": {"list": [{"a": None}, 1.5]}}
    created = await api.post(widgets(namespace), widget(template=template))
    assert created.ok().body["spec"]["template"] == template
    assert (await api.get(widgets(namespace, "w"))).body["spec"]["template"] == template


async def test_unknown_metadata_is_dropped(api: Api):
    created = await api.post(GADGETS, gadget("unknown-metadata", surprise=1, labels={"a": "b"}))
    metadata = created.ok().body["metadata"]
    assert "surprise" not in metadata
    assert metadata["labels"] == {"a": "b"}
    await api.delete(f"{GADGETS}/unknown-metadata")


async def test_status_is_dropped_on_create_and_on_update(api: Api, namespace: str):
    obj = widget() | {"status": {"phase": "On"}}
    created = (await api.post(widgets(namespace), obj)).ok().body
    assert "status" not in created
    updated = await api.put(widgets(namespace, "w"), created | {"status": {"phase": "On"}})
    assert "status" not in updated.ok().body


async def test_a_kind_without_the_subresource_keeps_its_status_field_pruned(api: Api):
    created = await api.post(GADGETS, gadget("no-status") | {"status": {"phase": "On"}})
    assert "status" not in created.ok().body
    assert (await api.get(f"{GADGETS}/no-status/status")).status == 404
    await api.delete(f"{GADGETS}/no-status")


async def test_the_system_fills_in_metadata(api: Api, namespace: str):
    obj = widget()
    obj["metadata"] |= {"uid": "mine", "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}
    metadata = (await api.post(widgets(namespace), obj)).ok().body["metadata"]
    assert metadata["namespace"] == namespace
    assert metadata["generation"] == 1
    assert len(metadata["uid"]) == 36
    assert not metadata["creationTimestamp"].startswith("2001")
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0


async def test_a_dry_run_answers_and_stores_nothing(api: Api, namespace: str):
    created = await api.post(widgets(namespace), widget(), dryRun="All")
    assert created.status == 201
    assert created.body["spec"]["replicas"] == 1
    assert created.body["metadata"]["uid"]
    assert (await api.get(widgets(namespace, "w"))).status == 404

    kept = (await api.post(widgets(namespace), widget())).ok()
    patch = {"spec": {"replicas": 5}}
    patched = await api.patch(widgets(namespace, "w"), patch, dryRun="All")
    assert patched.ok().body["spec"]["replicas"] == 5
    deleted = await api.delete(widgets(namespace, "w"), dryRun="All")
    assert deleted.status == 200
    assert (await api.get(widgets(namespace, "w"))).body == kept.body
