"""Every version of every Application, and which of them say that we drifted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from gitops.argocd.servers import NAMESPACE, Repository
from support.api import Api
from support.meanwhile import running
from support.polling import TIMEOUT, until

__all__ = ["APPLICATIONS", "Applications", "drifted"]

Body = dict[str, Any]

APPLICATIONS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"


def drifted(application: Body, differ: Callable[[str, str], bool]) -> bool:
    """Say whether an Application is out of sync with a commit that it had been brought to.

    Parameters
    ----------
    differ
        Says whether two commits differ in what the Application reads.

    Notes
    -----
    A commit that changes something is out of sync until it is applied; and what was compared
    before it was applied is still told for a moment after.
    """
    status = application.get("status", {})
    sync, operation = status.get("sync", {}), status.get("operationState", {})
    if sync.get("status") != "OutOfSync" or operation.get("phase") != "Succeeded":
        return False
    applied = operation["syncResult"]["revision"]
    compared_after: bool = status.get("reconciledAt", "") > operation["finishedAt"]
    return compared_after and not differ(applied, sync["revision"])


class Applications:
    """The Applications as they are, and all that they ever were."""

    def __init__(self, api: Api, repository: Repository) -> None:
        self._api = api
        self._repository = repository
        self.versions: list[Body] = []

    def latest(self) -> Mapping[str, Body]:
        """Return each Application as it was last seen, by name."""
        return {version["metadata"]["name"]: version for version in self.versions}

    def problems(self) -> list[str]:
        """Return what Argo CD took for drift, and what it therefore applied again."""
        found = []
        for version in self.versions:
            path = version["spec"]["source"]["path"]
            # The platform's reads manifests/ and crds/, too.
            differ = partial(self._repository.differ, "." if path.endswith("/platform") else path)
            if drifted(version, differ):
                resources = version["status"].get("resources", [])
                wrong = [r for r in resources if r.get("status") == "OutOfSync"]
                found.append(f"{version['metadata']['name']}: {wrong}")
            operation = version.get("status", {}).get("operationState", {}).get("operation", {})
            if operation.get("sync", {}).get("selfHealAttemptsCount"):
                found.append(f"{version['metadata']['name']}: healed {operation['sync']}")
        return found

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
