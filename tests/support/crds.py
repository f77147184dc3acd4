"""Partita's own kinds on the API server of a test run."""

from __future__ import annotations

from functools import cache

from partita.constants import GROUP, VERSION
from partita.models import crd
from support.api import Api

__all__ = ["install_crds"]

_definitions = cache(crd.crds)  # each call takes 0.1 s

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def install_crds(api: Api) -> None:
    """Create the CRDs that are not there yet, and return when all of them are served."""
    for definition in _definitions():
        created = await api.post(DEFINITIONS, definition)
        assert created.status in {201, 409}, created
    for resource in crd.RESOURCES:
        await api.until(f"/apis/{GROUP}/{VERSION}/{resource.plural}", lambda _: True)
