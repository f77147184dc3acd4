"""Registry of policies in the entry-point group `partita.policies`.

Only the module of the requested policy is imported. An import failure raises an error that names
the policy and does not affect other policies. A distribution installed at run time is found after
`sys.path` has changed or the process has restarted.
"""

import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from operator import attrgetter
from types import GenericAlias, MappingProxyType
from typing import cast

from pydantic import JsonValue, ValidationError

from partita_policies.errors import (
    PolicyImportError,
    PolicyParametersError,
    PolicyStartError,
    UnknownPolicyError,
)
from partita_policies.types import Parameters, Policy

__all__ = ["ENTRY_POINT_GROUP", "PolicySource", "available", "create", "load", "parse_parameters"]

ENTRY_POINT_GROUP = "partita.policies"
"""Group in which a distribution offers its policies, as `name = "module:Class"`."""


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Origin of a policy, which need not be importable."""

    name: str
    target: str
    """`module:Class`."""
    distribution: str
    version: str
    rivals: tuple[str, ...] = ()
    """Other distributions that offer a policy of the same name: an error on use."""


def available() -> Mapping[str, PolicySource]:
    """Return the installed policies by name, without importing any."""
    found: dict[str, PolicySource] = {}
    for source in sorted(map(_source, _entry_points()), key=attrgetter("distribution")):
        known = found.setdefault(source.name, source)
        if known is not source:
            found[source.name] = replace(known, rivals=(*known.rivals, source.distribution))
    return MappingProxyType(found)


def load(name: str) -> type[Policy]:
    """Import the class of a policy.

    Raises
    ------
    UnknownPolicyError
        No policy has that name.
    PolicyImportError
        The policy cannot be imported, is not a policy, or is offered by two distributions.
    """
    source = available().get(name)
    if source is None:
        raise UnknownPolicyError(name, available())
    if source.rivals:
        rivals = ", ".join(source.rivals)
        cause = f"also offered by distribution {rivals}; uninstall one of them"
        raise PolicyImportError(name, source.target, source.distribution, cause)
    try:
        # The import of a plug-in may raise any error, and SystemExit must not end the process.
        loaded: object = EntryPoint(name, source.target, ENTRY_POINT_GROUP).load()
    except (Exception, SystemExit) as error:
        cause = f"cannot be imported: {type(error).__name__}: {error}"
        raise PolicyImportError(name, source.target, source.distribution, cause) from error
    return _as_policy(loaded, source)


def parse_parameters(
    name: str, policy: type[Policy], parameters: Mapping[str, JsonValue]
) -> Parameters:
    """Validate the parameters of a policy with the policy's model.

    Raises
    ------
    PolicyParametersError
        Parameters are unknown, missing or invalid; the error names each.
    """
    model = policy.parameters
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        problems = [
            (".".join(str(part) for part in problem["loc"]) or "parameters", problem["msg"])
            for problem in error.errors(include_url=False)
        ]
        raise PolicyParametersError(name, problems, _allowed(model)) from error


def create(name: str, parameters: Mapping[str, JsonValue] | None = None) -> Policy:
    """Build a policy from its name and its parameters, as in YAML.

    Raises
    ------
    PolicyError
        One of the four subclasses in `partita_policies.errors`; the message describes the remedy.
    """
    policy = load(name)
    checked = parse_parameters(name, policy, parameters or {})
    try:
        return policy(checked)
    except Exception as error:
        raise PolicyStartError(name, f"{type(error).__name__}: {error}") from error


def _entry_points() -> Iterable[EntryPoint]:
    return _entry_points_on(tuple(sys.path))


@cache
def _entry_points_on(_: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points, cached because reading all distributions takes tens of ms."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _source(entry: EntryPoint) -> PolicySource:
    distribution, version = _name_and_version(entry.dist) if entry.dist else ("?", "?")
    return PolicySource(entry.name, entry.value, distribution, version)


@cache
def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return name and version, cached because each is read from a file with every access."""
    return distribution.name, distribution.version


def _as_policy(loaded: object, source: PolicySource) -> type[Policy]:
    if not inspect.isclass(loaded):
        cause = f"is {type(loaded).__name__}, not a class"
    elif not callable(getattr(loaded, "decide", None)):
        cause = "has no method decide(snapshot)"
    elif not _is_parameters(getattr(loaded, "parameters", None)):
        cause = "has no class attribute parameters, a subclass of partita_policies.Parameters"
    else:
        return cast("type[Policy]", loaded)
    raise PolicyImportError(source.name, source.target, source.distribution, cause)


def _is_parameters(model: object) -> bool:
    return inspect.isclass(model) and issubclass(model, Parameters)


def _allowed(model: type[Parameters]) -> list[str]:
    return [
        f"{name}: {_type_name(field.annotation)}"
        + (
            ""
            if field.is_required()
            else f" = {field.get_default(call_default_factory=True, validated_data={})!r}"
        )
        for name, field in model.model_fields.items()
    ]


def _type_name(annotation: object) -> str:
    if inspect.isclass(annotation) and not isinstance(annotation, GenericAlias):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
