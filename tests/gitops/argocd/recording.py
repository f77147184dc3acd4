"""Every version of every Application, and which of them were healed of drift."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gitops.argocd.servers import NAMESPACE
from support.api import Api
from support.meanwhile import running
from support.polling import TIMEOUT, until

__all__ = ["APPLICATIONS", "Applications"]

Body = dict[str, Any]

APPLICATIONS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"


class Applications:
    """The Applications as they are, and all that they ever were."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.versions: list[Body] = []

    def latest(self) -> Mapping[str, Body]:
        """Return each Application as it was last seen, by name."""
        return {version["metadata"]["name"]: version for version in self.versions}

    def healed(self) -> list[Any]:
        """Return what Argo CD applied again although the commit was the same: what drifted."""
        operations = (v.get("status", {}).get("operationState", {}) for v in self.versions)
        syncs = (operation.get("operation", {}).get("sync", {}) for operation in operations)
        return [sync for sync in syncs if sync.get("selfHealAttemptsCount")]

    async def refresh(self) -> None:
        """Have Argo CD look at the repository now, as Git's webhook does."""
        for name in self.latest():
            annotation = {"argocd.argoproj.io/refresh": "normal"}
            await self._api.patch(
                f"{APPLICATIONS}/{name}", {"metadata": {"annotations": annotation}}
            )

    async def until(
        self, name: str, holds: Callable[[Body], Any], *, seconds: float = TIMEOUT
    ) -> Body:
        """Wait until an Application's status is so, and return it."""
        await until(
            lambda: holds(self.status(name)), seconds, what=lambda: (name, self.status(name))
        )
        return self.status(name)

    def status(self, name: str) -> Body:
        """Return an Application's status, empty where it has none."""
        status: Body = self.latest().get(name, {}).get("status", {})
        return status

    @contextlib.asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        """Record all that is written to them."""
        listed = (await self._api.get(APPLICATIONS)).ok()
        async with self._api.watch(
            APPLICATIONS, resourceVersion=listed.version, allowWatchBookmarks="true"
        ) as watch:

            async def follow() -> None:
                while True:
                    kind, body = await watch.next(seconds=3600)
                    if kind in {"ADDED", "MODIFIED"}:
                        self.versions.append(body)

            async with running(follow()):
                yield
