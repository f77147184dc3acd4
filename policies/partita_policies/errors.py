"""Errors of policies.

PolicyError
  UnknownPolicyError      no distribution offers a policy of that name
  PolicyImportError       the policy cannot be imported, or the object is not a policy
  PolicyParametersError   the parameters are not those that the policy takes
  PolicyStartError        the policy raised an error when it was built from them
"""

from collections.abc import Iterable, Sequence

__all__ = [
    "PolicyError",
    "PolicyImportError",
    "PolicyParametersError",
    "PolicyStartError",
    "UnknownPolicyError",
]


class PolicyError(Exception):
    """Base class of the errors of policies; the message is one line for the user."""


class UnknownPolicyError(PolicyError):
    """No installed policy has that name."""

    def __init__(self, policy: str, available: Iterable[str]) -> None:
        names = ", ".join(sorted(available)) or "none"
        super().__init__(f"there is no policy {policy!r}; installed are: {names}")


class PolicyImportError(PolicyError):
    """A plug-in offers the policy, but the plug-in cannot be used."""

    def __init__(self, policy: str, target: str, distribution: str, cause: str) -> None:
        super().__init__(f"policy {policy!r} ({target} from distribution {distribution}): {cause}")


class PolicyParametersError(PolicyError):
    """The parameters are not those that the policy takes.

    Attributes
    ----------
    problems
        Name and problem of each wrong parameter.
    allowed
        The parameters that the policy takes, each as `name: type = default`.
    """

    def __init__(
        self, policy: str, problems: Sequence[tuple[str, str]], allowed: Sequence[str]
    ) -> None:
        self.problems = tuple(problems)
        self.allowed = tuple(allowed)
        wrong = "; ".join(f"{parameter}: {problem}" for parameter, problem in problems)
        takes = "; ".join(allowed) or "no parameters"
        super().__init__(f"parameters of policy {policy!r}: {wrong} (it takes {takes})")


class PolicyStartError(PolicyError):
    """The policy was found and its parameters are right, but it cannot be built."""

    def __init__(self, policy: str, cause: str) -> None:
        super().__init__(f"policy {policy!r} cannot start: {cause}")
