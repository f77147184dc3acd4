"""Checks of Pods, in manifests of any kind, that ask for a share of a GPU.

A Pod asks by a claim (`spec.resourceClaims`) or by limits of a container, which an admission policy
replaces by a claim (`manifests/limits`). Its annotations say the rest.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from partita.constants import (
    ALLOCATION_GATE,
    ANNOTATION_MEMORY_LIMIT,
    ANNOTATION_PROCESSES,
    GPU_RESOURCE,
    LIMIT_MEMORY,
    LIMIT_THREADS,
    POD_SETTINGS,
)
from partita.models.template import PodTemplate
from partita.models.template_name import TemplateName
from partita.pods.containers import users_of_entry
from partita.pods.own_claims import WITHOUT_CLAIM
from partita.pods.template_check import template_problems
from partita.pods.termination import NO_GRACE
from partita.store.claim_view import ClaimView
from partita.validation.argo_templates import argo_pods
from partita.validation.claim_checks import claim_view
from partita.validation.dry_run import create, pod_errors
from partita.validation.kinds import WORKLOADS, builtin_kinds
from partita.validation.limit_checks import PREFIX, limit_findings, limits_of, meant_name
from partita.validation.manifest_objects import (
    Finding,
    KnownClaim,
    KnownObjects,
    ManifestObject,
    mappings,
    text_of,
)
from partita.validation.pod_specs import (
    PodSpecInManifest,
    annotations_of,
    foreign_scheduler,
    pod_specs,
)
from partita.validation.request_checks import UNKNOWN, claim_of_limits, request_findings

__all__ = ["asks_for_gpu", "workload_findings"]

Json = dict[str, Any]

_TEMPLATE: Final = "resourceClaimTemplateName"


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim of Partita that a Pod names."""

    index: int
    """Its index in `spec.resourceClaims`."""
    view: ClaimView
    known: KnownClaim | None = None
    """The claim or template in the files; None if the operator creates the template."""


def asks_for_gpu(found: ManifestObject, known: KnownObjects) -> bool:
    """Return whether an object has Pods with settings, limits, claims or the gate of Partita."""
    return any(
        _settings(pod.annotations)
        or limits_of(pod.spec)
        or any(_claims(pod, known))
        or any(_unreadable(pod, known))
        or _gate(pod.spec) is not None
        for pod in _pods(found)
    ) or bool(_misplaced(found.body))


def workload_findings(found: ManifestObject, known: KnownObjects) -> Iterator[Finding]:
    """Yield what is wrong with the Pods of an object, by themselves and with the other files."""
    for name in _misplaced(found.body):
        said = "its Pods do not get this: move it to the metadata of the Pod template"
        yield found.finding(("metadata", "annotations", name), said, warning=True)
    pods = _pods(found)
    problems = [problem for pod in pods for problem in _shape(pod)]
    problems = problems or list(_refusals(found, pods))
    yield from problems
    for pod in [] if problems else pods:
        yield from _pod_findings(pod, known)


def _pod_findings(pod: PodSpecInManifest, known: KnownObjects) -> Iterator[Finding]:
    for name in _settings(pod.annotations):
        if name not in POD_SETTINGS:
            said = f"unknown annotation{meant_name(name, POD_SETTINGS)}"
            yield pod.about_annotation(name, said)
    limits, claims = limits_of(pod.spec), list(_claims(pod, known))
    for index, said in _unreadable(pod, known):
        yield pod.finding(("resourceClaims", index, _TEMPLATE), said, warning=True)
    if (claims or limits) and pod.spec.get("terminationGracePeriodSeconds") == 0:
        yield pod.finding(("terminationGracePeriodSeconds",), NO_GRACE)
    if (claims or limits) and (said := foreign_scheduler(pod.spec)):
        yield pod.finding(("schedulerName",), said, warning=True)
    if limits:
        in_files = {claim.index: claim.known for claim in claims if claim.known is not None}
        yield from limit_findings(pod, limits, in_files, known)
    elif claims:
        yield from _container_findings(pod, [claim.index for claim in claims])
        for claim in claims:
            yield from _claim_findings(pod, claim, known)
    elif (gate := _gate(pod.spec)) is not None and not pod.spec.get("resourceClaims"):
        yield pod.finding(("schedulingGates", gate), WITHOUT_CLAIM)
    elif _settings(pod.annotations):
        yield from _setting_findings(pod, known)


def _pods(found: ManifestObject) -> list[PodSpecInManifest]:
    pods = argo_pods(found)
    return list(pod_specs(found)) if pods is None else pods


def _refusals(found: ManifestObject, pods: Iterable[PodSpecInManifest]) -> Iterator[Finding]:
    """Yield why an API server would refuse an object or, of a kind of others, its Pods."""
    named = (text_of(found.body.get("apiVersion")), text_of(found.body.get("kind")))
    if rules := builtin_kinds().get(named):
        yield from create(found, rules)
        return
    for pod in pods:
        for error in pod_errors(pod.spec):
            yield pod.finding(error.path[1:], error.message)


def _settings(annotations: Mapping[str, Any]) -> list[str]:
    return [name for name in annotations if str(name).startswith(PREFIX)]


def _misplaced(body: Json) -> list[str]:
    """Return the settings in the metadata of an object whose Pods have metadata of their own."""
    return _settings(annotations_of(body)) if text_of(body.get("kind")) in WORKLOADS else []


