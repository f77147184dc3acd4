"""Changes of a CRD's schema."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from bench.writes.variant import Json

__all__ = ["changed", "granular", "opaque", "without"]


def changed(definition: Json, path: str, change: Callable[[Json], None]) -> Json:
    """Return a CRD whose schema is changed at a path such as `status.allocations`."""
    result = deepcopy(definition)
    schema = result["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in filter(None, path.split(".")):
        schema = schema["properties"][name]
    change(schema)
    return result


def granular(schema: Json) -> None:
    """Give each field of an object its owner."""
    del schema["x-kubernetes-map-type"]


def opaque(schema: Json) -> None:
    """Leave the fields of an object unchecked."""
    for key in ("properties", "additionalProperties", "required", "x-kubernetes-validations"):
        schema.pop(key, None)
    schema["x-kubernetes-preserve-unknown-fields"] = True


def without(key: str) -> Callable[[Json], None]:
    """Return the change that removes a keyword from a schema and all schemas in it."""

    def remove(schema: Json) -> None:
        schema.pop(key, None)
        for each in schema.get("properties", {}).values():
            remove(each)
        for inner in ("items", "additionalProperties"):
            if isinstance(schema.get(inner), dict):
                remove(schema[inner])

    return remove
