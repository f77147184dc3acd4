"""What only this server shows: its start and stop, its small history, what it does not have."""

import asyncio
import io
import json

import aiohttp
import pytest

from partita_testcluster.apiserver.server import EmbeddedAPIServer

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


async def get(server: EmbeddedAPIServer, path: str, status: int = 200, **headers):
    async with (
        aiohttp.ClientSession() as session,
        session.get(server.url + path, headers=headers) as answer,
    ):
        assert answer.status == status, await answer.text()
        return await answer.json(content_type=None)


async def post(server: EmbeddedAPIServer, path: str, body, status: int = 201):
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + path, json=body) as answer,
    ):
        assert answer.status == status, await answer.text()
        return await answer.json()


async def test_its_kubeconfig_is_named_for_tests():
    async with EmbeddedAPIServer() as server:
        config = server.kubeconfig()
        assert config["current-context"] == "partita-embedded"
        assert config["clusters"][0] == {
            "name": "partita-embedded", "cluster": {"server": server.url},
        }  # fmt: skip
        assert (await get(server, "/version"))["gitVersion"].endswith("partita-embedded")


async def test_a_taken_port_is_an_error():
    async with EmbeddedAPIServer() as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            await EmbeddedAPIServer(port=port).start()


async def test_one_that_never_started_can_be_stopped():
    await EmbeddedAPIServer().stop()


async def test_stopping_ends_watches():
    server = EmbeddedAPIServer()
    await server.start()
    async with aiohttp.ClientSession() as session:
        watch = await session.get(f"{server.url}{PODS}?watch=1")
        await server.stop()
        assert await asyncio.wait_for(watch.read(), 60) == b""


@pytest.mark.parametrize(
    "path",
    [
        "/openapi/v2",
        "/apis/apps/v1/daemonsets",
        "/api/v1/namespaces/default/pods/p/exec",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/p",
        "/nowhere",
        "/",
    ],
)
async def test_what_it_does_not_have_is_not_found_and_says_so(path: str):
    async with EmbeddedAPIServer() as server:
        status = await get(server, path, 404)
        assert status["reason"] == "NotFound"
        assert "what the embedded server has" in status["message"]


@pytest.mark.parametrize(
    "query",
    ["colour=red", "fieldSelector=spec.colour%3Dred", "labelSelector=%3D", "limit=many",
     "resourceVersion=new", "continue=nonsense"],
)  # fmt: skip
async def test_a_query_it_does_not_know_is_refused(query: str):
    async with EmbeddedAPIServer() as server:
        assert (await get(server, f"{PODS}?{query}", 400))["reason"] == "BadRequest"


async def send(server: EmbeddedAPIServer, method: str, path: str, body, status: int, kind="json"):
    types = {"json": "application/json", "merge": "application/merge-patch+json",
             "apply": "application/apply-patch+yaml"}  # fmt: skip
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, server.url + path, data=json.dumps(body), headers={"Content-Type": types[kind]}
        ) as answer,
    ):
        assert answer.status == status, await answer.text()
        return await answer.json()


@pytest.mark.parametrize(
    ("binding", "status"),
    [
        ({}, 422),
        ({"target": {"name": "n"}, "metadata": {"uid": "another"}}, 409),
    ],
)
async def test_a_binding_is_checked(binding, status):
    async with EmbeddedAPIServer() as server:
        spec = {"containers": [{"name": "a", "image": "a"}]}
        await post(server, PODS, {"metadata": {"name": "p", "finalizers": ["x/y"]}, "spec": spec})
        await post(server, f"{PODS}/p/binding", binding, status)


async def test_a_pod_that_is_being_deleted_cannot_be_bound():
    async with EmbeddedAPIServer() as server:
        spec = {"containers": [{"name": "a", "image": "a"}]}
        await post(server, PODS, {"metadata": {"name": "p", "finalizers": ["x/y"]}, "spec": spec})
        await send(server, "DELETE", f"{PODS}/p", {}, 200)
        answer = await post(server, f"{PODS}/p/binding", {"target": {"name": "n"}}, 409)
        assert "being deleted" in answer["message"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"propagationPolicy": "Sideways"}, 422),
        ({"gracePeriodSeconds": -1}, 400),
        ({"dryRun": ["All"]}, 200),
    ],
)
async def test_options_of_a_deletion_are_read(options, status):
    async with EmbeddedAPIServer() as server:
        await post(server, MAPS, {"metadata": {"name": "c"}})
        await send(server, "DELETE", f"{MAPS}/c", options, status)
        await get(server, f"{MAPS}/c", 200 if status != 200 or "dryRun" in options else 404)


@pytest.mark.parametrize(
    ("method", "query", "body", "status", "kind"),
    [
        ("POST", "", {"metadata": []}, 400, "json"),
        ("POST", "?dryRun=Some", {}, 400, "json"),
        ("PATCH", "", {}, 405, "merge"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(method, query, body, status, kind):
    async with EmbeddedAPIServer() as server:
        await post(server, MAPS, {"metadata": {"name": "c"}})
        answer = await send(server, method, MAPS + query, body, status, kind)
        assert answer["kind"] == "Status"


@pytest.mark.parametrize(("size", "status"), [(2_000_000, 201), (4_000_000, 413)])
async def test_a_body_may_have_three_mebibytes(size, status):
    async with EmbeddedAPIServer() as server, aiohttp.ClientSession() as session:
        body = json.dumps({"metadata": {"name": "c"}, "data": {"k": "x" * size}}).encode()
        headers = {"Content-Type": "application/json"}
        async with session.post(
            server.url + MAPS, data=io.BytesIO(body), headers=headers
        ) as answer:
            assert answer.status == status
            assert (await answer.json())["kind"] == ("ConfigMap" if status == 201 else "Status")


async def test_server_side_apply_is_refused_in_words():
    async with EmbeddedAPIServer() as server:
        path = f"{MAPS}/c?fieldManager=m&force=false"
        answer = await send(server, "PATCH", path, {}, 415, "apply")
        assert answer["message"] == (
            "server-side apply is not supported here: leave out --server-side"
        )
