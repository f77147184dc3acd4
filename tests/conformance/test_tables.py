"""Tables: what ``kubectl get`` prints is computed by the server."""

from __future__ import annotations

from typing import Any

from conformance.objects import pod, widget, widgets
from support.api import Answer, Api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def table(api: Api, path: str, **params: str) -> Answer:
    answer = (await api.call("GET", path, accept=TABLE, **params)).ok()
    assert answer.body["kind"] == "Table"
    assert answer.body["apiVersion"] == "meta.k8s.io/v1"
    return answer


def columns(answer: Answer, *, wide: bool = True) -> list[str]:
    definitions = answer.body["columnDefinitions"]
    return [c["name"] for c in definitions if wide or c["priority"] == 0]


def cells(answer: Answer) -> list[dict[str, Any]]:
    return [dict(zip(columns(answer), row["cells"], strict=True)) for row in answer.body["rows"]]


async def test_custom_columns_come_from_the_definition(api: Api, namespace: str):
    (await api.post(widgets(namespace), widget("a", color="red"))).ok()
    (await api.post(widgets(namespace), widget("b", replicas=3))).ok()
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    (await api.patch(f"{widgets(namespace, 'b')}/status", ready)).ok()
    answer = await table(api, widgets(namespace))
    assert columns(answer) == ["Name", "Size", "Replicas", "Ready", "Color", "Age"]
    assert columns(answer, wide=False) == ["Name", "Size", "Replicas", "Ready", "Age"]
    first, second = cells(answer)
    assert first["Age"].endswith("s")
    assert {k: v for k, v in first.items() if k != "Age"} == {
        "Name": "a",
        "Size": "small",
        "Replicas": 1,
        "Ready": None,
        "Color": "red",
    }
    assert (second["Replicas"], second["Ready"], second["Color"]) == (3, "True", None)


async def test_rows_carry_the_metadata_of_their_object(api: Api, namespace: str):
    created = (await api.post(widgets(namespace), widget())).ok().body
    row = (await table(api, widgets(namespace))).body["rows"][0]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "w"
    assert row["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    whole = await table(api, widgets(namespace), includeObject="Object")
    assert whole.body["rows"][0]["object"] == created


async def test_a_watched_table_sends_rows(api: Api, namespace: str):
    path = widgets(namespace)
    (await api.post(path, widget())).ok()
    async with api.watch(path, accept=TABLE) as watch:
        kind, first = await watch.next()
        (await api.patch(f"{path}/w", {"spec": {"replicas": 4}})).ok()
        _, second = await watch.next()
    assert (kind, first["kind"]) == ("ADDED", "Table")
    assert [column["name"] for column in first["columnDefinitions"]][:2] == ["Name", "Size"]
    assert second["rows"][0]["cells"][2] == 4


async def test_pods_show_their_state(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/pods"
    (await api.post(path, pod(nodeName="n1"))).ok()
    row = cells(await table(api, path))[0]
    assert {k: row[k] for k in ("Name", "Ready", "Status", "Restarts", "Node")} == {
        "Name": "p",
        "Ready": "0/1",
        "Status": "Pending",
        "Restarts": "0",
        "Node": "n1",
    }


async def test_nodes_show_whether_they_are_ready(api: Api):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "tabled"}}
    (await api.post("/api/v1/nodes", node)).ok()
    condition = {"type": "Ready", "status": "True"}
    path = "/api/v1/nodes/tabled"
    (await api.patch(f"{path}/status", {"status": {"conditions": [condition]}})).ok()
    row = cells(await table(api, path))[0]
    assert (row["Name"], row["Status"], row["Roles"]) == ("tabled", "Ready", "<none>")
    (await api.delete(path)).ok()
