"""Writes to the history of an application with how much memory one of its Pods ran out of it.

The next Pod of the application then asks for more, also after its claim is gone.
"""

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

__all__ = ["add_refused"]


async def add_refused(kube: Kube, state: State, refused: RefusedMemory, now: datetime) -> bool:
    """Add an amount to the profile of an application; return False if that is not possible.

    If the profile was not known, it is only read: call this again.

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
        "lastRun": format_time(now),
    }
    found = state.profiles.preferred(namespace, application)
    try:
        if found is not None:
            body = await kube.patch(
                PROFILES,
                found.metadata.name,
                {"spec": spec},
                namespace=namespace,
                resource_version=found.metadata.resource_version,
            )
        else:
            name = profile_name(application)
            meta = {"name": name, "namespace": namespace}
            new = {"metadata": meta, "spec": {"application": application, **spec}}
            try:
                body = await kube.create(PROFILES, new)
            except AlreadyExistsError:  # the agent has, and the watch is behind
                state.apply_profile(await kube.get(PROFILES, name, namespace))
                return state.profiles.preferred(namespace, application) is not None
    except (ConflictError, UnavailableError):
        raise
    except KubernetesError as error:
        log = structlog.get_logger().bind(part="claims")
        log.warning("refused memory not kept", application=application, error=str(error))
        return False
    state.apply_profile(body)
    return True
