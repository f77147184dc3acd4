"""What a tenant may try, and what stops it; `docs/security.md` lists the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module

from adversary.attacker import Attacker

__all__ = ["Action", "Attack", "action", "all_actions"]

Attack = Callable[[Attacker], Awaitable[None]]


@dataclass(frozen=True)
class Action:
    """Something that a tenant tries.

    Attributes
    ----------
    stopped_by
        What stops it, or what it is good for by design, in a sentence.
    real
        Whether RBAC or admission alone stop it: then a real API server is needed to try it.
    """

    name: str
    what: str
    stopped_by: str
    real: bool
    attack: Attack

    def __str__(self) -> str:
        return self.name


ACTIONS: list[Action] = []
"""All of them, in the order in which they are listed."""


def action(stopped_by: str, *, real: bool = False) -> Callable[[Attack], Attack]:
    """Add an attack to the list; its name and its docstring say what is tried."""

    def add(attack: Attack) -> Attack:
        name = attack.__name__.replace("_", " ")
        what = " ".join((attack.__doc__ or "").split())
        ACTIONS.append(Action(name, what, stopped_by, real, attack))
        return attack

    return add


def all_actions() -> list[Action]:
    """Return all actions."""
    for module in ("pods", "own_pods", "jobs", "claims", "job_claims", "workloads", "cluster"):
        import_module(f"adversary.actions.{module}")
    return ACTIONS
