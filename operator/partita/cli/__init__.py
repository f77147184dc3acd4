"""The command `partita`, and `kubectl partita`: one module per command.

All printing is in `terminal`. A command's module is imported only when the command is run, so that
`--help` and a shell's completion are fast, and so that commands of packages that are not installed
(the image has neither research nor a test cluster) fail with a sentence.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from partita import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "demo": "partita_testcluster.cli.demo:command",
    "validate": "partita.cli.validate:command",
    "submit": "partita.cli.submit:command",
    "top": "partita.cli.top:command",
    "console": "partita.cli.console:command",
    "explain": "partita.cli.explain:command",
    "logs": "partita.cli.logs:command",
    "retry": "partita.cli.control:retry",
    "suspend": "partita.cli.control:suspend",
    "resume": "partita.cli.control:resume",
    "drain": "partita.cli.drain:command",
    "bundle": "partita.cli.bundle:command",
    "simulate": "partita_research.cli.simulate:command",
    "replay": "partita_research.cli.replay:command",
    "advise": "partita_research.cli.advise:command",
    "cost": "partita_research.cli.cost:command",
    "train": "partita_research.cli.train:command",
    "run": "partita.cli.run:command",
    "crds": "partita.cli.crds:command",
    "apiserver": "partita_testcluster.cli.apiserver:command",
    "nodes": "partita_testcluster.cli.nodes:command",
    "agent": "partita.cli.agent:command",
    "completion": "partita.cli.completion:command",
}
"""Where each command is, in the order in which a newcomer meets them."""


class _Partita(click.Group):
    """Imports a command when it is asked for, and knows itself as a plug-in of kubectl."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if self.get_command(ctx, name) is not None]

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        package = module.partition(".")[0]
        try:
            found: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            return None
        return found

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
