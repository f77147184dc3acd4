"""Server-side apply: who owns a field, what conflicts, what goes when nobody wants it."""

from __future__ import annotations

from typing import Any

from conformance.objects import causes, config_map, gadget, pod, widget, widgets
from support.api import Answer, Api


def entry(answer: Answer, manager: str, subresource: str | None = None) -> dict[str, Any]:
    """Return what ``managedFields`` says of a manager."""
    found = [
        e
        for e in answer.ok().body["metadata"]["managedFields"]
        if e["manager"] == manager and e.get("subresource") == subresource
    ]
    assert len(found) == 1
    return found[0]


async def test_apply_creates_what_is_missing(api: Api, namespace: str):
    created = await api.apply(widgets(namespace, "w"), widget(replicas=2), "first")
    assert created.status == 201
    assert created.body["spec"] == {"size": "small", "replicas": 2, "options": {"mode": "fast"}}
    owned = entry(created, "first")
    assert owned["operation"] == "Apply"
    assert owned["apiVersion"] == widget()["apiVersion"]
    assert owned["fieldsType"] == "FieldsV1"
    assert owned["fieldsV1"] == {"f:spec": {"f:replicas": {}, "f:size": {}}}


async def test_applying_the_same_again_changes_nothing(api: Api, namespace: str):
    path = widgets(namespace, "w")
    first = await api.apply(path, widget(replicas=2), "first")
    second = await api.apply(path, widget(replicas=2), "first")
    assert second.status == 200
    assert second.version == first.version


async def test_managers_share_an_object_field_by_field(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(replicas=2), "first")
    other = widget(note="n")
    del other["spec"]["size"]
    answer = (await api.apply(path, other, "second")).ok()
    assert answer.body["spec"]["replicas"] == 2
    assert answer.body["spec"]["note"] == "n"
    assert entry(answer, "second")["fieldsV1"] == {"f:spec": {"f:note": {}}}


async def test_another_value_of_an_owned_field_is_a_conflict(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(replicas=2), "first")
    answer = await api.apply(path, widget(replicas=3), "second")
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert causes(answer.body) == set()  # its path begins with a dot, see below
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "FieldManagerConflict"
    assert cause["field"] == ".spec.replicas"
    assert 'conflict with "first"' in cause["message"]
    assert "Apply failed with 1 conflict" in answer.body["message"]


async def test_force_takes_the_field_over(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(replicas=2), "first")
    answer = await api.apply(path, widget(replicas=3), "second", force="true")
    assert answer.ok().body["spec"]["replicas"] == 3
    assert entry(answer, "first")["fieldsV1"] == {"f:spec": {"f:size": {}}}
    assert entry(answer, "second")["fieldsV1"] == {"f:spec": {"f:replicas": {}, "f:size": {}}}


async def test_a_field_that_its_only_owner_leaves_out_is_removed(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(note="n", labels={"a": "1", "b": "2"}), "first")
    answer = await api.apply(path, widget(labels={"b": "2"}), "first")
    assert "note" not in answer.ok().body["spec"]
    assert answer.body["spec"]["labels"] == {"b": "2"}


async def test_a_field_that_another_owns_too_stays(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(note="n"), "first")
    await api.apply(path, widget(note="n"), "second")
    answer = await api.apply(path, widget(), "first")
    assert answer.ok().body["spec"]["note"] == "n"
    answer = await api.apply(path, widget(), "second")
    assert "note" not in answer.ok().body["spec"]


async def test_list_maps_merge_by_key(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(ports=[{"name": "a", "port": 1}]), "first")
    other = widget(ports=[{"name": "b", "port": 2}])
    answer = (await api.apply(path, other, "second")).ok()
    assert {p["name"]: p["port"] for p in answer.body["spec"]["ports"]} == {"a": 1, "b": 2}
    owned = entry(answer, "second")["fieldsV1"]["f:spec"]["f:ports"]
    assert owned == {'k:{"name":"b"}': {".": {}, "f:name": {}, "f:port": {}}}
    clash = widget(ports=[{"name": "a", "port": 9}])
    answer = await api.apply(path, clash, "second")
    assert answer.status == 409
    assert answer.body["details"]["causes"][0]["field"] == '.spec.ports[name="a"].port'
    answer = await api.apply(path, widget(ports=[]), "first")
    assert answer.ok().body["spec"]["ports"] == [{"name": "b", "port": 2}]


async def test_sets_merge_by_value_and_plain_lists_as_a_whole(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(tags=["a"], steps=[1, 2]), "first")
    answer = (await api.apply(path, widget(tags=["b"]), "second")).ok()
    assert set(answer.body["spec"]["tags"]) == {"a", "b"}
    assert entry(answer, "second")["fieldsV1"]["f:spec"]["f:tags"] == {'v:"b"': {}}
    answer = await api.apply(path, widget(tags=["b"], steps=[1]), "second")
    assert answer.body["details"]["causes"][0]["field"] == ".spec.steps"


