"""Creates the claims of the Pods that the operator creates, and allocates them."""

from datetime import datetime
from typing import Any

from partita.kube.client import CLAIMS, Kube
from partita.kube.errors import AlreadyExistsError, ConflictError
from partita.models.slice_parameters import SliceParameters
from partita.pods.claim_allocation import claim_allocation
from partita.pods.own_claims import REQUEST

__all__ = ["NameTakenError", "create_allocated"]

Json = dict[str, Any]


class NameTakenError(Exception):
    """A claim of another owner has the name."""


async def create_allocated(
    kube: Kube, claim: Json, parameters: SliceParameters, node: str, now: datetime
) -> Json:
    """Create a claim and write its allocation, unless an earlier call has; return the claim.

    Parameters
    ----------
    claim
        The manifest.
    node
        The node of its GPU.

    Raises
    ------
    NameTakenError
        A claim of another owner has the name.
    KubernetesError
        The API server refuses a request, or is not available.
    """
    meta = claim["metadata"]
    try:
        body = await kube.create(CLAIMS, claim)
    except AlreadyExistsError:
        body = await kube.get(CLAIMS, meta["name"], meta["namespace"])
        owners = {owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()}
        ours = meta["ownerReferences"][0]["uid"] in owners
        if not ours:
            raise NameTakenError(f"ResourceClaim {meta['name']} is of another owner") from None
        if "deletionTimestamp" in body["metadata"]:
            what = f"create {CLAIMS.plural} {meta['namespace']}/{meta['name']}"
            raise ConflictError(what, 409, "an earlier claim is being deleted") from None
    if (body.get("status") or {}).get("allocation"):
        return body
    uid = body["metadata"]["uid"]
    allocation = claim_allocation(uid, REQUEST, parameters, node, now)
    return await kube.patch(
        CLAIMS,
        meta["name"],
        {"metadata": {"uid": uid}, "status": {"allocation": allocation}},
        namespace=meta["namespace"],
        subresource="status",
        resource_version=body["metadata"]["resourceVersion"],
    )
