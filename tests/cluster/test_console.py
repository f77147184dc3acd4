"""The console as `manifests/` runs it: in a Pod, behind its Service, under its own rights."""

from __future__ import annotations

import json

import aiohttp
import pytest

from cluster.cluster import Cluster
from cluster.jobs import SYSTEM
from support.api import Api

PORT = 8090
CONSOLE = "app.kubernetes.io/component=console"


@pytest.fixture
async def viewer(api: Api, restricted: str) -> str:
    """The token of somebody who has no role but that of everybody with an account."""
    accounts = f"/api/v1/namespaces/{restricted}/serviceaccounts"
    (await api.post(accounts, {"metadata": {"name": "viewer"}})).ok()
    made = await api.post(f"{accounts}/viewer/token", {"spec": {"expirationSeconds": 3600}})
    return str(made.ok().body["status"]["token"])


async def test_its_service_answers(partita: Cluster, api: Api):
    service = f"/api/v1/namespaces/{SYSTEM}/services/partita-console:console"
    answer = await api.get(f"{service}/proxy/healthz")
    assert (answer.status, answer.body) == (200, "ok")


async def test_a_viewer_with_a_token_sees_the_gpus_and_nobody_without(
    shared: str, api: Api, viewer: str
):
    pods = await api.get(f"/api/v1/namespaces/{SYSTEM}/pods", labelSelector=CONSOLE)
    (pod,) = pods.ok().body["items"]
    events = f"http://{pod['status']['podIP']}:{PORT}/events"
    async with aiohttp.ClientSession() as session:
        async with session.get(events) as refused:
            assert refused.status == 401
        async with session.get(events, headers={"Authorization": f"Bearer {viewer}"}) as stream:
            assert stream.status == 200
            assert await stream.content.readline() == b"event: state\n"
            state = json.loads((await stream.content.readline()).removeprefix(b"data: "))
            assert shared in json.dumps(state)
