"""Check whether an operator is running, by the Lease that the leading operator renews."""

import os
from datetime import UTC, datetime
from typing import Any, Final

from partita.kube.client import LEASES, Kube
from partita.kube.errors import ForbiddenError, KubernetesError, NotFoundError
from partita.models.quantities import parse_time

__all__ = [
    "OPERATOR_LEASE",
    "OPERATOR_NAMESPACE",
    "check_operator",
    "operator_namespace",
    "operator_problem",
    "read_operator_problem",
]

OPERATOR_LEASE: Final = "partita-operator"
OPERATOR_NAMESPACE: Final = "partita-system"
"""Namespace of the operator and its Lease if the variable PARTITA_NAMESPACE is not set."""
_CLOCK_DIFFERENCE: Final = 10.0
"""Seconds by which the clocks of the operator and of the reader may differ."""


def operator_namespace() -> str:
    """Return the namespace of the operator, its Lease and its records of usage."""
    return os.environ.get("PARTITA_NAMESPACE") or OPERATOR_NAMESPACE


async def check_operator(kube: Kube) -> str:
    """Return why no operator is running; empty if one is, or if the Lease may not be read."""
    try:
        return await read_operator_problem(kube)
    except ForbiddenError:
        return ""  # A user without permission to read the Lease must not get a false alarm.


async def read_operator_problem(kube: Kube) -> str:
    """Read the operator's Lease and return why no operator is running.

    Returns
    -------
    str
        A sentence; empty if an operator is running.

    Raises
    ------
    ForbiddenError
        The Lease may not be read.
    """
    namespace = operator_namespace()
    try:
        lease = await kube.get(LEASES, OPERATOR_LEASE, namespace)
    except NotFoundError:
        lease = None
    except ForbiddenError:
        raise
    except KubernetesError as error:
        return f"It could not be checked whether an operator is running: {error.message}."
    return operator_problem(lease, namespace, datetime.now(UTC))


def operator_problem(lease: dict[str, Any] | None, namespace: str, now: datetime) -> str:
    """Return why no operator is running, or an empty string if one is.

    Parameters
    ----------
    lease
        The Lease `partita-operator`; None if it does not exist.
    namespace
        Namespace in which the Lease was searched.
    """
    if lease is None:
        return (
            f"No operator is running: namespace {namespace} has no Lease {OPERATOR_LEASE}. "
            "Install Partita or start `partita run`; if the operator is in another namespace, "
            "set PARTITA_NAMESPACE."
        )
    spec = lease.get("spec") or {}
    advice = f"See `kubectl -n {namespace} get pods`."
    if not spec.get("holderIdentity"):
        return f"No operator is running: the last one has stopped. {advice}"
    try:
        renewed = parse_time(spec.get("renewTime"))
        duration = float(spec.get("leaseDurationSeconds") or 0)
    except (TypeError, ValueError):
        return f"No operator is running: its Lease cannot be read. {advice}"
    expired = (now - renewed).total_seconds() - duration
    if expired <= _CLOCK_DIFFERENCE:
        return ""
    return (
        f"No operator is running: the Lease of {spec['holderIdentity']} expired "
        f"{expired:.0f} s ago. {advice}"
    )
