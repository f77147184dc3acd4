"""Schema extensions for how the API server takes lists and objects apart.

Kubernetes calls this their topology:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy.
"""

from pydantic.config import JsonDict

__all__ = ["ATOMIC", "ATOMIC_LIST", "keyed_by"]


def keyed_by(key: str) -> JsonDict:
    """Return the schema extension for a list whose items server-side apply merges by a key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


ATOMIC: JsonDict = {"x-kubernetes-map-type": "atomic"}
"""Schema extension for an object with one writer. With it the API server does not record the owner
of each field, which is the most expensive part of a write."""

ATOMIC_LIST: JsonDict = {"x-kubernetes-list-type": "atomic"}
"""Schema extension for a list with one writer. Without it the API server compares each item with
the one of the same key before the write, field by field, to tolerate old mistakes. For each field
it makes a map of all fields of the schema (`CorrelatedObject.Key` in
k8s.io/apiserver/pkg/cel/common/equality.go)."""
