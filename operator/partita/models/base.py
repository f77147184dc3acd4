"""What all resources share: the model base, metadata, conditions and types of fields."""

from collections.abc import Sequence
from datetime import datetime
from sys import intern
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
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
from partita.models.quantities import (
    QUANTITY_LIMIT,
    format_duration,
    format_memory,
    format_time,
    parse_duration,
    parse_memory,
    parse_time,
)

__all__ = [
    "READABLE",
    "Amount",
    "Condition",
    "Conditions",
    "Count",
    "Duration",
    "LabelValue",
    "ListedQuantity",
    "Model",
    "ObjectMeta",
    "OwnerReference",
    "Quantity",
    "Resource",
    "Shared",
    "StartTimeout",
    "Time",
    "Total",
    "Word",
    "at_most",
    "clipped",
    "keyed_by",
    "rule",
    "rules",
    "set_condition",
]


def _in_range(text: str) -> JsonDict:
    """Return the CEL rule on a quantity that is this text.

    The exponent has two digits at most: to compare 1e2147483647 the API server would write out all
    these digits, and hang.
    """
    return {
        "rule": f"{text}.matches('^[+0-9.]{{1,24}}([eE][+-]?[0-9]{{1,2}}|[numkKMGTPE]i?)?$') && "
        f"isQuantity({text}) && quantity({text}).isGreaterThan(quantity('0')) && "
        f"quantity({text}).isLessThan(quantity('{QUANTITY_LIMIT}'))",
        "message": "must be an amount of memory above zero and below 8Ei: "
        "write one such as 512Mi or 4Gi",
    }


_MAX_SAFE_INTEGER = (1 << 53) - 1
"""Up to it a double holds every integer (RFC 8259, section 6)."""


def _measured(digits: int) -> JsonDict:
    """Return the schema of an amount of so many digits at most, whatever its unit.

    Without a rule in CEL: such amounts stand in long lists and in every write of a status.
    """
    fraction = "([.][0-9]{1,9})?"
    units = [f"[0-9]{{1,{digits}}}{fraction}"]
    for power, unit in enumerate("kMGTPE", start=1):
        left, letter = digits - 3 * power, "[kK]" if unit == "k" else unit
        if left > 0:
            units.append(f"[0-9]{{1,{left}}}{fraction}{letter}i?")
    # A larger number would not survive tools that read numbers as doubles, such as kustomize.
    limits: JsonDict = {"minimum": 0, "maximum": min(10**digits - 1, _MAX_SAFE_INTEGER)}
    return {**_INT_OR_STRING, **limits, "pattern": f"^({'|'.join(units)})$", "maxLength": 32}


_DURATION_RULE = {
    "rule": r"self.matches('^([0-9]{1,7}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$')",
    "message": "must be a duration: write one such as 90s, 20m or 1h30m",
}

_TIME_PATTERN = (
    r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?"
    r"(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$"
)
"""Of what Kubernetes takes for a date-time, what every client can read: neither the year 0, nor an
offset of 99 hours (`IsDateTime` in k8s.io/kube-openapi/pkg/validation/strfmt/time.go)."""

_INT_OR_STRING: JsonDict = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}

GPU_DIGITS = 14
"""Of an amount of memory of one GPU: below 100 TB, which is 300 times the largest GPU of 2026."""
TOTAL_DIGITS = 18
"""Of an amount of all GPUs of a partition, which are 10,000 at most: below 1 EB."""

Amount = Annotated[
    int,
    BeforeValidator(parse_memory),
    Field(ge=0),
    PlainSerializer(format_memory, return_type=str),
    WithJsonSchema(_measured(GPU_DIGITS)),
]
"""Memory that was measured or allocated on one GPU, in bytes; on the wire a quantity."""

Total = Annotated[
    int,
    BeforeValidator(parse_memory),
    Field(ge=0),
    PlainSerializer(format_memory, return_type=str),
    WithJsonSchema(_measured(TOTAL_DIGITS)),
]
"""An amount of memory, of many GPUs or of data, in bytes; on the wire a quantity."""

Quantity = Annotated[
    int,
    BeforeValidator(parse_memory),
    Field(gt=0),
    PlainSerializer(format_memory, return_type=str),
    WithJsonSchema(
        {
            **_INT_OR_STRING,
            "maxLength": 32,
            "x-kubernetes-validations": [_in_range("string(self)")],
        }
    ),
]
"""An amount of memory that is asked for, in bytes and above zero; on the wire a quantity."""

ListedQuantity = Annotated[
    int,
    BeforeValidator(parse_memory),
    Field(gt=0),
    PlainSerializer(format_memory, return_type=str),
    WithJsonSchema(
        {"type": "string", "maxLength": 32, "x-kubernetes-validations": [_in_range("self")]}
    ),
]
"""A `Quantity` in a list: always a text. The API server multiplies the cost of a rule by the
longest list and the longest value, and takes an int-or-string to be as long as a request."""

Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "maxLength": 32, "x-kubernetes-validations": [_DURATION_RULE]}
    ),
]
"""A length of time, in seconds; on the wire such as `20m`."""

