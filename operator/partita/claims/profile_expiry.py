"""Deletes ApplicationProfiles that no run has added to for long, and the oldest of too many.

Agents and operator note in a profile when they last added to it. A profile that somebody has
written, and that they never added to, is left alone.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NoReturn

import structlog

from partita.kube.client import PROFILES, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError
from partita.models import ApplicationProfile
from partita.models.profile import ApplicationKey
from partita.scheduling.claim_request import application_of
from partita.store.state import State

__all__ = ["KEPT", "MOST", "ProfileExpiry", "expired_profiles"]

KEPT: Final = timedelta(days=90)
"""Time after the last run until a profile is deleted. An assumption: what runs less often than once
a quarter is learnt again."""
MOST: Final = 1000
"""Profiles of one namespace. An assumption: it has fewer applications that matter."""


def expired_profiles(
    profiles: Iterable[ApplicationProfile], in_use: Collection[ApplicationKey], now: datetime
) -> list[ApplicationProfile]:
    """Return the profiles to delete.

    Parameters
    ----------
    in_use
        The applications of jobs and Pods that exist.
    """
    noted = defaultdict[str, list[tuple[datetime, ApplicationProfile]]](list)
    for profile in profiles:
        if (last := profile.spec.last_run) is not None:
            noted[profile.metadata.namespace].append((last, profile))
    found = []
    for namespace, theirs in noted.items():
        theirs.sort(key=lambda each: each[0], reverse=True)
        found += [
            profile
            for number, (last, profile) in enumerate(theirs)
            if (number >= MOST or last + KEPT <= now)
            and (namespace, profile.spec.application) not in in_use
        ]
    return found


@dataclass
class ProfileExpiry:
    """Deletes expired profiles until cancelled."""

    kube: Kube
    state: State

    def __post_init__(self) -> None:
        self._log = structlog.get_logger().bind(part="profiles")

    async def run(self) -> NoReturn:
        """Look for expired profiles again and again."""
        while True:
            every = list(self.state.profiles.objects.values())
            for profile in expired_profiles(every, self._in_use(), self.state.now()):
                await self._delete(profile)
            await asyncio.sleep(self.kube.times.check_profiles)

    def _in_use(self) -> set[ApplicationKey]:
        jobs = {(j.metadata.namespace, j.spec.application or "") for j in self.state.jobs.values()}
        pods = self.state.pods.values()
        return jobs | {(p.namespace, application_of(p.workload)) for p in pods}

    async def _delete(self, profile: ApplicationProfile) -> None:
        meta = profile.metadata
        try:
            with suppress(NotFoundError, ConflictError):
                await self.kube.delete(PROFILES, meta.name, meta.namespace, uid=meta.uid)
                self._log.info("deleted", namespace=meta.namespace, profile=meta.name)
        except KubernetesError as error:
            self._log.warning("profile not deleted", profile=meta.name, error=str(error))
