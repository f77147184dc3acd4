"""Definitions common to all resources: model base, metadata and field types."""

from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from typing_extensions import override

from partita.constants import GROUP, VERSION
from partita.models.described_model import DescribedModel
from partita.models.quantities import (
    QUANTITY_LIMIT,
    format_duration,
    format_memory,
    format_time,
    parse_duration,
    parse_gpu_memory,
    parse_memory,
    parse_time,
)

__all__ = [
    "INT_OR_STRING",
    "Amount",
    "Count",
    "Duration",
    "HalfLife",
    "LabelValue",
    "ListedQuantity",
    "Model",
    "Name",
    "ObjectMeta",
    "Percent",
    "Priority",
    "Quantity",
    "Resource",
    "Shared",
    "StartTimeout",
    "Time",
    "Total",
    "Word",
    "at_least",
    "at_most",
    "rule",
    "rules",
]


def rule(expression: str, message: str, *, field: str | None = None) -> JsonDict:
    """Return a CEL validation rule. The message must contain a correction."""
    result: JsonDict = {"rule": expression, "message": message}
    return {**result, "fieldPath": field} if field else result


def rules(*validations: JsonDict) -> JsonDict:
    """Return the schema extension with CEL rules of an object or a field."""
    return {"x-kubernetes-validations": list(validations)}


def _text(validation: JsonDict) -> WithJsonSchema:
    """Return the schema of a short text for which a rule holds."""
    return WithJsonSchema({"type": "string", "maxLength": 32, **rules(validation)})


def _is_comparable(text: str) -> str:
    """Return the CEL expression for whether the API server can compare a quantity.

    The exponent has at most two digits. To compare 1e2147483647, the API server would write out all
    digits and hang.
    """
    return (
        f"{text}.matches('^[+0-9.]{{1,24}}([eE][+-]?[0-9]{{1,2}}|[numkKMGTPE]i?)?$') && "
        f"isQuantity({text})"
    )


def at_least(quantity: str, least: str) -> str:
    """Return the CEL expression for whether a quantity is not below another one.

    Both are expressions for strings. It is true if one of them is invalid, because the rule of that
    field refuses it.
    """
    comparable = f"({_is_comparable(quantity)} && {_is_comparable(least)})"
    return f"!{comparable} || quantity({quantity}).compareTo(quantity({least})) >= 0"


def _in_range(text: str) -> JsonDict:
    """Return the CEL rule on a quantity, which the expression `text` returns as a string."""
    return rule(
        f"{_is_comparable(text)} && quantity({text}).compareTo(quantity('1Mi')) >= 0 && "
        f"quantity({text}).isLessThan(quantity('{QUANTITY_LIMIT}'))",
        "must be an amount of memory from 1Mi to below 8Ei: "
        "write one with its unit, such as 512Mi or 4Gi",
    )


_MAX_SAFE_INTEGER = (1 << 53) - 1
"""A double can represent every integer up to this one (RFC 8259, section 6)."""


def _measured(digits: int) -> JsonDict:
    """Return the schema of an amount with at most this number of digits in bytes, in any unit.

    It has no CEL rule, because such amounts occur in long lists and in every write of a status.
    """
    fraction = "([.][0-9]{1,9})?"
    units = [f"[0-9]{{1,{digits}}}{fraction}"]
    for power, unit in enumerate("kMGTPE", start=1):
        left, letter = digits - 3 * power, "[kK]" if unit == "k" else unit
        if left > 0:
            units.append(f"[0-9]{{1,{left}}}{fraction}{letter}i?")
    # Tools that read numbers as doubles, such as kustomize, would change a larger number.
    limits: JsonDict = {"minimum": 0, "maximum": min(10**digits - 1, _MAX_SAFE_INTEGER)}
    return {**INT_OR_STRING, **limits, "pattern": f"^({'|'.join(units)})$", "maxLength": 32}


_IS_DURATION = r"self.matches('^([0-9]{1,7}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$')"

_TIME_PATTERN = (
    r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?"
    r"(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$"
)
"""The date-times that every client can read. Kubernetes also accepts others, such as the year 0 or
an offset of 99 hours (`IsDateTime` in k8s.io/kube-openapi/pkg/validation/strfmt/time.go)."""

INT_OR_STRING: JsonDict = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}

GPU_DIGITS = 14
"""Maximum digits of an amount of one GPU's memory: below 100 TB, 300 times the largest GPU of 2026.
"""
TOTAL_DIGITS = 18
"""Maximum digits of an amount of all GPUs of a partition (at most 10,000): below 1 EB."""

_Measured = Annotated[
    int,
    BeforeValidator(parse_memory),
    Field(ge=0),
    PlainSerializer(format_memory, return_type=str),
]
Amount = Annotated[_Measured, WithJsonSchema(_measured(GPU_DIGITS))]
"""Memory that was measured or allocated on one GPU, in bytes; serialized as a quantity."""

Total = Annotated[_Measured, WithJsonSchema(_measured(TOTAL_DIGITS))]
"""An amount of memory of several GPUs or of data, in bytes; serialized as a quantity."""

_Requested = Annotated[
    int, BeforeValidator(parse_gpu_memory), PlainSerializer(format_memory, return_type=str)
]
Quantity = Annotated[
    _Requested,
    WithJsonSchema({**INT_OR_STRING, "maxLength": 32, **rules(_in_range("string(self)"))}),
]
"""A requested amount of memory, in bytes and at least 1 MiB; serialized as a quantity."""

ListedQuantity = Annotated[_Requested, _text(_in_range("self"))]
"""A `Quantity` in a list, which is always text. The API server multiplies the cost of a rule by the
maximum lengths of the list and of the value. It assumes that an int-or-string can be as long as a
request."""


