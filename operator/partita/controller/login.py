"""Logs kopf in as our own client is.

Kopf's own way from within a Pod leads to `kubernetes.default.svc`, so it needs the cluster's DNS,
which our client does without; where that fails kopf watches nothing and nobody is told.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from partita.kube.connect import Access

__all__ = ["log_in"]


def log_in(registry: kopf.OperatorRegistry, access: Callable[[], Awaitable[Access]]) -> None:
    """Let kopf reach the API server in a way that is asked for whenever it needs one anew."""

    async def login(**_kwargs: Any) -> kopf.ConnectionInfo:
        found = await access()
        scheme, _, token = found.authorization.partition(" ")
        return kopf.ConnectionInfo(
            server=found.server,
            ca_path=found.authority,
            insecure=not found.verified,
            certificate_path=found.certificate,
            private_key_path=found.key,
            scheme=scheme.title() or None,
            token=token or None,
            proxy_url=found.proxy,
        )

    kopf.on.login(registry=registry)(login)
