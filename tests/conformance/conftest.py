"""The conformance suite's own kinds, installed once a run."""

from __future__ import annotations

import asyncio

import pytest

from conformance.objects import GADGET_CRD, WIDGET_CRD
from support.api import Api
from support.clusters import ApiServer

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def install(api: Api, definition: dict) -> None:
    """Create the CRD and return when its collection is served."""
    spec = definition["spec"]
    created = await api.post(CRDS, definition)
    assert created.status in {201, 409}, created
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    await api.until(path, lambda _: True)


@pytest.fixture(scope="session")
def installed(api_server: ApiServer) -> None:
    """Widget and Gadget are served."""

    async def run() -> None:
        async with api_server.session() as session:
            for definition in (WIDGET_CRD, GADGET_CRD):
                await install(api_server.api(session), definition)

    # The tests' own loops live for one test each; this is done before the first of them.
    asyncio.run(run())


@pytest.fixture(autouse=True)
def _installed(installed: None) -> None:
    """Each test of the suite may use them."""
