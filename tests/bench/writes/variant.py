"""What is compared: a kind of write in two variants, which are data."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CBOR",
    "CREATE",
    "MERGE",
    "METADATA_ONLY",
    "OBJECTS",
    "PUT",
    "Comparison",
    "Json",
    "Variant",
    "builtin",
    "custom",
]

Json = dict[str, Any]
Body = Callable[[Json, int], Any]
"""Returns the body of a request from the object as it was created and the request's number."""

OBJECTS = 8
"""Objects that the requests of a variant go to in turn, at the same time."""
CBOR = "application/cbor"
CREATE = "POST", "application/json"
PUT = "PUT", "application/json"
IGNORE = "?fieldValidation=Ignore"
"""Query of a write about whose unknown fields nobody is warned."""
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Media type of an answer without spec and status."""
MERGE = "PATCH", "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to make a write."""

    name: str
    collection: str
    """Path of the collection that the objects are in, without that of its version."""
    object: Json
    """The object to which each request is made; its name is chosen when it is created."""
    body: Body
    """The body of a request."""
    how: tuple[str, str] = MERGE
    """Method and content type. A `POST` creates objects, and all others change existing ones."""
    subresource: str = ""
    definition: Json | None = None
    """The CustomResourceDefinition; None for a built-in kind."""
    status: Json = field(default_factory=dict)
    """The status of the object before the first request."""
    prepare: tuple[Json, ...] = ()
    """Merge patches made to each object before the first request, beside its status."""
    accept: str = "application/json"
    query: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two variants of a kind of write."""

    name: str
    before: Variant
    after: Variant
    feature: str = ""
    """A feature gate of the API server that it needs."""


def builtin(name: str, version: str, plural: str, made: Json, body: Body, **more: Any) -> Variant:
    """Return a variant on objects of a built-in kind; `version` is a path such as `api/v1`."""
    return Variant(name, f"/{version}/namespaces/default/{plural}", made, body, **more)


def custom(name: str, definition: Json, made: Json, body: Body, **more: Any) -> Variant:
    """Return a variant on objects of a custom kind, in a group that no other variant has."""
    spec = definition["spec"]
    group = f"v{next(_numbers)}.{spec['group']}"
    own = deepcopy(definition)
    own["spec"]["group"] = group
    own["metadata"]["name"] = f"{spec['names']['plural']}.{group}"
    version = spec["versions"][0]["name"]
    scope = "/namespaces/default" if spec["scope"] == "Namespaced" else ""
    path = f"/apis/{group}/{version}{scope}/{spec['names']['plural']}"
    made = {**made, "apiVersion": f"{group}/{version}", "kind": spec["names"]["kind"]}
    return Variant(name, path, made, body, definition=own, **more)


def _count() -> Any:
    number = 0
    while True:
        yield number
        number += 1


_numbers = _count()
