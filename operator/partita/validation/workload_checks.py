"""Checks of Pods, in manifests of any kind, that ask for a share of a GPU.

A Pod asks by a claim (`spec.resourceClaims`) or by limits of a container, which an admission policy
replaces by a claim (`manifests/limits`). Its annotations say the rest.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from partita.constants import (
    ANNOTATION_APPLICATION,
    ANNOTATION_EXPECTED_DURATION,
    ANNOTATION_FRAMEWORK,
    ANNOTATION_MEMORY,
    ANNOTATION_MEMORY_LIMIT,
    ANNOTATION_PROCESSES,
    ANNOTATION_THREADS,
    CAPACITY_MEMORY,
    CAPACITY_THREADS,
    GPU_RESOURCE,
    GROUP,
)
from partita.models.device_class import class_target, device_class_of
from partita.models.quantities import MEBI, parse_memory
from partita.models.template import PodTemplate
from partita.partitions.template_name import TemplateName
from partita.pods.template_check import template_problems
from partita.scheduling.claim_request import request_of_claim
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import WaitingReason
from partita.scheduling.resolved_request import resolve
from partita.store.claim_view import ClaimView
from partita.store.workload_pod import WorkloadPod
from partita.validation.claim_checks import claim_view
from partita.validation.dry_run import create, pod_errors
from partita.validation.field_errors import Path
from partita.validation.kinds import WORKLOADS, builtin_kinds
from partita.validation.manifest_objects import (
    Finding,
    KnownClaim,
    KnownObjects,
    ManifestObject,
    meant,
    path_parts,
    text_of,
)
from partita.validation.pod_specs import PodSpecInManifest, claim_entries, pod_specs

__all__ = ["UNKNOWN", "asks_for_gpu", "workload_findings"]

Json = dict[str, Any]

_PREFIX: Final = f"{GROUP}/"
_LIMIT_MEMORY: Final = f"{_PREFIX}gpu-memory"
_LIMIT_THREADS: Final = f"{_PREFIX}gpu-threads"
_LIMITS: Final = (_LIMIT_MEMORY, _LIMIT_THREADS)
_CLAIM_OF_LIMITS: Final = "partita-gpu"
"""Name of the Pod's claim that replaces limits."""
_TEMPLATE: Final = "resourceClaimTemplateName"
UNKNOWN: Final = "unknown"
"""Stands for the partition of a Pod that names none."""
_ANNOTATION_PARTITION: Final = f"{_PREFIX}partition"
_ANNOTATION: Final = re.compile(r"annotation ([^ :]+)(: )?")
_SETTINGS: Final = (
    ANNOTATION_APPLICATION,
    ANNOTATION_EXPECTED_DURATION,
    ANNOTATION_FRAMEWORK,
    ANNOTATION_MEMORY,
    ANNOTATION_MEMORY_LIMIT,
    ANNOTATION_PROCESSES,
    ANNOTATION_THREADS,
    _ANNOTATION_PARTITION,
)


def asks_for_gpu(body: Json, known: KnownObjects) -> bool:
    """Return whether an object has Pods with settings, limits or claims of Partita."""
    namespace = _namespace(body)
    return any(
        _settings(pod.annotations)
        or _limits(pod.spec)
        or _claims(pod.spec, namespace, known)
        or any(_created_claims(pod.spec, known))
        for pod in pod_specs(body)
    ) or bool(_misplaced(body))


def workload_findings(found: ManifestObject, known: KnownObjects) -> Iterator[Finding]:
    """Yield what is wrong with the Pods of an object, by themselves and with the other files."""
    for name in _misplaced(found.body):
        said = "its Pods do not get this: move it to the metadata of the Pod template"
        yield found.finding(("metadata", "annotations", name), said, warning=True)
    pods = list(pod_specs(found.body))
    problems = [problem for pod in pods for problem in _shape(found, pod)]
    problems = problems or list(_refusals(found, pods))
    yield from problems
    for pod in [] if problems else pods:
        for name in _settings(pod.annotations):
            if name not in _SETTINGS:
                said = f"unknown annotation{_meant(name, _SETTINGS)}"
                yield found.finding((*pod.annotations_path, name), said)
        claims = _claims(pod.spec, _namespace(found.body), known)
        limits = _limits(pod.spec)
        if limits:
            yield from _limit_findings(found, pod, limits, claims, known)
        elif claims:
            yield from _container_findings(found, pod, claims)
            for index, claim in claims.items():
                yield from _claim_findings(found, pod, index, claim, known)
        elif views := list(_created_claims(pod.spec, known)):
            for place, view in views:
                yield from _request_findings(found, pod, view, (*pod.path, *place), known)
        elif _settings(pod.annotations):
            yield from _setting_findings(found, pod, known)


