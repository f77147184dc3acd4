"""`partita policies`: the installed policies and their parameters."""

import json
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import output_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from partita_policies.descriptions import ParameterDescription, PolicyDescription

__all__ = ["command"]


@click.command("policies", short_help="List the installed policies and their parameters.")
@click.argument("name", required=False)
@output_option("partita_policies.descriptions:Policies")
def command(*, name: str | None, output: str) -> None:
    """List the installed policies, or show the one called NAME with its parameters.

    A GPUPartition selects a policy with `spec.policy.name` and sets its parameters with
    `spec.policy.parameters`. A policy that is installed but cannot be imported is listed with its
    error.

    \b
    Examples:
      partita policies
      partita policies sjf
      partita policies -o json | jq '.[].name'
    """  # noqa: D301
    from partita_policies.descriptions import describe, describe_all
    from partita_policies.errors import UnknownPolicyError

    if name is None:
        policies = describe_all()
        if output == "table":
            terminal.display(_list(policies))
        else:
            terminal.dump(policies, output)
        return
    try:
        policy = describe(name)
    except UnknownPolicyError as error:
        raise terminal.UserError(str(error)) from error
    if output != "table":
        terminal.dump([policy], output)
    elif not policy.error:
        terminal.display(_details(policy))
    if policy.error:
        raise terminal.UserError(policy.error)


def _list(policies: "list[PolicyDescription]") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Policy", style="bold", no_wrap=True)
    table.add_column("Description")
    table.add_column("Parameters and defaults")
    for policy in policies:
        table.add_row(
            policy.name,
            Text(f"cannot be used: {policy.error}", "red") if policy.error else policy.summary,
            "\n".join(
                f"{one.name}: {_default(one)}" for one in policy.parameters if "." not in one.name
            ),
        )
    return table


def _details(policy: "PolicyDescription") -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = f"{policy.name}: {policy.summary}"
    source = f"{policy.target}, from {policy.distribution} {policy.version}"
    parts: list[RenderableType] = [Text(head, "bold"), Text(source, "dim")]
    if policy.details:
        parts += [Text(), Text(policy.details)]
    if not policy.parameters:
        return Group(*parts, Text(), Text("It has no parameters."))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("Parameter", "Type", "Default", "Description"):
        table.add_column(heading, no_wrap=heading == "Parameter")
    for one in policy.parameters:
        table.add_row(one.name, one.type, _default(one), one.description)
    return Group(*parts, Text(), table)


def _default(parameter: "ParameterDescription") -> str:
    """Format a default value as in YAML."""
    return "required" if parameter.required else json.dumps(parameter.default)
