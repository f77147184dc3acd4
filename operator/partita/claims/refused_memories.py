"""Writes to the history of an application with how much memory one of its Pods ran out of it.

The next Pod of the application then asks for more, also after its claim is gone.
"""

from collections.abc import Callable
from datetime import datetime

import structlog

from partita.claims.claim_lifecycle import RefusedMemory
from partita.kube.client import PROFILES, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    UnavailableError,
)
from partita.models.profile import profile_name
from partita.models.quantities import format_memory, format_time
from partita.store.state import State

__all__ = ["RefusedMemories"]


class RefusedMemories:
    """Adds refused amounts of memory to ApplicationProfiles."""

    def __init__(self, kube: Kube, state: State, *, now: Callable[[], datetime]) -> None:
        self._kube = kube
        self._state = state
        self._now = now
        self._log = structlog.get_logger().bind(part="claims")

    async def add(self, refused: RefusedMemory) -> bool:
        """Add an amount to the profile of an application; return False if that is not possible.

        Raises
        ------
        ConflictError
            If the profile was written meanwhile.
        UnavailableError
            If the API server is not available.
        """
        namespace, application = refused.namespace, refused.application
        spec = {
            "refused": format_memory(refused.memory),
            "lastRun": format_time(self._now()),
        }
        found = self._state.profiles.preferred(namespace, application)
        try:
            if found is not None:
                body = await self._kube.patch(
                    PROFILES,
                    found.metadata.name,
                    {"spec": spec},
                    namespace=namespace,
                    resource_version=found.metadata.resource_version,
                )
            else:
                meta = {"name": profile_name(application), "namespace": namespace}
                new = {"metadata": meta, "spec": {"application": application, **spec}}
                body = await self._kube.create(PROFILES, new)
        except (AlreadyExistsError, ConflictError, UnavailableError):
            raise
        except KubernetesError as error:
            self._log.warning("refused memory not kept", application=application, error=str(error))
            return False
        self._state.apply_profile(body)
        return True
