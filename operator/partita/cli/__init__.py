"""The command `partita`, and `kubectl partita`: one module per command, in a folder per group.

All output is printed by `terminal`. The modules of commands are imported on demand. Commands of
packages that are not installed are not listed: the image contains neither the research package nor
the test cluster.
"""

import atexit
import gc
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from typing_extensions import override

from partita import __version__
from partita.garbage_collection import collect_hardly_ever
from partita.import_trim import leave_out_extras

__all__ = ["COMMANDS", "SECTIONS", "main"]

SECTIONS: Final = {
    "Jobs and workloads": {
        "submit": "partita.cli.jobs.submit:command",
        "jobs": "partita.cli.jobs.lists:jobs",
        "workloads": "partita.cli.jobs.lists:workloads",
        "explain": "partita.cli.explain.command:command",
        "when": "partita.cli.jobs.when:command",
        "logs": "partita.cli.jobs.logs:command",
        "retry": "partita.cli.jobs.control:retry",
        "suspend": "partita.cli.jobs.control:suspend",
        "resume": "partita.cli.jobs.control:resume",
    },
    "Partitions": {
        "top": "partita.cli.partitions.top:command",
        "console": "partita.cli.partitions.console:command",
        "usage": "partita.cli.partitions.usage:command",
        "drain": "partita.cli.partitions.drain:command",
        "policies": "partita.cli.partitions.policies:command",
    },
    "Cluster": {
        "validate": "partita.cli.cluster.validate:command",
        "crds": "partita.cli.cluster.crds:command",
        "run": "partita.cli.cluster.run:command",
        "agent": "partita.cli.cluster.agent:command",
        "doctor": "partita.cli.doctor.command:command",
        "bundle": "partita.cli.cluster.bundle:command",
        "uninstall": "partita.cli.cluster.uninstall:command",
    },
    "Lab (no GPU needed)": {
        "demo": "partita_testcluster.cli.demo:command",
        "apiserver": "partita_testcluster.cli.apiserver:command",
        "nodes": "partita_testcluster.cli.nodes:command",
        "simulate": "partita_research.cli.simulate:command",
        "replay": "partita_research.cli.replay:command",
        "advise": "partita_research.cli.advise:command",
        "train": "partita_research.cli.train:command",
    },
    "Other": {
        "completion": "partita.cli.completion:command",
    },
}
"""Module and name of each command, by section of `partita --help`."""

COMMANDS: Final = {name: where for section in SECTIONS.values() for name, where in section.items()}


class _Partita(click.Group):
    """Imports commands on demand and lists them in sections, as kubectl does."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if self.get_command(ctx, name) is not None]

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        package = module.partition(".")[0]
        leave_out_extras()
        try:
            found: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            return None
        return found

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            found = {name: command for name in names if (command := self.get_command(ctx, name))}
            if found:
                with formatter.section(title):
                    limit = formatter.width - width - 6
                    formatter.write_dl(
                        [
                            (name.ljust(width), c.get_short_help_str(limit))
                            for name, c in found.items()
                        ]
                    )

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            # Whichever part of a command reads the kubeconfig. Imported here: not all read one.
            from partita.cli.connection import explained
            from partita.kube.connect import KubeconfigError

            with explained() if isinstance(error, KubeconfigError) else nullcontext():
                raise

    @override
    def main(self, *args: Any, **extra: Any) -> Any:
        collect_hardly_ever()
        # Nor is garbage searched for at the end of the process.
        atexit.register(gc.freeze)
        plugin = Path(sys.argv[0]).name.startswith("kubectl-")
        extra.setdefault("prog_name", "kubectl partita" if plugin else "partita")
        return super().main(*args, **extra)


@click.group(
    "partita",
    cls=_Partita,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Exit codes, of every command:

    \b
      0    done; the answer is yes
      1    failed, or the answer is no; stderr has the reason
      2    wrong usage: an unknown option or a value that cannot be read
      130  interrupted by Ctrl-C or SIGTERM
    """,
)
@click.version_option(__version__, "-V", "--version", prog_name="partita")
def main() -> None:
    """Share GPUs in Kubernetes, declaratively.

    Jobs share GPUs in slices whose memory and compute limits hold. See it without a cluster and
    without a GPU:

    \b
      partita demo
    """  # noqa: D301 - \b is click's sign for "leave these lines as they are"
