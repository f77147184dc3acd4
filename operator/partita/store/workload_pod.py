"""The fields of Pods with claims that are kept in memory: what their claims are resolved with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, NamedTuple, Self

from partita.constants import GROUP
from partita.pods.container_ends import ContainerFailure, last_failure
from partita.pods.node_requirements import Needs, needs_of

__all__ = ["PodClaim", "WorkloadPod", "application_of"]

Json = dict[str, Any]

_LONGEST_APPLICATION = 63
"""As in SharedGPUJob and ApplicationProfile."""
_TEMPLATE_HASH = "pod-template-hash"


class PodClaim(NamedTuple):
    """A claim in `spec.resourceClaims` of a Pod."""

    entry: str
    """Its name within the Pod."""
    claim: str
    """Name of the ResourceClaim; empty until it is made from the template."""
    template: str
    """Name of the ResourceClaimTemplate; empty if the Pod names a ResourceClaim itself."""


@dataclass(frozen=True, slots=True)
class WorkloadPod:
    """A Pod with claims, made by any controller or by hand."""

    claims: tuple[PodClaim, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Its annotations of Partita."""
    application: str = ""
    """Kind and name of its controller: the application if no annotation names one."""
    controller: str = ""
    """Kind and name of its controller; empty if it has none."""
    revision: str = ""
    """Hash of the template of its Deployment; empty if it has none."""
    priority: int = 0
    restarts_always: bool = False
    failure: ContainerFailure | None = None
    """How one of its containers failed last; None if none has."""
    needs: Needs = field(default_factory=Needs)
    """Its requirements on nodes."""

    @classmethod
    def parse(cls, body: Json) -> Self | None:
        """Read the claims of a Pod; None if it has none."""
        spec = body.get("spec") or {}
        entries = spec.get("resourceClaims") or ()
        if not entries:
            return None
        meta = body["metadata"]
        statuses = (body.get("status") or {}).get("resourceClaimStatuses") or ()
        made = {one["name"]: one.get("resourceClaimName") or "" for one in statuses}
        annotations = meta.get("annotations") or {}
        return cls(
            claims=tuple(
                PodClaim(
                    entry["name"],
                    entry.get("resourceClaimName") or made.get(entry["name"], ""),
                    entry.get("resourceClaimTemplateName") or "",
                )
                for entry in entries
            ),
            annotations={
                intern(key): intern(value)
                for key, value in annotations.items()
                if key.startswith(f"{GROUP}/")
            },
            application=intern(application_of(meta)),
            controller=intern(controller_of(meta)),
            revision=intern((meta.get("labels") or {}).get(_TEMPLATE_HASH, "")),
            priority=spec.get("priority") or 0,
            restarts_always=spec.get("restartPolicy", "Always") == "Always",
            failure=last_failure(body.get("status") or {}),
            needs=_needs(spec),
        )


def application_of(meta: Json) -> str:
    """Return the application of a Pod that names none: its controller, or itself without one."""
    return (controller_of(meta) or f"Pod/{meta['name']}")[:_LONGEST_APPLICATION]


def controller_of(meta: Json) -> str:
    """Return kind and name of the controller of a Pod, such as `Deployment/serve`; empty if none.

    Pods of a Deployment are controlled by a ReplicaSet, whose name ends with the hash of the
    template (https://kubernetes.io/docs/concepts/workloads/controllers/deployment/).
    """
    owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    if owner is None:
        return ""
    kind, name = owner["kind"], owner["name"]
    template = (meta.get("labels") or {}).get(_TEMPLATE_HASH)
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        kind, name = "Deployment", name.removesuffix(f"-{template}")
    return f"{kind}/{name}"


def _needs(spec: Json) -> Needs:
    try:
        return needs_of(spec)
    except ValueError as error:
        return Needs(problems=(str(error),))
