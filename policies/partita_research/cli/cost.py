"""`partita cost`: what the same jobs cost under each policy."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.options import json_option
from partita_research.cli.policy_options import Parameter, chosen_policies, policy_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from partita_policies.types import Policy
    from partita_research.cli.workload import Batch
    from partita_research.cost import Bill, Prices

__all__ = ["command"]


@click.command("cost", short_help="Price the same jobs under each policy.")
@click.argument("workload", required=False)
@policy_options
@click.option(
    "--prices",
    "price_list",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Prices of instances (YAML).  [default: those that the DqnGPU study printed]",
)
@click.option(
    "--study",
    is_flag=True,
    help="First the study's own cost table, from its published prices and times; then, without "
    "WORKLOAD, ours for its workload `random`.",
)
@json_option
def command(
    *,
    workload: str | None,
    policies: tuple[str, ...],
    parameters: tuple[Parameter, ...],
    price_list: Path | None,
    study: bool,
    output: Path | None,
) -> None:
    """Simulate WORKLOAD under each policy, and price it.

    WORKLOAD is a workload file (YAML) as `partita simulate` takes it, or one of the study's
    workloads by name (gpu-heavy, gpu-light, memory-heavy, memory-light, random).

    A list of prices names instances, and may say how sharing is reckoned: who shares pays a part of
    the shared instance, who does not has one for himself.

    \b
      instances:
        - {name: small, gpus: 1, vcpus: 4, memory: 16, dollars: 0.5, source: our contract}
        - {name: large, gpus: 1, vcpus: 16, memory: 64, dollars: 1.2, source: our contract}
      sharing:
        - {name: quarters, alone: small, shared: large, sharers: 4}

    \b
    Examples:
      partita cost --study
      partita cost random --policy sjf --policy tetris
      partita cost my-jobs.yaml --prices our-prices.yaml --json costs.json
    """  # noqa: D301
    from partita_policies.types import Sharing
    from partita_research.cli.cost_report import as_json, report, study_json, study_report
    from partita_research.cli.workload import load
    from partita_research.cost import InputError, published_prices, read_prices

    if workload is None and not study:
        raise click.UsageError("name a WORKLOAD, or write --study")
    if workload is not None and workload.lower().endswith(".csv"):
        raise click.UsageError("a trace says nothing of GPUs: name a workload file (YAML)")
    try:
        prices = published_prices() if price_list is None else read_prices(price_list)
    except InputError as error:
        raise terminal.UserError(str(error)) from error
    wanted = chosen_policies(policies, parameters)
    batch = load(
        workload or "random",
        place=None,
        sharing=Sharing.MPS,
        speeds={},
        jobs=None,
        seed=0,
        noise=0.0,
    )
    bills = _bills(batch, wanted, prices)
    if output is not None:
        document: dict[str, Any] = as_json(batch, bills, prices)
        if study:
            document["study"] = study_json()
        terminal.write_json(document, output)
    if output is None or str(output) != "-":
        if study:
            terminal.display(study_report())
            terminal.data("")
        terminal.display(report(batch, bills, prices))


def _bills(batch: "Batch", policies: "Mapping[str, Policy]", prices: "Prices") -> "list[Bill]":
    """Simulate under each policy, and price it; the shortest makespan first."""
    from partita.cli.progress import progress
    from partita_research.cost import bill
    from partita_research.simulator import simulate

    bills: list[Bill] = []
    with progress() as tell:
        for index, (name, policy) in enumerate(policies.items()):
            tell(name, index / len(policies))
            try:
                result = simulate(
                    batch.tasks,
                    batch.place.gpus,
                    policy,
                    sharing=batch.sharing,
                    speeds=batch.speeds,
                    nodes=batch.place.nodes,
                )
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                raise terminal.UserError(
                    f"policy {name} failed ({said}): leave it out with --policy"
                ) from error
            bills.append(bill(name, result, prices))
    return sorted(bills, key=lambda one: (not one.whole, one.seconds, one.policy))
