"""The template of a job's Pods, and how it is kept."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic.config import JsonDict
from pydantic_core import CoreSchema, core_schema, from_json, to_json

from partita.constants import GROUP
from partita.models.base import Model, rule, rules
from partita.models.json_text import CUT_OFF
from partita.models.template_name import FORM
from partita.models.topology import ATOMIC_LIST, keyed_by

__all__ = ["PackedTemplate", "PodTemplate"]

_TOO_DEEP = "it is nested too deeply: write a Pod's template, which has about 15 levels"
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# Go's regular expressions, which CEL uses, name groups differently.
_FORM = re.sub(r"\?P<\w+>", "", FORM)
_OWN = "remove it, because Partita adds"
_GATE_RULE = rule(
    f"!self.startsWith('{GROUP}/')", f"is a scheduling gate of Partita: {_OWN} it to the Pod"
)
_CLAIM_RULE = rule(
    f"!self.endsWith('.{GROUP}')", f"is a claim of Partita: {_OWN} a claim for the job to the Pod"
)
_CLAIM_TEMPLATE_RULE = rule(
    f"!self.matches('^{_FORM}$')",
    f"is a template of Partita: {_OWN} a claim for the job to the Pod, and write spec.gpuMemory "
    "and spec.threadPercent",
)


def _name(longest: int, description: str, **more: Any) -> JsonDict:
    return {"type": "string", "maxLength": longest, "description": description, **more}


def _refused(longest: int, refusal: JsonDict) -> JsonDict:
    """Return the schema of a name that must not be Partita's own."""
    return _name(longest, "The name. Names of Partita are refused.", **rules(refusal))


def _named(description: str, **names: JsonDict) -> dict[str, Any]:
    """Return the schema of a list of objects with a name, for other controllers and drivers."""
    items = {**_OPEN, "required": ["name"], "properties": names}
    found = {"type": "array", "maxItems": 64, "description": description, "items": items}
    return found | ATOMIC_LIST


_CONTAINER = {
    **_OPEN,
    "description": "A container, as in a Pod.",
    "required": ["name", "image"],
    "properties": {
        "name": _name(63, "The container's name.", minLength=1),
        "image": _name(1024, "The container's image.", minLength=1),
    },
}
_TEMPLATE = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {
            **_OPEN,
            "description": "Labels and annotations of the job's Pods.",
            "properties": {
                key: {
                    "type": "object",
                    "maxProperties": 1000,
                    "additionalProperties": {"type": "string", "maxLength": longest},
                    "description": f"The Pods' {key}.",
                }
                # As Kubernetes: all annotations together have 256 KiB.
                for key, longest in (("labels", 63), ("annotations", 1 << 18))
            },
        },
        "spec": {
            **_OPEN,
            "description": "The Pod's spec. Its `restartPolicy` is always Never: "
            "write `spec.retry` instead.",
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 16,
                    **keyed_by("name"),
                    "description": "The program's containers; each of them sees the GPU.",
                    "items": _CONTAINER,
                },
                "schedulingGates": _named(
                    "Gates of other controllers, which admit the Pod before it gets a GPU.",
                    name=_refused(317, _GATE_RULE),
                ),
                "resourceClaims": _named(
                    "Claims of devices of other drivers.",
                    name=_name(63, "Name of the claim within the Pod."),
                    resourceClaimName=_refused(253, _CLAIM_RULE),
                    resourceClaimTemplateName=_refused(253, _CLAIM_TEMPLATE_RULE),
                ),
            },
        },
    },
}


class PodTemplate(Model):
    """A PodTemplateSpec. What Partita does not read is passed on as it stands."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(_TEMPLATE))

    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: dict[str, Any]

    @property
    def containers(self) -> list[dict[str, Any]]:
        """The program's containers."""
        containers: list[dict[str, Any]] = self.spec.get("containers") or []
        return containers

    @property
    def labels(self) -> dict[str, str]:
        """Labels that the user wants on the Pods."""
        return dict(self.metadata.get("labels") or {})

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations that the user wants on the Pods."""
        return dict(self.metadata.get("annotations") or {})


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PackedTemplate:
    """A PodTemplate as JSON: as objects it would be most of what thousands of jobs take."""

    text: bytes

    @classmethod
    def pack(cls, template: PodTemplate) -> Self:
        """Keep a template.

        Raises
        ------
        ValueError
            If it is nested more deeply than a Pod can be.
        """
        try:
            text = to_json(template)
            from_json(text)
        except ValueError as error:
            raise ValueError(_TOO_DEEP) from error
        if CUT_OFF.encode() in text:
            raise ValueError(_TOO_DEEP)
        return cls(text)

    def unpack(self) -> PodTemplate:
        """Return the template, which is the caller's own."""
        return PodTemplate.model_validate(from_json(self.text))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """On the wire, and in the CRD, it is a PodTemplate."""

        def packed(value: Any, read: Callable[[Any], PodTemplate]) -> PackedTemplate:
            return value if isinstance(value, PackedTemplate) else cls.pack(read(value))

        return core_schema.no_info_wrap_validator_function(
            packed,
            handler(PodTemplate),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value.unpack().dump()
            ),
        )