def _shape(pod: PodSpecInManifest) -> Iterator[Finding]:
    """Yield what makes a Pod unreadable."""
    numbers = {n: pod.annotations[n] for n in _settings(pod.annotations)}
    numbers = {name: value for name, value in numbers.items() if not isinstance(value, str)}
    for name, value in numbers.items():
        said = f"{json.dumps(value, default=str)} is no string: put it in quotes"
        yield pod.about_annotation(name, said)
    if numbers or "containers" not in pod.spec:
        return
    template = PodTemplate(metadata={"annotations": pod.annotations}, spec=pod.spec)
    for (_, part, *where), said in template_problems(template):
        if part == "spec":
            yield pod.finding(tuple(where), said)
        else:
            yield pod.found.finding(pod.annotations_path, said)


def _gate(spec: Json) -> int | None:
    """Return the index of Partita's scheduling gate in the spec of a Pod; None without it."""
    gates = mappings(spec.get("schedulingGates"))
    return next((i for i, gate in gates if gate.get("name") == ALLOCATION_GATE), None)


def _claims(pod: PodSpecInManifest, known: KnownObjects) -> Iterator[_Claim]:
    """Yield the claims of Partita in the files that a Pod names, or else those of its templates."""
    found, entries = {}, list(mappings(pod.spec.get("resourceClaims")))
    for index, entry in entries:
        for kind, field in (
            ("ResourceClaimTemplate", _TEMPLATE),
            ("ResourceClaim", "resourceClaimName"),
        ):
            claim = known.claim(kind, text_of(entry.get(field)), pod.found.namespace)
            if claim is not None:
                found[index] = _Claim(index, claim.view, claim)
    yield from found.values()
    for index, entry in entries if not found else ():
        named = text_of(entry.get(_TEMPLATE))
        if (name := TemplateName.parse(named)) is not None:
            partition = name.partition or next(iter(known.partitions), UNKNOWN)
            amounts = {LIMIT_MEMORY: name.memory, LIMIT_THREADS: name.threads}
            given = {limit: str(amount) for limit, amount in amounts.items() if amount}
            if view := claim_view(named, claim_of_limits(partition, given)):
                yield _Claim(index, view)


def _unreadable(pod: PodSpecInManifest, known: KnownObjects) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with names of templates that look like those of the operator."""
    for index, entry in mappings(pod.spec.get("resourceClaims")):
        named = text_of(entry.get(_TEMPLATE))
        said, name = TemplateName.problem(named), TemplateName.parse(named)
        if name and name.partition and known.partitions:
            said = "" if name.partition in known.partitions else known.absent(name.partition)
        if said and known.claim("ResourceClaimTemplate", named, pod.found.namespace) is None:
            yield index, said


def _container_findings(pod: PodSpecInManifest, claims: Iterable[int]) -> Iterator[Finding]:
    """Yield what is wrong with how containers use the claims of their Pod.

    Parameters
    ----------
    claims
        Indexes of Partita's claims in `spec.resourceClaims`.
    """
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod.spec.get(kind) or ()):
            if GPU_RESOURCE in ((container.get("resources") or {}).get("limits") or {}):
                said = "it asks for a whole GPU besides the slice of the claim: remove it"
                place = (kind, index, "resources", "limits", GPU_RESOURCE)
                yield pod.finding(place, said, warning=True)
    stated = text_of(pod.annotations.get(ANNOTATION_PROCESSES))
    for index in claims if "containers" in pod.spec else ():
        name = pod.spec["resourceClaims"][index]["name"]
        users, said = users_of_entry(pod.spec, name), ""
        if not users:
            said = (
                f"no container uses it: write resources.claims: [{{name: {name}}}] in a container"
            )
        elif users > 1 and not stated:
            said = (
                f"{users} containers use it at the same time, so each process may use 1/{users} of "
                f"its memory: write the number of all their processes in annotation "
                f"{ANNOTATION_PROCESSES}, or name it only in the containers that use the GPU"
            )
        elif stated.isdecimal() and 0 < int(stated) < users:
            said = (
                f"{users} containers use it at the same time, and annotation "
                f"{ANNOTATION_PROCESSES} allows {stated} processes: the newest ones above this "
                "number are terminated"
            )
        if said:
            yield pod.finding(("resourceClaims", index), said, warning=True)


def _claim_findings(
    pod: PodSpecInManifest, claim: _Claim, known: KnownObjects
) -> Iterator[Finding]:
    place = pod.place("resourceClaims", claim.index)
    if claim.known is None:
        place = (*place, _TEMPLATE)
    elif claim.known.kind == "ResourceClaim" and pod.found.body.get("kind") != "Pod":
        said = (
            "all its Pods would use this claim, and a claim is for one Pod: name a "
            "ResourceClaimTemplate in resourceClaimTemplateName"
        )
        yield pod.found.finding((*place, "resourceClaimName"), said, warning=True)
    entry = pod.spec["resourceClaims"][claim.index]["name"]
    yield from request_findings(pod, claim.view, place, known, entry)


def _setting_findings(pod: PodSpecInManifest, known: KnownObjects) -> Iterator[Finding]:
    """Check the annotations of a Pod whose claim is not in the files."""
    # Whether the memory is enough for a limit depends on the claim.
    notes = {k: v for k, v in pod.annotations.items() if k != ANNOTATION_MEMORY_LIMIT}
    if view := claim_view("", claim_of_limits(UNKNOWN, {})):
        pod = replace(pod, annotations=notes)
        yield from request_findings(pod, view, pod.path, known)