_IS_HUGE = "self.matches('[1-9][0-9]{5,6}([.][0-9]{1,3})?h')"
"""CEL: whether a duration has so many hours that `duration(self)` may be an error, since a
time.Duration of Go has at most 292 years. An operand that decides `&&` or `||` hides such an
error."""


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    _text(rule(_IS_DURATION, "must be a duration: write one such as 90s, 20m or 1h30m")),
]
"""A duration in seconds; serialized as text such as `20m`."""

StartTimeout = Annotated[
    Duration,
    _text(
        rule(
            f"{_IS_DURATION} && !{_IS_HUGE} && duration(self) >= duration('1s') && "
            "duration(self) <= duration('168h')",
            "must be a duration from 1s to 168h: write one such as 90s or 10m",
        )
    ),
]
"""Time limit for the start of a Pod, in seconds from 1 s to a week; serialized such as `10m`."""

HalfLife = Annotated[
    Duration,
    _text(
        rule(
            f"{_IS_DURATION} && ({_IS_HUGE} || duration(self) == duration('0s') || "
            "duration(self) >= duration('24h'))",
            "must be 24h or more, because use is recorded by days: write one such as 168h, or 0s",
        )
    ),
]
"""A half-life of what is recorded by days, in seconds; serialized such as `168h`."""

Time = Annotated[
    datetime,
    BeforeValidator(parse_time),
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _TIME_PATTERN}),
]


Shared = Annotated[str, AfterValidator(intern)]
"""A text that occurs in many objects or often in one object. It is kept in memory only once."""


def at_most(**limits: int) -> JsonDict:
    """Return the schema extension for a bound that only the API server enforces.

    So an object that was stored before the bound existed can still be read.
    """
    return {**limits}


Count = Annotated[int, Field(json_schema_extra=at_most(minimum=0, maximum=_MAX_SAFE_INTEGER))]
"""A count."""
Ordinal = Annotated[int, Field(ge=1, json_schema_extra=at_most(maximum=_MAX_SAFE_INTEGER))]
"""A number from 1."""
Integer = Annotated[int, Field(json_schema_extra=at_most(minimum=-(2**31), maximum=2**31 - 1))]
Whole = Annotated[int, Field(ge=0, json_schema_extra=at_most(maximum=2**31 - 1))]
"""An integer that Kubernetes keeps in 32 bits, and one of these from 0, such as a Pod's
`activeDeadlineSeconds`."""

Name = Annotated[Shared, Field(min_length=1, max_length=63)]
Percent = Annotated[int, Field(ge=1, le=100)]
Priority = Annotated[int, Field(ge=-1000000, le=1000000)]

LabelValue = Annotated[str, Field(json_schema_extra=at_most(maxLength=63))]
"""The value of a label:
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set."""

Word = Annotated[Shared, Field(json_schema_extra=at_most(maxLength=253))]
"""A name of any kind. The longest names in Kubernetes have 253 characters."""


_GIVEN: set[str] = set()

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""See https://kubernetes.io/docs/reference/labels-annotations-taints/."""


class Model(DescribedModel):
    """Base of all models: field names are serialized in camelCase, docstrings are descriptions.

    A model's validator is built when it is first used: a command uses few of them. Defaults are
    made by `model_construct`, which needs no validator.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        defer_build=True,
    )

    @override
    def model_post_init(self, _: object) -> None:
        """Discard the set of given fields: it is not used and took half of a job's memory."""
        object.__setattr__(self, "__pydantic_fields_set__", _GIVEN)

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, also without the set of given fields."""
        copied = super().model_copy(update=update, deep=deep)
        copied.model_post_init(None)
        return copied

    def dump(self) -> dict[str, Any]:
        """Return the object in the API server's form: camelCase, without unset fields."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")

    def dump_given(self) -> dict[str, Any]:
        """Return the object without fields that have their default value."""
        return self.model_dump(by_alias=True, exclude_defaults=True, mode="json")

    @classmethod
    def unset(cls) -> dict[str, Any]:
        """Return the merge patch that removes every field."""
        fields = cls.model_fields.items()
        return {str(described.serialization_alias or name): None for name, described in fields}


def _without_kubectl_s(annotations: dict[str, str]) -> dict[str, str]:
    """Remove kubectl's copy of the object, which is as large as the rest of the object."""
    return {key: value for key, value in annotations.items() if key != _LAST_APPLIED}


class ObjectMeta(Model):
    """The part of the metadata that Partita reads."""

    name: Shared = ""
    namespace: Shared = ""
    uid: Shared = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    annotations: Annotated[dict[str, str], AfterValidator(_without_kubectl_s)] = Field(
        default_factory=dict
    )
    finalizers: tuple[str, ...] = ()


class Resource(Model):
    """Base of the four custom resources."""

    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @classmethod
    def parse(cls, body: Any) -> Self:
        """Parse an object of the API server.

        Raises
        ------
        pydantic.ValidationError
            If it does not have the resource's form.
        """
        return cls.model_validate(body)

    @property
    def key(self) -> str:
        """`namespace/name`, or only the name for a cluster-scoped object."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def namespace(self) -> str:
        """Its namespace; empty for a cluster-scoped object."""
        return self.metadata.namespace

    @classmethod
    def api_version(cls) -> str:
        """Return the group and version, which are the same for all resources."""
        return f"{GROUP}/{VERSION}"

    def owner_reference(self) -> dict[str, Any]:
        """Return the reference by which an object is deleted with this one, its controller."""
        return {
            "apiVersion": self.api_version(),
            "kind": type(self).__name__,
            "name": self.metadata.name,
            "uid": self.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
