"""Explains what to set in frameworks for jobs and Pods that are not applied yet."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.cluster_state import list_visible, state_of
from partita.cli.connection import open_cluster
from partita.cli.options import Cluster
from partita.cli.terminal import UserError
from partita.console.framework_budgets import FrameworkBudget, planned_budgets
from partita.kube.client import PARTITIONS, SERVERS
from partita.scheduling.request import Request
from partita.store.state import State

if TYPE_CHECKING:
    from partita.validation.files import Finding

__all__ = ["Planned", "explain_file", "planned", "requests_in"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A job or Pod in a file."""

    kind: str
    namespace: str
    name: str
    partition: str
    frameworks: tuple[FrameworkBudget, ...]
    """What to set, by the GPUs of its partition that are large enough."""
    note: str
    """Why there is nothing to set; empty if there is."""


async def explain_file(filename: Path, cluster: Cluster, output: str) -> None:
    """Print what to set in frameworks for the jobs and Pods in a file."""
    with click.open_file(str(filename), "rb") as file:
        content = file.read()
    async with open_cluster(*cluster) as kube:
        servers, missing = await list_visible(kube, SERVERS, "")
        lists = {PARTITIONS: (await kube.list(PARTITIONS))[0], SERVERS: servers}
    found = planned(str(filename), content, state_of(lists), missing)
    if output == "table":
        from partita.cli.explain.text import planned_text

        terminal.display(planned_text(found))
    else:
        terminal.dump(found, output)


def planned(name: str, content: bytes, state: State, missing: str = "") -> list[Planned]:
    """Return the jobs and Pods in a file, as `requests_in` does.

    Parameters
    ----------
    missing
        What may not be listed of the GPUs; empty if they are known.
    """
    found = requests_in(name, content, state)
    return [_planned(item, request, state, missing) for item, request in found]


def requests_in(name: str, content: bytes, state: State) -> "list[tuple[Finding, Request]]":
    """Return what the jobs and Pods in a file ask for.

    Without a partition it is that of the cluster, if there is only one.

    Raises
    ------
    UserError
        An object is not valid, or nothing asks for a slice.
    """
    from partita.validation.files import read_requests
    from partita.validation.request_checks import UNKNOWN

    report, requests = read_requests([(name, content)])
    if report.errors:
        raise UserError(f"{report.errors[0]}")
    if not requests:
        raise UserError(
            f"nothing in {name} asks for a slice of a GPU: write a SharedGPUJob, or a Pod with its "
            "ResourceClaimTemplate"
        )
    only = next(iter(state.partitions)) if len(state.partitions) == 1 else UNKNOWN
    return [
        (
            item.finding((), ""),
            replace(request, partition=only) if request.partition == UNKNOWN else request,
        )
        for item, request in requests
    ]


def _planned(item: "Finding", request: Request, state: State, missing: str) -> Planned:
    frameworks = planned_budgets(request, state)
    note = ""
    if request.partition not in state.partitions:
        there = ", ".join(sorted(state.partitions))
        note = f"there is no GPUPartition {request.partition}: name one that is there ({there})"
    elif missing:
        note = f"what to set depends on the GPUs, and you may not list {missing}"
    elif not frameworks:
        note = (
            "nothing to set: its memory is not written, or no GPU that is large enough for it is "
            "shared"
        )
    return Planned(
        kind=item.kind,
        namespace=item.namespace,
        name=item.name,
        partition=request.partition,
        frameworks=frameworks,
        note=note,
    )