async def test_other_writes_own_their_fields_too(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(replicas=2), "first")
    patched = await api.patch(path, {"spec": {"replicas": 5}}, fieldManager="editor")
    owned = entry(patched, "editor")
    assert owned["operation"] == "Update"
    assert owned["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert entry(patched, "first")["fieldsV1"] == {"f:spec": {"f:size": {}}}
    answer = await api.apply(path, widget(replicas=2), "first")
    assert answer.status == 409
    assert 'conflict with "editor"' in answer.body["details"]["causes"][0]["message"]
    answer = await api.apply(path, widget(), "first")
    assert answer.ok().body["spec"]["replicas"] == 5


async def test_a_created_object_is_owned_by_its_client(api: Api, namespace: str):
    created = await api.post(widgets(namespace), widget(replicas=2), fieldManager="maker")
    assert entry(created, "maker")["operation"] == "Update"
    answer = await api.apply(widgets(namespace, "w"), widget(replicas=3), "first")
    assert answer.status == 409
    answer = await api.apply(widgets(namespace, "w"), widget(replicas=2), "first")
    assert answer.status == 200


async def test_status_is_owned_apart(api: Api, namespace: str):
    path = widgets(namespace, "w")
    await api.apply(path, widget(), "first")
    status = widget() | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    del status["spec"]
    answer = (await api.apply(f"{path}/status", status, "agent")).ok()
    assert answer.body["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    assert entry(answer, "agent", "status")["fieldsV1"] == {
        "f:status": {
            "f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}}
        }
    }
    again = await api.apply(path, widget() | {"status": {"phase": "On"}}, "first")
    assert "phase" not in again.ok().body["status"]


async def test_apply_validates_and_defaults(api: Api, namespace: str):
    answer = await api.apply(widgets(namespace, "w"), widget(size="huge"), "first")
    assert answer.status == 422
    assert causes(answer.body) == {("FieldValueNotSupported", "spec.size")}
    answer = await api.apply(widgets(namespace, "w"), widget(replicas="2"), "first")
    assert answer.status in {422, 500}  # the typed merge fails before the schema is asked


async def test_apply_needs_a_manager_and_a_type(api: Api, namespace: str):
    path = widgets(namespace, "w")
    answer = await api.patch(path, widget(), "application/apply-patch+yaml")
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert causes(answer.body) == {("FieldValueRequired", "fieldManager")}
    nameless = widget()
    del nameless["apiVersion"]
    answer = await api.apply(path, nameless, "first")
    assert answer.status == 400
    managed = widget()
    managed["metadata"]["managedFields"] = [{"manager": "x"}]
    answer = await api.apply(path, managed, "first")
    assert answer.status == 400


async def test_apply_respects_a_given_version(api: Api, namespace: str):
    path = widgets(namespace, "w")
    old = (await api.apply(path, widget(), "first")).version
    await api.apply(path, widget(replicas=2), "first")
    stale = widget(replicas=3)
    stale["metadata"]["resourceVersion"] = old
    answer = await api.apply(path, stale, "first")
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")


async def test_labels_are_owned_one_by_one(api: Api):
    path = "/apis/conformance.partita.dev/v1/gadgets/shared-labels"
    await api.apply(path, gadget("shared-labels", labels={"a": "1"}), "first")
    answer = await api.apply(path, gadget("shared-labels", labels={"b": "2"}), "second")
    assert answer.ok().body["metadata"]["labels"] == {"a": "1", "b": "2"}
    answer = await api.apply(path, gadget("shared-labels"), "first")
    assert answer.ok().body["metadata"]["labels"] == {"b": "2"}
    (await api.delete(path)).ok()


async def test_built_in_kinds_are_applied_too(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    created = await api.apply(path, config_map(data={"a": "1"}), "first")
    assert created.status == 201
    assert entry(created, "first")["fieldsV1"] == {"f:data": {"f:a": {}}}
    answer = await api.apply(path, config_map(data={"b": "2"}), "second")
    assert answer.ok().body["data"] == {"a": "1", "b": "2"}


async def test_containers_are_a_list_map(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    assert (await api.apply(path, pod(), "first")).status == 201
    other = pod(containers=[{"name": "main", "image": "example.org/image:2"}])
    answer = await api.apply(path, other, "second")
    assert answer.status == 409
    field = answer.body["details"]["causes"][0]["field"]
    assert field == '.spec.containers[name="main"].image'


async def test_applying_to_a_missing_object_with_a_uid_is_a_conflict(api: Api, namespace: str):
    obj = widget()
    obj["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    answer = await api.apply(widgets(namespace, "w"), obj, "first")
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")


async def test_an_object_without_owners_gets_none_until_it_is_applied(api: Api, namespace: str):
    path = widgets(namespace, "w")
    (await api.apply(path, widget(replicas=2), "first")).ok()
    cleared = await api.patch(path, {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in cleared.ok().body["metadata"]
    patched = await api.patch(path, {"spec": {"replicas": 3}})
    assert "managedFields" not in patched.ok().body["metadata"]
    conflict = await api.apply(path, widget(replicas=4), "second")
    assert (conflict.status, conflict.body["reason"]) == (409, "Conflict")
    applied = await api.apply(path, widget(replicas=3), "second")
    assert entry(applied, "before-first-apply")["operation"] == "Update"
    assert entry(applied, "second")["fieldsV1"] == {"f:spec": {"f:replicas": {}, "f:size": {}}}
