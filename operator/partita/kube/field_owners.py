"""Stops the API server from recording the owner of each field of an object.

The record (`metadata.managedFields`) is used by server-side apply. To keep it takes a good part of
each write. The API server starts again when somebody applies the object
(https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields, and
`skipNonAppliedManager` in k8s.io/apimachinery/pkg/util/managedfields/internal/skipnonapplied.go).
"""

from typing import Any

from partita.kube.client import Kind, Kube
from partita.kube.errors import ConflictError, NotFoundError

__all__ = ["without_field_owners"]

Json = dict[str, Any]


async def without_field_owners(kube: Kube, kind: Kind, created: Json) -> Json:
    """Remove the field owners of an object that the operator has created; return the object.

    For an object with many writes that nobody applies. If it was written meanwhile, they stay.
    """
    meta = created["metadata"]
    patch = {"metadata": {"uid": meta["uid"], "managedFields": [{}]}}
    try:
        return await kube.patch(kind, meta["name"], patch, resource_version=meta["resourceVersion"])
    except (ConflictError, NotFoundError):
        return created
