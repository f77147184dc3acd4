"""`partita completion`: the shell script that completes commands, options and names."""

import sys
from pathlib import Path

import click

from partita.cli import terminal

__all__ = ["command", "kubectl_complete"]


@click.command("completion", short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, *, shell: str) -> None:
    """Print the script that completes `partita` in a SHELL, including names of jobs and GPUs.

    kubectl completes `kubectl partita` itself, with the program kubectl_complete-partita, which is
    installed with Partita.

    \b
    Examples:
      source <(partita completion bash)
      partita completion fish > ~/.config/fish/completions/partita.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    if complete is None:  # pragma: no cover - the choice above holds those that click has
        raise AssertionError(shell)
    script = complete(ctx.find_root().command, {}, "partita", "_PARTITA_COMPLETE").source()
    terminal.data(script)


_NO_FILES = ":4"
"""ShellCompDirectiveNoFileComp of cobra, whose protocol kubectl uses with its plug-ins:
https://pkg.go.dev/github.com/spf13/cobra#ShellCompDirective."""


def kubectl_complete() -> None:
    """Print the completions of a command line, for kubectl.

    Run as `kubectl_complete-partita WORD... BEGUN`:
    https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/ and
    https://github.com/kubernetes/kubernetes/pull/105867.
    """
    from click.shell_completion import ShellComplete

    from partita.cli import main

    *words, begun = sys.argv[1:] or [""]
    found = ShellComplete(main, {}, Path(sys.argv[0]).name, "").get_completions(words, begun)
    for item in found:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_NO_FILES)
