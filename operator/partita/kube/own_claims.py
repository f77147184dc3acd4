"""Creates the claims of the Pods that the operator creates, and allocates them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from partita.kube.client import CLAIMS, Kube
from partita.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from partita.models.slice_parameters import SliceParameters
from partita.pods.claim_allocation import claim_allocation
from partita.pods.own_claims import REQUEST

__all__ = ["NameTakenError", "create_allocated"]

Json = dict[str, Any]


class NameTakenError(Exception):
    """A claim of another owner has the name."""


async def create_allocated(
    kube: Kube, claim: Json, slices: Sequence[SliceParameters], node: str, now: datetime
) -> Json:
    """Create a claim and write its allocation, unless an earlier call has; return the claim.

    Parameters
    ----------
    claim
        The manifest.
    slices
        What it gets.
    node
        The node of its GPUs.

    Raises
    ------
    NameTakenError
        A claim of another owner has the name.
    ConflictError
        It is being deleted, or was deleted or changed meanwhile: try again.
    KubernetesError
        The API server refuses a request, or is not available.
    """
    meta = claim["metadata"]
    try:
        body = await kube.create(CLAIMS, claim)
    except AlreadyExistsError:
        body = await _existing(kube, claim)
    if (body.get("status") or {}).get("allocation"):
        return body
    uid = body["metadata"]["uid"]
    allocation = claim_allocation(uid, REQUEST, slices, node, now)
    try:
        return await kube.patch(
            CLAIMS,
            meta["name"],
            {"metadata": {"uid": uid}, "status": {"allocation": allocation}},
            namespace=meta["namespace"],
            subresource="status",
            resource_version=body["metadata"]["resourceVersion"],
        )
    except NotFoundError:
        raise _conflict("allocate", claim, "it was deleted meanwhile") from None


async def _existing(kube: Kube, claim: Json) -> Json:
    """Read the claim that an earlier call has created."""
    meta = claim["metadata"]
    try:
        body = await kube.get(CLAIMS, meta["name"], meta["namespace"])
    except NotFoundError:
        raise _conflict("create", claim, "an earlier claim was deleted meanwhile") from None
    owners = {owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()}
    if meta["ownerReferences"][0]["uid"] not in owners:
        raise NameTakenError(f"ResourceClaim {meta['name']} is of another owner")
    if "deletionTimestamp" in body["metadata"]:
        raise _conflict("create", claim, "an earlier claim is being deleted")
    return body


def _conflict(verb: str, claim: Json, message: str) -> ConflictError:
    meta = claim["metadata"]
    what = f"{verb} {CLAIMS.plural} {meta['namespace']}/{meta['name']}"
    return ConflictError(what, 409, message)
