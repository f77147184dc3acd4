"""What can go wrong with a policy.

PolicyError
  UnknownPolicyError      no distribution offers a policy of that name
  PolicyImportError       one does, but it cannot be imported or is not a policy
  PolicyParametersError   the parameters are not those that the policy takes
  PolicyStartError        the policy refused to be built from them
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
    """Base of all that can be wrong with a policy; the message is one line for its user.

    Attributes
    ----------
    policy
        Name of the policy.
    """

    def __init__(self, policy: str, message: str) -> None:
        super().__init__(message)
        self.policy = policy


class UnknownPolicyError(PolicyError):
    """There is no policy of that name."""

    def __init__(self, policy: str, available: Iterable[str]) -> None:
        self.available = tuple(sorted(available))
        names = ", ".join(self.available) or "none"
        super().__init__(policy, f"there is no policy {policy!r}; installed are: {names}")


class PolicyImportError(PolicyError):
    """A plug-in offers the policy, but cannot be used.

    Attributes
    ----------
    target
        What its entry point names, as `module:attribute`.
    distribution
        Name of the distribution that offers it.
    """

    def __init__(self, policy: str, target: str, distribution: str, cause: str) -> None:
        self.target = target
        self.distribution = distribution
        super().__init__(
            policy, f"policy {policy!r} ({target} from distribution {distribution}): {cause}"
        )


class PolicyParametersError(PolicyError):
    """The parameters are not those that the policy takes.

    Attributes
    ----------
    problems
        Parameter and what is wrong with it, for each.
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
        super().__init__(policy, f"parameters of policy {policy!r}: {wrong} (it takes {takes})")


class PolicyStartError(PolicyError):
    """The policy was found and its parameters are right, but it cannot be built."""

    def __init__(self, policy: str, cause: str) -> None:
        super().__init__(policy, f"policy {policy!r} cannot start: {cause}")
