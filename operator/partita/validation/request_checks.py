"""Checks of what the claim of a Pod asks for, by the rules of the operator."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from partita.constants import CAPACITY_MEMORY, CAPACITY_THREADS, LIMIT_MEMORY, LIMIT_THREADS
from partita.models.device_class import class_target, device_class_of
from partita.scheduling.claim_request import request_of_claim
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import WaitingReason
from partita.scheduling.resolved_request import resolve
from partita.store.claim_view import ClaimView
from partita.store.workload_pod import WorkloadPod
from partita.validation.field_errors import Path
from partita.validation.manifest_objects import Finding, KnownObjects
from partita.validation.pod_specs import PodSpecInManifest

__all__ = ["UNKNOWN", "claim_of_limits", "request_findings"]

UNKNOWN: Final = "unknown"
"""Stands for the partition of a Pod that names none."""
_ANNOTATION: Final = re.compile(r"annotation ([^ :]+)(: )?")


def request_findings(
    pod: PodSpecInManifest, view: ClaimView, place: Path, known: KnownObjects, entry: str = "gpu"
) -> Iterator[Finding]:
    """Yield why a partition in the files, or any, can never serve a claim of a Pod.

    Parameters
    ----------
    place
        Place of the claim in the manifest.
    entry
        Name of the claim within the Pod.
    """
    target = class_target(view.device_class, known.partitions)
    body = {
        "metadata": {"name": "pod", "annotations": pod.annotations},
        "spec": pod.spec | {"resourceClaims": [{"name": entry}]},
    }
    workload = WorkloadPod.parse(body)
    if target is None or workload is None:
        return
    request = request_of_claim(view, workload, target)
    if isinstance(request, WaitingReason):
        yield _refusal(pod, place, request)
        return
    known.requests.append((pod.found, request))
    # Overlays may contain several partitions of one name. It is enough if one accepts the Pod.
    partitions = known.partitions.get(target.partition, ())
    answers = [resolve(request, partition, largest=Largest()) for partition in partitions]
    refusals = [answer for answer in answers if isinstance(answer, WaitingReason)]
    if refusals and len(refusals) == len(answers):
        yield _refusal(pod, place, refusals[0])


def _refusal(pod: PodSpecInManifest, place: Path, why: WaitingReason) -> Finding:
    """Return a finding about the annotation with which a message begins, or else about `place`."""
    match = _ANNOTATION.match(why.message)
    if match is None:
        return pod.found.finding(place, why.message)
    said = why.message[match.end() :] if match[2] else why.message
    return pod.about_annotation(match[1], said)


def claim_of_limits(partition: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the claim that replaces limits."""
    named = {CAPACITY_MEMORY: LIMIT_MEMORY, CAPACITY_THREADS: LIMIT_THREADS}
    asked = {capacity: limits[limit] for capacity, limit in named.items() if limit in limits}
    exactly = {"deviceClassName": device_class_of(partition), "capacity": {"requests": asked}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