StartTimeout = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": f"{_DURATION_RULE['rule']} && "
                    "duration(self) >= duration('1s') && duration(self) <= duration('168h')",
                    "message": "must be a duration from 1s to 168h: write one such as 90s or 10m",
                }
            ],
        }
    ),
]
"""How long a Pod may take to start, in seconds from 1 s to a week; on the wire such as `10m`."""

Time = Annotated[
    datetime,
    BeforeValidator(parse_time),
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _TIME_PATTERN}),
]


Shared = Annotated[str, AfterValidator(intern)]
"""A text that occurs in many objects, or often in one: kept in memory once."""


def at_most(**limits: int) -> JsonDict:
    """Return the schema extension of a bound that the API server alone enforces.

    An object that is older than the bound can still be read.
    """
    return {**limits}


Count = Annotated[int, Field(json_schema_extra=at_most(minimum=0, maximum=2**53 - 1))]
"""A number of things; the bound is the last whole number that every reader of JSON keeps."""

LabelValue = Annotated[str, Field(json_schema_extra=at_most(maxLength=63))]
"""The value of a label:
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set."""

Word = Annotated[Shared, Field(json_schema_extra=at_most(maxLength=253))]
"""A name, of whatever kind; Kubernetes' longest have 253 characters."""


def rule(expression: str, message: str, *, field: str | None = None) -> JsonDict:
    """One CEL validation rule; the message says what to write instead."""
    result: JsonDict = {"rule": expression, "message": message}
    return {**result, "fieldPath": field} if field else result


def rules(*validations: JsonDict) -> JsonDict:
    """Return the schema extension that holds an object's or a field's CEL rules."""
    return {"x-kubernetes-validations": list(validations)}


def keyed_by(key: str) -> JsonDict:
    """Return the schema extension of a list whose items server-side apply merges by a key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


ATOMIC: JsonDict = {"x-kubernetes-map-type": "atomic"}
"""Schema extension of an object with one writer. The API server then keeps no owner of each of its
fields, which is the most expensive part of a write."""


_GIVEN: set[str] = set()

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""https://kubernetes.io/docs/reference/labels-annotations-taints/."""


class Model(BaseModel):
    """Base of all models: camelCase on the wire, docstrings as descriptions."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        extra="ignore",
        frozen=True,
    )

    @override
    def model_post_init(self, _: object) -> None:
        """Drop the set of given fields: it is unused, and was half of a job's memory."""
        object.__setattr__(self, "__pydantic_fields_set__", _GIVEN)

    def dump(self) -> dict[str, Any]:
        """Return it as for the API server: camelCase, without unset fields."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class OwnerReference(Model):
    """The owner of the object, with which it is deleted."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


def _without_kubectl_s(annotations: dict[str, str]) -> dict[str, str]:
    """Remove kubectl's copy of the object, which is as long as the rest."""
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
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: Annotated[dict[str, str], AfterValidator(_without_kubectl_s)] = Field(
        default_factory=dict
    )
    owner_references: tuple[OwnerReference, ...] = ()
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
        """`namespace/name`, or the name alone for a cluster-scoped object."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @classmethod
    def api_version(cls) -> str:
        """Group and version of all of them."""
        return f"{GROUP}/{VERSION}"


_LONGEST_MESSAGE = 32768
"""Of a condition, as in `metav1.Condition`."""


def clipped(message: str) -> str:
    """Cut a message, such as one that names thousands of GPUs, to what a condition may hold."""
    end = "..."
    fits = len(message) <= _LONGEST_MESSAGE
    return message if fits else message[: _LONGEST_MESSAGE - len(end)] + end


class Condition(Model):
    """One aspect of an object's state, as in Kubernetes' own conditions."""

    type: Annotated[Shared, Field(max_length=316)]
    """The aspect, such as `Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[Shared, Field(max_length=1024)] = ""
    """Why it holds or not, as one word for programs."""
    message: Annotated[Shared, Field(max_length=_LONGEST_MESSAGE)] = ""
    """Why it holds or not and what to do, as a sentence."""
    last_transition_time: Time | None = None
    """When `status` last changed."""
    observed_generation: Count | None = None
    """The `metadata.generation` to which it belongs."""


READABLE = "Readable"
"""Type of the condition that only an object has that the operator cannot parse."""

Conditions = Annotated[
    tuple[Condition, ...], Field(json_schema_extra={**keyed_by("type"), **at_most(maxItems=100)})
]


def set_condition(
    conditions: Sequence[Condition], new: Condition, now: datetime
) -> tuple[Condition, ...]:
    """Replace the condition of its type; its time changes with its status only."""
    old = next((c for c in conditions if c.type == new.type), None)
    since = (
        old.last_transition_time if old is not None and old.status == new.status else None
    ) or now
    new = new.model_copy(update={"last_transition_time": since})
    if old is None:
        return (*conditions, new)
    return tuple(new if c.type == new.type else c for c in conditions)
