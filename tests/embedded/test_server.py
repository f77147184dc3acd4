"""What only this server shows: its start and stop, its small history, what it does not have."""

import asyncio
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from partita_testcluster.apiserver.server import EmbeddedAPIServer

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


TYPES = {
    "json": "application/json",
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


async def send(
    server: EmbeddedAPIServer, method: str, path: str, body=None, status: int = 200, kind="json"
):
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method,
            server.url + path,
            data=io.BytesIO(json.dumps(body).encode()),
            headers={"Content-Type": TYPES[kind]},
        ) as answer,
    ):
        assert answer.status == status, await answer.text()
        return await answer.json()


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedAPIServer]:
    async with EmbeddedAPIServer() as started:
        yield started


@pytest.fixture
async def pod(server: EmbeddedAPIServer) -> str:
    """Path of a Pod that a finalizer holds."""
    spec = {"containers": [{"name": "a", "image": "a"}]}
    body = {"metadata": {"name": "p", "finalizers": ["x/y"]}, "spec": spec}
    await send(server, "POST", PODS, body, 201)
    return f"{PODS}/p"


@pytest.fixture
async def config_map(server: EmbeddedAPIServer) -> str:
    await send(server, "POST", MAPS, {"metadata": {"name": "c"}}, 201)
    return f"{MAPS}/c"


async def test_its_kubeconfig_is_named_for_tests(server):
    config = server.kubeconfig()
    assert config["current-context"] == "partita-embedded"
    assert config["clusters"][0] == {
        "name": "partita-embedded", "cluster": {"server": server.url},
    }  # fmt: skip
    assert (await send(server, "GET", "/version"))["gitVersion"].endswith("partita-embedded")


async def test_a_taken_port_is_an_error(server):
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
async def test_what_it_does_not_have_is_not_found_and_says_so(server, path: str):
    status = await send(server, "GET", path, status=404)
    assert status["reason"] == "NotFound"
    assert "what the embedded server has" in status["message"]


@pytest.mark.parametrize(
    "query",
    ["colour=red", "fieldSelector=spec.colour%3Dred", "labelSelector=%3D", "limit=many",
     "resourceVersion=new", "continue=nonsense"],
)  # fmt: skip
async def test_a_query_it_does_not_know_is_refused(server, query: str):
    answer = await send(server, "GET", f"{PODS}?{query}", status=400)
    assert answer["reason"] == "BadRequest"


@pytest.mark.parametrize(
    ("binding", "status"),
    [({}, 422), ({"target": {"name": "n"}, "metadata": {"uid": "another"}}, 409)],
)
async def test_a_binding_is_checked(server, pod: str, binding, status):
    await send(server, "POST", f"{pod}/binding", binding, status)


async def test_a_pod_that_is_being_deleted_cannot_be_bound(server, pod: str):
    await send(server, "DELETE", pod, {})
    answer = await send(server, "POST", f"{pod}/binding", {"target": {"name": "n"}}, 409)
    assert "being deleted" in answer["message"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"propagationPolicy": "Sideways"}, 422),
        ({"gracePeriodSeconds": -1}, 400),
        ({"dryRun": ["All"]}, 200),
    ],
)
async def test_options_of_a_deletion_are_read(server, config_map: str, options, status):
    await send(server, "DELETE", config_map, options, status)
    await send(server, "GET", config_map)


@pytest.mark.parametrize(
    ("method", "query", "body", "status", "kind"),
    [
        ("POST", "", {"metadata": []}, 400, "json"),
        ("POST", "?dryRun=Some", {}, 400, "json"),
        ("PATCH", "", {}, 405, "merge"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(server, method, query, body, status, kind):
    answer = await send(server, method, MAPS + query, body, status, kind)
    assert answer["kind"] == "Status"


@pytest.mark.parametrize(("size", "status"), [(2_000_000, 201), (4_000_000, 413)])
async def test_a_body_may_have_three_mebibytes(server, size, status):
    body = {"metadata": {"name": "c"}, "data": {"k": "x" * size}}
    answer = await send(server, "POST", MAPS, body, status)
    assert answer["kind"] == ("ConfigMap" if status == 201 else "Status")


async def test_server_side_apply_is_refused_in_words(server):
    path = f"{MAPS}/c?fieldManager=m&force=false"
    answer = await send(server, "PATCH", path, {}, 415, "apply")
    assert answer["message"] == ("server-side apply is not supported here: leave out --server-side")