def _refusals(found: ManifestObject, pods: Iterable[PodSpecInManifest]) -> Iterator[Finding]:
    """Yield why an API server would refuse an object or, of a kind of others, its Pods."""
    named = (text_of(found.body.get("apiVersion")), text_of(found.body.get("kind")))
    if rules := builtin_kinds().get(named):
        yield from create(found, rules)
        return
    for pod in pods:
        for error in pod_errors(pod.spec):
            yield found.finding((*pod.path, *error.path[1:]), error.message)


def _settings(annotations: Mapping[str, Any]) -> list[str]:
    return [name for name in annotations if str(name).startswith(_PREFIX)]


def _meant(name: str, known: Iterable[str]) -> str:
    """Suggest one of the known names, which all have the same prefix."""
    short = sorted(one.removeprefix(_PREFIX) for one in known)
    return meant(name.removeprefix(_PREFIX), short, f"{_PREFIX}{{{','.join(short)}}}")


def _misplaced(body: Json) -> list[str]:
    """Return the settings in the metadata of an object whose Pods have metadata of their own."""
    if text_of(body.get("kind")) not in WORKLOADS:
        return []
    meta = body.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    return _settings(annotations) if isinstance(annotations, dict) else []


def _shape(found: ManifestObject, pod: PodSpecInManifest) -> Iterator[Finding]:
    """Yield what makes a Pod unreadable."""
    numbers = {n: pod.annotations[n] for n in _settings(pod.annotations)}
    numbers = {name: value for name, value in numbers.items() if not isinstance(value, str)}
    for name, value in numbers.items():
        said = f"{json.dumps(value, default=str)} is no string: put it in quotes"
        yield found.finding((*pod.annotations_path, name), said)
    if numbers:
        return
    if "containers" not in pod.spec:
        return
    template = PodTemplate(metadata={"annotations": pod.annotations}, spec=pod.spec)
    for problem in template_problems(template):
        place, _, said = problem.partition(" ")
        where = path_parts(place.rstrip(":"))[1:]
        if where[:1] == ("spec",):
            yield found.finding((*pod.path, *where[1:]), said)
        else:
            yield found.finding(pod.annotations_path, said)


def _namespace(body: Json) -> str:
    meta = body.get("metadata")
    return text_of(meta.get("namespace")) if isinstance(meta, dict) else ""


def _claims(spec: Json, namespace: str, known: KnownObjects) -> dict[int, KnownClaim]:
    """Return the claims of Partita in the files that a Pod names, by index."""
    claims = {}
    for index, entry in claim_entries(spec):
        for kind, field in (
            ("ResourceClaimTemplate", _TEMPLATE),
            ("ResourceClaim", "resourceClaimName"),
        ):
            claim = known.claim(kind, text_of(entry.get(field)), namespace)
            if claim is not None:
                claims[index] = claim
    return claims


def _created_claims(spec: Json, known: KnownObjects) -> Iterator[tuple[Path, ClaimView]]:
    """Return the claims of a Pod whose templates the operator creates, and their places."""
    for index, entry in claim_entries(spec):
        named = text_of(entry.get(_TEMPLATE))
        if (name := TemplateName.parse(named)) is not None:
            partition = name.partition or next(iter(known.partitions), UNKNOWN)
            amounts = {_LIMIT_MEMORY: name.memory, _LIMIT_THREADS: name.threads}
            given = {limit: str(amount) for limit, amount in amounts.items() if amount}
            if view := claim_view(named, _claim_spec(partition, given)):
                yield ("resourceClaims", index, _TEMPLATE), view


