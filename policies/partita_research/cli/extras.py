"""The optional dependencies of the research commands."""

from partita.cli.terminal import UserError

__all__ = ["missing_extra"]


def missing_extra(module: str, extra: str) -> UserError:
    """Return the error for a missing module, with the command that installs it."""
    return UserError(
        f"{module} is not installed: run `pip install -e '.[{extra}]'` in a checkout of Partita"
    )
