"""`partita replay`: what other policies would have done with recorded decisions."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import json_option
from partita_research.cli.policy_options import Parameter, chosen_policies, policy_options

if TYPE_CHECKING:
    from partita_policies.recordings import RejectedLine
    from partita_policies.types import Policy
    from partita_research.cli.replay_report import Facts
    from partita_research.replay import Replay

__all__ = ["command"]

_REFUSED_SHOWN = 5
"""Lines that are told one by one; of more, the number."""


@click.command("replay", short_help="Ask other policies about recorded decisions.")
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@policy_options
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="NUMBER",
    help="How many decisions of each policy that differ are shown; the JSON has all.",
)
@json_option
def command(
    *,
    recordings: tuple[Path, ...],
    policies: tuple[str, ...],
    parameters: tuple[Parameter, ...],
    show: int,
    output: Path | None,
) -> None:
    """Ask other policies what they would have done with the decisions in RECORDINGS.

    RECORDINGS are files that `partita run --record` wrote, or folders of them. Each decision is
    asked about on its own, on the cluster as it was then: a job that a policy starts instead
    changes nothing in the decisions after it. What would have followed, `partita simulate` tells.
    It needs no cluster.

    Snapshots that were taken while a list of the cluster was incomplete, or by a release with
    another format, are named and left out.

    \b
    Examples:
      partita run --record recordings/
      partita replay recordings/
      partita replay recordings/*_gold.jsonl* --policy sjf --parameter exclusive=false
      partita replay recordings/ --policy tetris --json - | jq '.policies[0].different[]'
    """  # noqa: D301
    from partita_research.cli.replay_report import as_json, picture

    wanted = chosen_policies(policies, parameters)
    try:
        replays, facts, refused = _replay(recordings, wanted)
    except OSError as error:
        raise terminal.UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    _tell(refused)
    if not facts.decisions:
        where = ", ".join(map(str, recordings))
        raise terminal.UserError(
            f"there is no decision to replay in {where}: record some with `partita run --record "
            "FOLDER`; one is made whenever jobs wait and a GPU is there"
        )
    if output is not None:
        terminal.write_json(as_json(replays, facts, refused), output)
    if output is None or str(output) != "-":
        terminal.display(picture(replays, facts, show=show))


def _replay(
    paths: tuple[Path, ...], policies: "dict[str, Policy]"
) -> "tuple[list[Replay], Facts, list[RejectedLine]]":
    from partita.cli.progress import progress
    from partita_policies.recordings import Recorded, read_recordings, recordings_in
    from partita_research.cli.replay_report import Facts
    from partita_research.replay import Replay

    replays = [Replay(name, policy) for name, policy in policies.items()]
    facts, refused = Facts(), []
    files = recordings_in(paths)
    with progress() as report:
        for index, file in enumerate(files):
            for found in read_recordings([file]):
                report(f"{file.name}:{found.line}", index / len(files))
                if isinstance(found, Recorded):
                    facts.add(found)
                    for replay in replays:
                        replay.ask(found)
                else:
                    refused.append(found)
    return replays, facts, refused


def _tell(refused: "list[RejectedLine]") -> None:
    for one in refused[:_REFUSED_SHOWN]:
        terminal.warn(f"{one}; it is left out")
    if len(refused) > _REFUSED_SHOWN:
        terminal.warn(f"{len(refused) - _REFUSED_SHOWN} more lines are left out; the JSON has all")
