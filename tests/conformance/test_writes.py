"""Create, read, replace and delete: versions, generations, preconditions and their errors."""

from __future__ import annotations

import asyncio

import pytest

from conformance.objects import GADGETS, GROUP, causes, gadget, refused, widget, widgets
from support.api import Api


def check_error(answer, status: int, reason: str, kind: str = "widgets") -> None:
    body = answer.body
    assert (answer.status, body["code"], body["reason"]) == (status, status, reason)
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert body["details"]["name"] == "w"
    assert body["details"]["group"] == GROUP
    assert body["details"]["kind"] == kind


async def test_what_is_missing_is_not_found(api: Api, namespace: str):
    path = widgets(namespace, "w")
    for answer in (
        await api.get(path),
        await api.delete(path),
        await api.patch(path, {"spec": {}}),
        await api.patch(f"{path}/status", {"status": {}}),
    ):
        check_error(answer, 404, "NotFound")
        assert answer.body["message"] == f'widgets.{GROUP} "w" not found'


async def test_a_second_create_already_exists(api: Api, namespace: str):
    assert (await api.post(widgets(namespace), widget())).status == 201
    answer = await api.post(widgets(namespace), widget())
    check_error(answer, 409, "AlreadyExists")
    assert answer.body["message"] == f'widgets.{GROUP} "w" already exists'


async def test_a_write_that_changes_nothing_keeps_the_version(api: Api, namespace: str):
    created = (await api.post(widgets(namespace), widget())).ok()
    patched = await api.patch(widgets(namespace, "w"), {"spec": {"size": "small"}})
    assert patched.version == created.version
    replaced = await api.put(widgets(namespace, "w"), created.body)
    assert replaced.version == created.version


async def test_generation_counts_changes_of_the_spec_alone(api: Api, namespace: str):
    path = widgets(namespace, "w")
    (await api.post(widgets(namespace), widget())).ok()

    async def generation(method: str, to: str, body: dict) -> int:
        answer = await api.call(method, to, body, content_type="application/merge-patch+json")
        return answer.ok().body["metadata"]["generation"]

    assert await generation("PATCH", path, {"spec": {"replicas": 2}}) == 2
    assert await generation("PATCH", path, {"metadata": {"labels": {"a": "b"}}}) == 2
    assert await generation("PATCH", f"{path}/status", {"status": {"phase": "On"}}) == 2
    assert await generation("PATCH", path, {"spec": {"replicas": 2}}) == 2


async def test_replacing_needs_the_current_version(api: Api, namespace: str):
    path = widgets(namespace, "w")
    created = (await api.post(widgets(namespace), widget())).ok().body
    (await api.patch(path, {"spec": {"replicas": 2}})).ok()
    stale = await api.put(path, created)
    check_error(stale, 409, "Conflict")
    assert "the object has been modified" in stale.body["message"]

    del created["metadata"]["resourceVersion"]
    without = await api.put(path, created)
    refused(without, "FieldValueInvalid", "metadata.resourceVersion")


async def test_replacing_drops_what_is_not_given(api: Api, namespace: str):
    created = (await api.post(widgets(namespace), widget(replicas=4, steps=[1]))).ok().body
    created["spec"] = {"size": "large"}
    replaced = (await api.put(widgets(namespace, "w"), created)).ok().body
    assert replaced["spec"] == {"size": "large", "replicas": 1, "options": {"mode": "fast"}}


