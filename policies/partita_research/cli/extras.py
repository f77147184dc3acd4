"""The optional dependencies of the research commands."""

from partita.cli.terminal import UserError

__all__ = ["missing_extra"]


def missing_extra(module: str, extra: str) -> UserError:
    """Return the error that says how to install a missing module."""
    return UserError(
        f"{module} is not installed: run `pip install -e '.[{extra}]'` in a checkout of Partita"
    )
