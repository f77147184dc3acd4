"""The controller of ResourceClaims (k8s.io/kubernetes v1.36.3, pkg/controller/resourceclaim).

It creates the claims of Pods from their templates, also for Pods with scheduling gates, and removes
reservations, allocations and claims that no Pod needs any more. A claim that was deleted under its
Pod is made again at once; kube-controller-manager may need a minute, as long as its cache holds the
claim that it made (``claimCache``).
"""

from __future__ import annotations

from partita_testcluster.apiserver.controllers.objects import (
    Obj,
    Objects,
    controller_of,
    owner_reference,
    terminated,
)
from partita_testcluster.apiserver.meta import dig

__all__ = ["claim_names", "sync_claim", "sync_claims_of_pod"]

_FINALIZER = "resource.kubernetes.io/delete-protection"
_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
_LONGEST_PREFIX = 57
_MOST_USERS = 256


def claim_names(pod: Obj) -> list[str]:
    """Return the names of a Pod's claims that exist or existed."""
    named = [c.get("resourceClaimName") for c in pod["spec"].get("resourceClaims") or ()]
    made = [s.get("resourceClaimName") for s in dig(pod, "status.resourceClaimStatuses") or ()]
    return [name for name in named + made if name]


def sync_claims_of_pod(objects: Objects, pod: Obj) -> None:
    """Create the missing claims of a Pod, and reserve its claims if it is bound (`syncPod`)."""
    if "deletionTimestamp" in pod["metadata"]:
        return
    namespace, wanted = pod["metadata"]["namespace"], pod["spec"].get("resourceClaims") or ()
    statuses = {s["name"]: s for s in dig(pod, "status.resourceClaimStatuses") or ()}
    before = dict(statuses)
    for entry in wanted:
        template = entry.get("resourceClaimTemplateName")
        name = statuses.get(entry["name"], {}).get("resourceClaimName", "")
        existing = objects.get("resourceclaims", namespace, name) if name else None
        owned = existing is not None and controller_of(existing).get("uid") == _uid(pod)
        if template and not owned and not terminated(pod):
            claim = _claim_for(objects, pod, entry["name"], template)
            if claim is None:
                why = f'resource claim template "{template}": not found'
                message = f"PodResourceClaim {entry['name']}: {why}"
                objects.warn(pod, "FailedResourceClaimCreation", message)
                return
            made = {"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]}
            statuses[entry["name"]] = made
    if statuses != before:
        pod["status"]["resourceClaimStatuses"] = list(statuses.values())
        pod = objects.update_status("pods", pod)
    if pod["spec"].get("nodeName") and not terminated(pod):
        _reserve(objects, pod)


def _claim_for(objects: Objects, pod: Obj, name: str, template_name: str) -> Obj | None:
    """Return the claim of a Pod: one that exists already, or a new one of its template."""
    for claim in objects.controlled("resourceclaims", pod):
        if (claim["metadata"].get("annotations") or {}).get(_ANNOTATION) == name:
            return claim
    namespace = pod["metadata"]["namespace"]
    template = objects.get("resourceclaimtemplates", namespace, template_name)
    if template is None:
        return None
    given = template["spec"].get("metadata") or {}
    reference = owner_reference(pod)
    del reference["blockOwnerDeletion"]
    meta = {
        "generateName": _prefix(pod["metadata"]["name"], name),
        "annotations": (given.get("annotations") or {}) | {_ANNOTATION: name},
        "labels": given.get("labels") or {},
        "ownerReferences": [reference],
    }
    body = {"metadata": meta, "spec": template["spec"]["spec"]}
    return objects.create("resourceclaims", namespace, body)


def _prefix(pod: str, claim: str) -> str:
    """Return the name of a claim without its random part; both names are shortened alike."""
    prefix = f"{pod}-{claim}-"
    if len(prefix) <= _LONGEST_PREFIX:
        return prefix
    parts = (part[: len(part) * _LONGEST_PREFIX // len(prefix)] for part in (pod, claim))
    return "-".join(parts)


def _reserve(objects: Objects, pod: Obj) -> None:
    """Reserve the claims of a Pod that was bound without a reservation."""
    meta = pod["metadata"]
    for name in claim_names(pod):
        claim = objects.get("resourceclaims", meta["namespace"], name)
        if claim is None or not claim["status"].get("allocation"):
            continue
        users = claim["status"].get("reservedFor") or []
        if len(users) < _MOST_USERS and _uid(pod) not in {user["uid"] for user in users}:
            user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
            claim["status"]["reservedFor"] = [*users, user]
            objects.update_status("resourceclaims", claim)


def sync_claim(objects: Objects, claim: Obj) -> None:
    """Remove what is no longer needed of a claim (`syncClaim`)."""
    users = claim["status"].get("reservedFor") or []
    remaining = [user for user in users if _needed(objects, claim, user)]
    protected = _FINALIZER in (claim["metadata"].get("finalizers") or ())
    if len(remaining) < len(users):
        claim["status"]["reservedFor"] = remaining
        if not remaining and protected:
            claim["status"].pop("allocation", None)
        claim = objects.update_status("resourceclaims", claim)
        if protected and not claim["status"].get("allocation"):
            claim = _unprotect(objects, claim)
    elif protected and not remaining and "deletionTimestamp" in claim["metadata"]:
        if claim["status"].pop("allocation", None) is not None:
            claim = objects.update_status("resourceclaims", claim)
        claim = _unprotect(objects, claim)
    if remaining or (owner := controller_of(claim)).get("kind") != "Pod":
        return
    namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
    pod = objects.get("pods", namespace, owner["name"])
    gone = pod is not None and (_uid(pod) != owner["uid"] or _done(pod))
    if gone and objects.get("resourceclaims", namespace, name) is not None:
        objects.delete("resourceclaims", claim)


def _needed(objects: Objects, claim: Obj, user: Obj) -> bool:
    if user.get("apiGroup") or user["resource"] != "pods":
        return True
    pod = objects.get("pods", claim["metadata"]["namespace"], user["name"])
    return pod is not None and _uid(pod) == user["uid"] and not _done(pod)


def _done(pod: Obj) -> bool:
    unscheduled = not pod["spec"].get("nodeName")
    return terminated(pod) or (unscheduled and "deletionTimestamp" in pod["metadata"])


def _unprotect(objects: Objects, claim: Obj) -> Obj:
    claim["metadata"]["finalizers"].remove(_FINALIZER)
    return objects.update("resourceclaims", claim)


def _uid(obj: Obj) -> str:
    uid: str = obj["metadata"]["uid"]
    return uid