def _container_findings(
    found: ManifestObject, pod: PodSpecInManifest, claims: Iterable[int]
) -> Iterator[Finding]:
    """Yield what is wrong with how containers use the claims of their Pod.

    Parameters
    ----------
    claims
        Indexes of Partita's claims in `spec.resourceClaims`.
    """
    used = set()
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod.spec.get(kind) or ()):
            resources = container.get("resources") or {}
            used |= {claim["name"] for claim in resources.get("claims") or ()}
            if GPU_RESOURCE in (resources.get("limits") or {}):
                said = "it asks for a whole GPU besides the slice of the claim: remove it"
                place = (*pod.path, kind, index, "resources", "limits", GPU_RESOURCE)
                yield found.finding(place, said, warning=True)
    for index in claims:
        name = pod.spec["resourceClaims"][index]["name"]
        if name not in used and "containers" in pod.spec:
            said = (
                f"no container uses it: write resources.claims: [{{name: {name}}}] in a container"
            )
            yield found.finding((*pod.path, "resourceClaims", index), said, warning=True)


def _claim_findings(
    found: ManifestObject,
    pod: PodSpecInManifest,
    index: int,
    claim: KnownClaim,
    known: KnownObjects,
) -> Iterator[Finding]:
    place = (*pod.path, "resourceClaims", index)
    if claim.kind == "ResourceClaim" and found.body.get("kind") != "Pod":
        said = (
            "all its Pods would use this claim, and a claim is for one Pod: name a "
            "ResourceClaimTemplate in resourceClaimTemplateName"
        )
        yield found.finding((*place, "resourceClaimName"), said, warning=True)
    yield from _request_findings(found, pod, claim.view, place, known)


def _request_findings(
    found: ManifestObject,
    pod: PodSpecInManifest,
    view: ClaimView,
    place: Path,
    known: KnownObjects,
) -> Iterator[Finding]:
    """Yield why a partition in the files, or any, can never serve a claim of a Pod."""
    target = class_target(view.device_class, known.partitions)
    body = {
        "metadata": {"name": "pod", "annotations": pod.annotations},
        "spec": pod.spec | {"resourceClaims": [{"name": "gpu"}]},
    }
    workload = WorkloadPod.parse(body)
    if target is None or workload is None:
        return
    request = request_of_claim(view, workload, target.partition, target.slice)
    if isinstance(request, WaitingReason):
        yield _refusal(found, pod, place, request)
        return
    known.requests.append((found, request))
    # Overlays may contain several partitions of one name. It is enough if one accepts the Pod.
    partitions = known.partitions.get(target.partition, ())
    answers = [resolve(request, partition, largest=Largest()) for partition in partitions]
    refusals = [answer for answer in answers if isinstance(answer, WaitingReason)]
    if refusals and len(refusals) == len(answers):
        yield _refusal(found, pod, place, refusals[0])


def _setting_findings(
    found: ManifestObject, pod: PodSpecInManifest, known: KnownObjects
) -> Iterator[Finding]:
    """Check the annotations of a Pod whose claim is not in the files."""
    # Whether the memory is enough for a limit depends on the claim.
    notes = {k: v for k, v in pod.annotations.items() if k != ANNOTATION_MEMORY_LIMIT}
    if view := claim_view("", _claim_spec(UNKNOWN, {})):
        pod = replace(pod, annotations=notes)
        yield from _request_findings(found, pod, view, pod.path, known)


def _refusal(
    found: ManifestObject, pod: PodSpecInManifest, place: Path, why: WaitingReason
) -> Finding:
    """Return a finding about the annotation with which a message begins, or else about `place`."""
    match = _ANNOTATION.match(why.message)
    if match is None:
        return found.finding(place, why.message)
    said = why.message[match.end() :] if match[2] else why.message
    return found.finding((*pod.annotations_path, match[1]), said)


# Limits.


