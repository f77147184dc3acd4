"""Options to choose policies and their parameters, for commands that compare policies."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from partita.cli import terminal
from partita.cli.options import ReadValue

if TYPE_CHECKING:
    from partita_policies.types import Policy

__all__ = ["OBJECTIVES", "POLICY", "Parameter", "chosen_policies", "policy_options"]

F = TypeVar("F", bound=Callable[..., Any])
OBJECTIVES = click.Choice(["Makespan", "Completion", "Packing", "Balanced"])
"""The members of `partita_policies.Objective`, which is not imported for a command's help."""
Parameter = tuple[str | None, str, Any]
"""Policy (None for all), key and value."""


def _policy(name: str) -> str:
    from partita_policies.errors import PolicyError
    from partita_policies.registry import load

    try:
        load(name)
    except PolicyError as error:
        raise ValueError(str(error)) from error
    return name


POLICY = ReadValue("name", _policy)
"""The name of an installed policy."""


def _parameter(written: str) -> Parameter:
    """Read `key=value` or `policy:key=value`; the value is JSON or plain text."""
    left, equals, text = written.partition("=")
    policy, colon, key = left.rpartition(":")
    if not (equals and key) or (colon and not policy):
        raise ValueError(f"{written!r}: write KEY=VALUE, or POLICY:KEY=VALUE for one of several")
    try:
        return policy or None, key, json.loads(text)
    except ValueError:
        return policy or None, key, text


def policy_options(function: F) -> F:
    """Add the repeatable options `--policy` and `--parameter`."""
    function = click.option(
        "--parameter",
        "parameters",
        multiple=True,
        type=ReadValue("parameter", _parameter),
        metavar="KEY=VALUE",
        help="A parameter of the policy, as under `policy.parameters` in a GPUPartition; "
        "POLICY:KEY=VALUE for one of several. May be repeated.",
    )(function)
    return click.option(
        "--policy",
        "-p",
        "policies",
        multiple=True,
        type=POLICY,
        metavar="NAME",
        help="A policy to try; may be repeated.  [default: all that are installed]",
    )(function)


def chosen_policies(names: Sequence[str], parameters: Sequence[Parameter]) -> "dict[str, Policy]":
    """Create the named policies, or all installed policies.

    Without names, a policy that cannot be created is reported and omitted.

    Raises
    ------
    click.UsageError
        A parameter is invalid, or does not belong to a chosen policy.
    UserError
        A named policy cannot be created.
    """
    from partita_policies.errors import PolicyError, PolicyParametersError
    from partita_policies.registry import available, create

    names = tuple(dict.fromkeys(names))
    wanted = names or tuple(sorted(available()))
    values = _values(wanted, parameters)
    if not names and any(policy is None for policy, _, _ in parameters):
        raise click.UsageError("--parameter KEY=VALUE goes with --policy: name the policy, too")
    built: dict[str, Policy] = {}
    for name in wanted:
        try:
            built[name] = create(name, values[name])
        except PolicyParametersError as error:
            raise click.UsageError(str(error)) from error
        except PolicyError as error:
            if names:
                raise terminal.UserError(str(error)) from error
            terminal.warn(f"{error}; it is left out")
    return built


def _values(
    names: Sequence[str], parameters: Sequence[Parameter]
) -> Mapping[str, Mapping[str, Any]]:
    values: dict[str, dict[str, Any]] = {name: {} for name in names}
    for policy, key, value in parameters:
        if policy is not None and policy not in values:
            raise click.UsageError(
                f"--parameter {policy}:{key}: {policy} is not among the policies: "
                f"{', '.join(names)}"
            )
        for name in values if policy is None else (policy,):
            values[name][key] = value
    return values