async def test_replacing_another_uid_is_a_conflict(api: Api, namespace: str):
    created = (await api.post(widgets(namespace), widget())).ok().body
    created["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    answer = await api.put(widgets(namespace, "w"), created)
    check_error(answer, 409, "Conflict")
    assert "Precondition failed: UID in precondition" in answer.body["message"]


@pytest.mark.smoke
async def test_concurrent_writers_of_one_version_leave_one_winner(api: Api, namespace: str):
    path = widgets(namespace, "w")
    version = (await api.post(widgets(namespace), widget())).version
    answers = await asyncio.gather(
        *(
            api.patch(
                f"{path}/status",
                {"metadata": {"resourceVersion": version}, "status": {"replicas": n}},
            )
            for n in range(1, 9)
        )
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7


async def test_status_is_written_through_its_subresource_only(api: Api, namespace: str):
    path = widgets(namespace, "w")
    (await api.post(widgets(namespace), widget())).ok()
    patch = {"spec": {"replicas": 9}, "status": {"phase": "On", "unknown": 1}}
    written = (await api.patch(f"{path}/status", patch)).ok().body
    assert written["status"] == {"phase": "On"}
    assert written["spec"]["replicas"] == 1
    after = (await api.patch(path, patch | {"status": {"phase": "Off"}})).ok().body
    assert after["spec"]["replicas"] == 9
    assert after["status"] == {"phase": "On"}


async def test_scale_reads_and_writes_the_paths_it_is_given(api: Api, namespace: str):
    path = widgets(namespace, "w")
    (await api.post(widgets(namespace), widget(replicas=2))).ok()
    status = {"status": {"replicas": 1, "selector": "a=b"}}
    version = (await api.patch(f"{path}/status", status)).version
    scale = (await api.get(f"{path}/scale")).ok().body
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["metadata"]["name"] == "w"
    assert scale["metadata"]["resourceVersion"] == version
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}

    scale["spec"]["replicas"] = 5
    assert (await api.put(f"{path}/scale", scale)).ok().body["spec"]["replicas"] == 5
    stale = await api.put(f"{path}/scale", scale)
    assert stale.status == 409
    patched = await api.patch(f"{path}/scale", {"spec": {"replicas": 6}})
    assert patched.ok().body["spec"]["replicas"] == 6
    obj = (await api.get(path)).body
    assert obj["spec"]["replicas"] == 6
    assert obj["metadata"]["generation"] == 3


async def test_deleting_checks_the_uid_and_answers_with_it(api: Api, namespace: str):
    path = widgets(namespace, "w")
    uid = (await api.post(widgets(namespace), widget())).ok().body["metadata"]["uid"]
    wrong = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    check_error(await api.delete(path, wrong), 409, "Conflict", kind="Widget")
    body = (await api.delete(path, {"preconditions": {"uid": uid}})).ok().body
    assert (body["kind"], body["status"]) == ("Status", "Success")
    assert body["details"] == {"name": "w", "group": GROUP, "kind": "widgets", "uid": uid}


async def test_a_finalizer_holds_a_deleted_object(api: Api, namespace: str):
    path = widgets(namespace, "w")
    obj = widget()
    obj["metadata"]["finalizers"] = ["partita.dev/a", "partita.dev/b"]
    created = (await api.post(widgets(namespace), obj)).ok().body
    deleted = await api.delete(path)
    assert deleted.status == 200
    assert deleted.body["kind"] == "Widget"
    metadata = deleted.body["metadata"]
    assert metadata["deletionTimestamp"]
    assert metadata["deletionGracePeriodSeconds"] == 0
    assert metadata["generation"] == created["metadata"]["generation"] + 1

    again = await api.delete(path)
    assert again.body["metadata"]["deletionTimestamp"] == metadata["deletionTimestamp"]
    held = await api.patch(path, {"metadata": {"finalizers": ["partita.dev/b"]}})
    assert held.status == 200
    added = await api.patch(path, {"metadata": {"finalizers": ["partita.dev/b", "partita.dev/c"]}})
    refused(added, "FieldValueForbidden", "metadata.finalizers")
    released = await api.patch(path, {"metadata": {"finalizers": None}})
    assert released.status == 200
    assert (await api.get(path)).status == 404


async def test_names_are_generated(api: Api, namespace: str):
    obj = widget()
    obj["metadata"] = {"generateName": "made-"}
    names = {(await api.post(widgets(namespace), obj)).ok().body["metadata"]["name"] for _ in "ab"}
    assert len(names) == 2
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({}, ("FieldValueRequired", "metadata.name")),
        ({"name": "Upper"}, ("FieldValueInvalid", "metadata.name")),
        ({"name": "a_b"}, ("FieldValueInvalid", "metadata.name")),
        ({"name": "w", "labels": {"a": "no spaces"}}, ("FieldValueInvalid", "metadata.labels")),
        ({"name": "w", "finalizers": ["no good/a"]}, ("FieldValueInvalid", "metadata.finalizers")),
        ({"name": "w", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
         ("FieldValueInvalid", "metadata.ownerReferences.uid")),
    ],
)  # fmt: skip
async def test_refuses_bad_metadata(
    api: Api, namespace: str, metadata: dict, cause: tuple[str, str]
):
    answer = await api.post(widgets(namespace), widget() | {"metadata": metadata})
    assert answer.status == 422
    assert cause in causes(answer.body)


async def test_refuses_a_namespace_other_than_the_path(api: Api, namespace: str):
    obj = widget()
    obj["metadata"]["namespace"] = "default"
    answer = await api.post(widgets(namespace), obj)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert "does not match the namespace" in answer.body["message"]


async def test_refuses_a_resource_version_on_create(api: Api, namespace: str):
    obj = widget()
    obj["metadata"]["resourceVersion"] = "5"
    answer = await api.post(widgets(namespace), obj)
    assert "resourceVersion should not be set" in answer.body["message"]


async def test_refuses_a_body_of_an_unknown_type(api: Api, namespace: str):
    answer = await api.call("POST", widgets(namespace), "a: b", content_type="text/csv")
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")


async def test_cluster_scoped_kinds_have_no_namespace(api: Api):
    created = (await api.post(GADGETS, gadget("lone"))).ok().body
    assert "namespace" not in created["metadata"]
    nested = f"/apis/{GROUP}/v1/namespaces/default/gadgets"
    assert (await api.get(nested)).status == 404
    (await api.delete(f"{GADGETS}/lone")).ok()