def _limits(spec: Json) -> list[tuple[Path, str, Any]]:
    """Return place, name and amount of each limit of Partita."""
    found: list[tuple[Path, str, Any]] = []
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            resources = container.get("resources") if isinstance(container, dict) else None
            limits = resources.get("limits") if isinstance(resources, dict) else None
            for name, amount in (limits if isinstance(limits, dict) else {}).items():
                if str(name).startswith(_PREFIX):
                    found.append(((kind, index, "resources", "limits", name), name, amount))
    return found


def _limit_findings(
    found: ManifestObject,
    pod: PodSpecInManifest,
    limits: list[tuple[Path, str, Any]],
    claims: Mapping[int, KnownClaim],
    known: KnownObjects,
) -> Iterator[Finding]:
    problems = dict(_limit_problems(pod.spec, limits))
    for index, claim in claims.items():
        problems["resourceClaims", index] = (
            f"the Pod also has the limit {_LIMIT_MEMORY}: ask by this claim of class "
            f"{claim.view.device_class} or by the limit, not by both"
        )
    for place, said in problems.items():
        yield found.finding((*pod.path, *place), said)
    if problems:
        return
    place, amounts = limits[0][0], {name: amount for _, name, amount in limits}
    partition = pod.annotations.get(_ANNOTATION_PARTITION)
    if partition is None and len(known.partitions) > 1:
        there = ", ".join(sorted(known.partitions))
        said = (
            f"there are several partitions ({there}): name one in annotation partita.dev/partition"
        )
        yield found.finding((*pod.path, *place), said)
        return
    if partition is not None and known.partitions and partition not in known.partitions:
        path = (*pod.annotations_path, _ANNOTATION_PARTITION)
        yield found.finding(path, known.absent(partition), warning=True)
    name = partition or next(iter(known.partitions), UNKNOWN)
    view = claim_view(_CLAIM_OF_LIMITS, _claim_spec(name, amounts))
    if view is not None:
        yield from _request_findings(found, pod, view, (*pod.path, *place), known)


def _limit_problems(spec: Json, limits: list[tuple[Path, str, Any]]) -> Iterator[tuple[Path, str]]:
    """Yield what the admission policy cannot replace by a claim, with its place."""
    with_memory = {place[:2] for place, name, _ in limits if name == _LIMIT_MEMORY}
    for place, name, amount in limits:
        if name not in _LIMITS:
            yield place, f"unknown resource{_meant(name, _LIMITS)}"
        elif place[0] == "initContainers":
            yield place, "an init container cannot have it: write it in a container, or use a claim"
        elif name == _LIMIT_MEMORY and len(with_memory) > 1:
            yield (
                place,
                "only one container may have it: containers share a slice by resourceClaims",
            )
        elif place[:2] not in with_memory:
            yield place, f"it needs {_LIMIT_MEMORY} beside it: write how much memory, such as 6Gi"
        elif said := _amount_problem(name, amount):
            yield place, said
    for index, entry in enumerate(spec.get("resourceClaims") or ()):
        if isinstance(entry, dict) and entry.get("name") == _CLAIM_OF_LIMITS:
            said = f"{_CLAIM_OF_LIMITS} is the claim that replaces the limit: choose another name"
            yield ("resourceClaims", index, "name"), said


def _amount_problem(name: str, amount: Any) -> str:
    try:
        value = parse_memory(amount)
    except ValueError as error:
        return str(error)
    if name == _LIMIT_MEMORY and value < MEBI:
        return f"{amount} is less than 1Mi: write an amount such as 6Gi"
    if name == _LIMIT_THREADS and not 1 <= value <= 100:
        return f"{amount} is no percentage from 1 to 100: write a number such as 50"
    return ""


def _claim_spec(partition: str, limits: Mapping[str, Any]) -> Json:
    """Return the spec of the claim that replaces limits."""
    capacity = {
        capacity: limits[limit]
        for capacity, limit in (
            (CAPACITY_MEMORY, _LIMIT_MEMORY),
            (CAPACITY_THREADS, _LIMIT_THREADS),
        )
        if limit in limits
    }
    exactly = {"deviceClassName": device_class_of(partition), "capacity": {"requests": capacity}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
