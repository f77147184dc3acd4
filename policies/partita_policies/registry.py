"""Finds policies by the entry-point group `partita.policies`.

Only the module of the policy asked for is imported; one that cannot be imported is an error
that names it and leaves the others alone. A distribution that is installed meanwhile is found once
`sys.path` has changed, or the process starts anew.
"""

import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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
    """Where a policy comes from; it need not be importable."""

    name: str
    target: str
    """`module:Class`."""
    distribution: str
    version: str
    rivals: tuple[str, ...] = ()
    """Other distributions that offer a policy of the same name: an error on use."""


def available() -> Mapping[str, PolicySource]:
    """Return the policies that are installed, by name, without importing any."""
    found: dict[str, PolicySource] = {}
    for entry in _in_order(_entry_points()):
        source, known = _source(entry), found.get(entry.name)
        if known is None:
            found[entry.name] = source
        else:
            rivals = (*known.rivals, source.distribution)
            found[entry.name] = PolicySource(
                known.name, known.target, known.distribution, known.version, rivals
            )
    return MappingProxyType(found)


def load(name: str) -> type[Policy]:
    """Import the class of a policy.

    Raises
    ------
    UnknownPolicyError
        There is none of that name.
    PolicyImportError
        It cannot be imported, is not a policy, or two distributions offer it.
    """
    entries = _in_order(entry for entry in _entry_points() if entry.name == name)
    if not entries:
        raise UnknownPolicyError(name, available())
    source = _source(entries[0])
    if len(entries) > 1:
        rivals = ", ".join(_source(entry).distribution for entry in entries[1:])
        cause = f"also offered by distribution {rivals}; uninstall one of them"
        raise PolicyImportError(name, source.target, source.distribution, cause)
    try:
        # A plug-in may fail to import in any way, and must not end the process in this one.
        loaded: object = entries[0].load()
    except (Exception, SystemExit) as error:
        cause = f"cannot be imported: {type(error).__name__}: {error}"
        raise PolicyImportError(name, source.target, source.distribution, cause) from error
    return _as_policy(loaded, source)


def parse_parameters(
    name: str, policy: type[Policy], parameters: Mapping[str, JsonValue]
) -> Parameters:
    """Check the parameters of a policy against its own model.

    Raises
    ------
    PolicyParametersError
        Some are unknown, missing or of a wrong value; it names each.
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
    """Build a policy from its name and its parameters as they stand in YAML.

    Raises
    ------
    PolicyError
        One of the four of `partita_policies.errors`; the message says what to change.
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
    """Look once at what is installed: to read all distributions takes tens of milliseconds."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _in_order(entries: Iterable[EntryPoint]) -> list[EntryPoint]:
    """Sort by name and distribution, whose name is read from files: of few, best."""
    return sorted(entries, key=lambda entry: (entry.name, _source(entry).distribution))


def _source(entry: EntryPoint) -> PolicySource:
    distribution, version = (entry.dist.name, entry.dist.version) if entry.dist else ("?", "?")
    return PolicySource(entry.name, entry.value, distribution, version)


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
