"""`partita replay`: compares recorded decisions with those of other policies."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import output_option
from partita_research.cli.messages import warn_of_rejected
from partita_research.cli.policy_options import (
    OBJECTIVES,
    Parameter,
    chosen_policies,
    policy_options,
)

if TYPE_CHECKING:
    from partita_policies.recordings import RejectedLine
    from partita_policies.types import Policy
    from partita_research.cli.replay_report import Facts
    from partita_research.replay import Replay

__all__ = ["command"]


@click.command("replay", short_help="Compare recorded decisions with those of other policies.")
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@policy_options
@click.option(
    "--objective",
    type=OBJECTIVES,
    help="What the policies shall achieve, as `spec.objective` of a GPUPartition.  "
    "[default: as recorded]",
)
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="NUMBER",
    help="How many differing decisions of each policy to show; -o json lists all.",
)
@output_option("partita_research.cli.replay_report:ReplayReport")
def command(
    *,
    recordings: tuple[Path, ...],
    policies: tuple[str, ...],
    parameters: tuple[Parameter, ...],
    objective: str | None,
    show: int,
    output: str,
) -> None:
    """Compare the decisions in RECORDINGS with what other policies would have done.

    RECORDINGS are files that `partita run --record` wrote, or folders of them. Each decision is
    compared on its own, on the cluster as it was then: a job that a policy would have started
    does not change the decisions after it. "Wait" is how much longer the jobs in a sample of the
    snapshots would be expected to wait than under the recorded policy, which is taken with its
    default parameters, or with those given here. No cluster is needed.

    A snapshot that is incomplete, or that a release with another format recorded, is reported
    and skipped.

    \b
    Examples:
      partita run --record recordings/
      partita replay recordings/
      partita replay recordings/*_gold.jsonl* --policy sjf --parameter exclusive=true
      partita replay recordings/ --policy dqn --objective Completion
      partita replay recordings/ --policy tetris -o json | jq '.policies[0].different[]'
    """  # noqa: D301
    from partita_research.cli.replay_report import report, report_data

    wanted = chosen_policies(policies, parameters)
    try:
        replays, facts, refused = _replay(recordings, wanted, objective)
    except OSError as error:
        raise terminal.UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    warn_of_rejected(refused)
    if not facts.decisions:
        where = ", ".join(map(str, recordings))
        raise terminal.UserError(
            f"no decision to replay in {where}: record some with `partita run --record FOLDER`; a "
            "decision is recorded whenever jobs wait and a GPU is ready"
        )
    if output == "table":
        terminal.display(report(replays, facts, show=show))
    else:
        terminal.dump(report_data(replays, facts, refused), output)


def _replay(
    paths: tuple[Path, ...], policies: "dict[str, Policy]", objective: str | None
) -> "tuple[list[Replay], Facts, list[RejectedLine]]":
    from partita.cli.progress import progress
    from partita_policies.recordings import Recorded, read_recordings, recordings_in
    from partita_policies.types import Objective
    from partita_research.cli.replay_report import Facts
    from partita_research.replay import Replay
    from partita_research.sampled_waits import SampledWaits

    wanted = Objective(objective) if objective else None
    replays = [Replay(name, policy, wanted) for name, policy in policies.items()]
    facts, refused, waits = Facts(), [], SampledWaits()
    files = recordings_in(paths)
    with progress() as report:
        for index, file in enumerate(files):
            for found in read_recordings([file]):
                report(f"{file.name}:{found.line}", index / len(files))
                if isinstance(found, Recorded):
                    facts.add(found)
                    waits.add(found)
                    for replay in replays:
                        replay.ask(found)
                else:
                    refused.append(found)
        report("when jobs would start", 1.0)
        waits.compare(replays)
    return replays, facts, refused
