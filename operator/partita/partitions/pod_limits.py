"""Explains what to write in Pods that never start, because they have no claim. No I/O.

Kubernetes has no `partita.dev/gpu-memory`, so a Pod with such a limit is never scheduled. The
policy in `manifests/limits` replaces the limits before the Pod is stored, from Kubernetes 1.36 on.

A Pod with Partita's scheduling gate and no claim waits as long: something may have dropped the
claim, such as a controller that knows an older schema of Pods.
"""

from typing import Any, Final

from partita.constants import (
    ALLOCATION_GATE,
    ANNOTATION_PARTITION,
    LIMIT_MEMORY,
    LIMIT_THREADS,
)
from partita.models.quantities import parse_memory
from partita.models.template_name import TemplateName
from partita.pods.own_claims import WITHOUT_CLAIM

__all__ = ["explain_gate", "explain_limits"]

Json = dict[str, Any]

_INTRODUCTION: Final = (
    f"nothing has replaced the limit {LIMIT_MEMORY} by a claim, so the Pod cannot be scheduled: "
    "install manifests/limits (Kubernetes 1.36 or newer)"
)


def explain_limits(body: Json) -> str:
    """Return what to write in a Pod instead of its limits; empty if it has none, or is scheduled.

    Parameters
    ----------
    body
        Any Pod.
    """
    spec = body.get("spec") or {}
    limits = [
        found
        for container in spec.get("containers") or ()
        if (found := (container.get("resources") or {}).get("limits") or {}).keys()
        & {LIMIT_MEMORY, LIMIT_THREADS}
    ]
    if not limits or spec.get("nodeName") or body["metadata"].get("deletionTimestamp"):
        return ""
    partition = (body["metadata"].get("annotations") or {}).get(ANNOTATION_PARTITION, "")
    template = _template(limits[0], partition) if len(limits) == 1 else ""
    if not template:
        return f"{_INTRODUCTION}, or name a ResourceClaimTemplate: docs/how-to/run-workloads.md"
    return (
        f"{_INTRODUCTION}, or write in the template of the Pod "
        f"resourceClaims: [{{name: gpu, resourceClaimTemplateName: {template}}}], and in the "
        "container resources: {claims: [{name: gpu}]} instead of the limit. "
        "Partita creates this ResourceClaimTemplate"
    )


def explain_gate(body: Json) -> str:
    """Return what to write in a Pod with Partita's scheduling gate and no claim; else empty."""
    spec = body.get("spec") or {}
    gates = (gate["name"] for gate in spec.get("schedulingGates") or ())
    waits = ALLOCATION_GATE in gates and not body["metadata"].get("deletionTimestamp")
    return WITHOUT_CLAIM if waits and not spec.get("resourceClaims") else ""


def _template(limits: Json, partition: str) -> str:
    """Return the name of a template for the same amounts; empty if they are invalid."""
    try:
        memory = parse_memory(limits[LIMIT_MEMORY])
        threads = parse_memory(limits[LIMIT_THREADS]) if LIMIT_THREADS in limits else None
    except (KeyError, ValueError):
        return ""
    name = str(TemplateName(partition, memory, threads))
    return name if TemplateName.parse(name) is not None else ""
