"""What a CRD says about its objects, without a server: validation, defaulting and pruning.

It does not have: `x-kubernetes-embedded-resource`, string formats but ``date-time``, limits on
the cost of CEL rules, and types of the values in rules: that a field a rule names exists is
checked, not that it fits what is done with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from partita.embedded.compiler import SchemaError, compile_structural
from partita.embedded.errors import FieldError, Path
from partita.embedded.validation import validate

__all__ = ["CRDValidator", "FieldError", "SchemaError", "with_type_meta"]

_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
# ObjectMeta as far as validation and field ownership need it (apimachinery, meta/v1/types.go).
META = {
    "type": "object",
    "properties": {
        **{k: {"type": "string"} for k in ("name", "namespace", "generateName", "uid",
                                           "resourceVersion", "selfLink")},
        **{k: {"type": "integer"} for k in ("generation", "deletionGracePeriodSeconds")},
        **{k: {"type": "string", "format": "date-time", "nullable": True}
           for k in ("creationTimestamp", "deletionTimestamp")},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": {"type": "array", "items": {"type": "string"},
                       "x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **{k: {"type": "string"} for k in ("apiVersion", "kind", "name", "uid")},
                    **{k: {"type": "boolean"} for k in ("controller", "blockOwnerDeletion")},
                },
                "x-kubernetes-map-type": "atomic",
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
        },
        "managedFields": {"type": "array", "items": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    },
}  # fmt: skip


def with_type_meta(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema with the fields every object has."""
    fixed = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": META}
    return {**raw, "properties": {**raw.get("properties", {}), **fixed}}


class CRDValidator:
    """What one version of a CRD says about its objects.

    Attributes
    ----------
    schema
        The compiled schema, with the fields every object has.

    Raises
    ------
    SchemaError
        The schema cannot be compiled.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.schema = compile_structural(with_type_meta(raw))

    @classmethod
    def from_crd(cls, crd: Mapping[str, Any], version: str = "v1alpha1") -> Self:
        """Compile the schema of one version of a CustomResourceDefinition.

        Raises
        ------
        SchemaError
            The schema cannot be compiled.
        KeyError
            The CRD has no such version, or it has no schema.
        """
        versions = {entry["name"]: entry for entry in crd["spec"]["versions"]}
        return cls(versions[version]["schema"]["openAPIV3Schema"])

    def validate(
        self, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None
    ) -> list[FieldError]:
        """Return every violation of the schema and of its rules.

        Parameters
        ----------
        obj
            The object, pruned and with defaults.
        old
            The object it replaces, for rules that read `oldSelf`.
        """
        return validate(self.schema, obj, ... if old is None else old)

    def default(self, obj: dict[str, Any]) -> None:
        """Fill in the schema's defaults."""
        self.schema.default(obj)

    def prune(self, obj: dict[str, Any]) -> list[Path]:
        """Remove unknown fields and return their paths."""
        return self.schema.prune(obj)
