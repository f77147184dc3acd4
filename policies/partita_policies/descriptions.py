"""Descriptions of installed policies, from their docstrings and parameter models."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from partita_policies.errors import PolicyError, UnknownPolicyError
from partita_policies.registry import available, load

__all__ = ["ParameterDescription", "Policies", "PolicyDescription", "describe", "describe_all"]


@dataclass(frozen=True, slots=True)
class ParameterDescription:
    """One parameter of a policy."""

    name: str
    type: str
    """As in JSON, with its bounds or choices."""
    default: Any
    """As in JSON; None when it is required or when null is the default."""
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class PolicyDescription:
    """One installed policy."""

    name: str
    distribution: str
    version: str
    target: str
    """`module:Class`."""
    summary: str = ""
    """First line of the docstring of its class."""
    details: str = ""
    """The rest of that docstring."""
    parameters: tuple[ParameterDescription, ...] = ()
    error: str = ""
    """Why the policy cannot be used; empty if it can."""


Policies = list[PolicyDescription]


def describe_all() -> Policies:
    """Describe all installed policies, in the order of their names."""
    return [describe(name) for name in sorted(available())]


def describe(name: str) -> PolicyDescription:
    """Describe a policy; one that cannot be imported is described by its error.

    Raises
    ------
    UnknownPolicyError
        No distribution offers a policy of that name.
    """
    source = available().get(name)
    if source is None:
        raise UnknownPolicyError(name, available())
    where = (source.name, source.distribution, source.version, source.target)
    try:
        policy = load(name)
        schema = policy.parameters.model_json_schema()
    except PolicyError as error:
        return PolicyDescription(*where, error=str(error))
    summary, _, details = (inspect.getdoc(policy) or "").partition("\n")
    return PolicyDescription(*where, summary, details.strip(), tuple(_parameters(schema, schema)))


def _parameters(
    model: Mapping[str, Any], schema: Mapping[str, Any], prefix: str = ""
) -> Iterator[ParameterDescription]:
    """Yield the parameters of a model; a list of objects is followed by the objects' fields."""
    required = model.get("required", ())
    for name, field in model.get("properties", {}).items():
        yield ParameterDescription(
            prefix + name,
            _type(field),
            field.get("default"),
            name in required,
            field.get("description", ""),
        )
        reference = field.get("items", {}).get("$ref", "")
        if reference:
            items = schema["$defs"][reference.rpartition("/")[2]]
            yield from _parameters(items, schema, f"{prefix}{name}[].")


def _type(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(choice) for choice in field["anyOf"])
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    bounds = [
        f"{words} {field[key]}"
        for key, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        )
        if key in field
    ]
    kind = str(field.get("format") or field.get("type", "object"))
    return ", ".join([kind, *bounds])
