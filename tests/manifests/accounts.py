"""Clients that are no administrators."""

from __future__ import annotations

import aiohttp

__all__ = ["client_of"]


def client_of(token: str) -> aiohttp.ClientSession:
    """Return a session with this token; the caller closes it."""
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"})
