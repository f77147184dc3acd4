"""Checks of the containers of a Pod with claims: which claims they use, and what else."""

from collections.abc import Iterator
from typing import Any

from partita.constants import GPU_RESOURCE
from partita.validation.manifest_objects import Finding, ManifestObject
from partita.validation.pod_specs import PodSpecInManifest
from partita.validation.yaml_documents import Location

__all__ = ["container_findings"]

Json = dict[str, Any]


def container_findings(
    found: ManifestObject, pod: PodSpecInManifest, claims: list[int]
) -> Iterator[Finding]:
    """Yield what is wrong with how containers use the claims of their Pod.

    Parameters
    ----------
    claims
        Indexes of Partita's claims in `spec.resourceClaims`.
    """
    entries = pod.spec["resourceClaims"]
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    used = set()
    dangling = False
    for place, container in _containers(pod):
        resources = container.get("resources")
        resources = resources if isinstance(resources, dict) else {}
        for index, claim in enumerate(resources.get("claims") or ()):
            name = claim.get("name") if isinstance(claim, dict) else None
            used.add(name)
            if name not in names:
                dangling = True
                there = ", ".join(str(one) for one in names)
                said = f"{name} is not in spec.resourceClaims of the Pod (there is: {there})"
                yield found.finding((*place, "resources", "claims", index, "name"), said)
        if GPU_RESOURCE in (resources.get("limits") or {}):
            said = "it asks for a whole GPU besides the slice of the claim: remove it"
            yield found.finding((*place, "resources", "limits", GPU_RESOURCE), said, warning=True)
    for index in claims:
        name = entries[index].get("name")
        if name not in used and not dangling and "containers" in pod.spec:
            said = (
                f"no container uses it: write resources.claims: [{{name: {name}}}] in a container"
            )
            yield found.finding((*pod.path, "resourceClaims", index), said, warning=True)


def _containers(pod: PodSpecInManifest) -> Iterator[tuple[Location, Json]]:
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod.spec.get(kind) or ()):
            if isinstance(container, dict):
                yield (*pod.path, kind, index), container
