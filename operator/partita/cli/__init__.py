"""The command `partita`, and `kubectl partita`: one module per command.

All printing is in `terminal`. What takes long to import is imported inside the commands, so that
`--help` and a shell's completion are fast.
"""

import sys
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from partita import __version__
from partita.cli import (
    advise,
    agent,
    apiserver,
    bundle,
    completion,
    console,
    control,
    cost,
    crds,
    demo,
    drain,
    explain,
    logs,
    nodes,
    replay,
    run,
    simulate,
    submit,
    top,
    train,
    validate,
)

__all__ = ["main"]


class _Partita(click.Group):
    """Lists its commands in the order in which one meets them, and knows itself as a plug-in."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    @override
    def main(self, *args: Any, **extra: Any) -> Any:
        plugin = Path(sys.argv[0]).name.startswith("kubectl-")
        extra.setdefault("prog_name", "kubectl partita" if plugin else "partita")
        return super().main(*args, **extra)


@click.group(
    "partita",
    cls=_Partita,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage.",
)
@click.version_option(__version__, "-V", "--version", prog_name="partita")
def main() -> None:
    """Share GPUs in Kubernetes, declaratively.

    Jobs share GPUs in slices whose memory and compute limits hold. See it without a cluster and
    without a GPU:

    \b
      partita demo
    """  # noqa: D301 - \b is click's sign for "leave these lines as they are"


for _command in (
    demo.command,
    validate.command,
    submit.command,
    top.command,
    console.command,
    explain.command,
    logs.command,
    control.retry,
    control.suspend,
    control.resume,
    drain.command,
    bundle.command,
    simulate.command,
    replay.command,
    advise.command,
    cost.command,
    train.command,
    run.command,
    crds.command,
    apiserver.command,
    nodes.command,
    agent.command,
    completion.command,
):
    main.add_command(_command)
