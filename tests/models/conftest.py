"""Partita's kinds, served."""

import asyncio

import pytest

from support.crds import install_crds


@pytest.fixture(scope="session")
def partita_kinds(api_server):
    """All four kinds are served for the rest of the run."""

    async def install():
        async with api_server.session() as session:
            await install_crds(api_server.api(session))

    asyncio.run(install())
