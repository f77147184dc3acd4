"""What a policy would do with a job or claim now."""

from dataclasses import dataclass
from typing import Literal

from partita.console.slowdowns import Slowdown

__all__ = ["PolicyAnswer"]


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """The decision of one policy about the job or claim.

    Attributes
    ----------
    role
        `active`, `shadow`, `fallback` or empty.
    decision
        `start` on `gpus`, co-located with `beside`; `wait` because of `reason`; or `fail` if the
        policy does not decide.
    slowdown
        The prediction for `start`; the largest of all GPUs.
    """

    policy: str
    role: str
    decision: Literal["start", "wait", "fail"]
    gpus: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    slowdown: Slowdown | None = None
