"""The environment variables of a job's template that its Pod keeps.

Its claims set variables in the containers, which replace those of the Pod
(https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md, `containerEdits`). So
a variable that has no effect is removed, and its user is told.
"""

from dataclasses import dataclass, field
from typing import Any

from partita.pods.environment import MEMORY_LIMIT, MEMORY_REQUEST, SM_PARTITION
from partita.pods.pytorch_options import (
    ALLOCATOR,
    OLD_ALLOCATOR,
    PYTORCH_FRACTION,
    allocator_variables,
    literal,
)

__all__ = ["UserVariables"]


@dataclass(slots=True)
class UserVariables:
    """Checks the variables of a Pod's containers, and records what has no effect.

    Parameters
    ----------
    shared
        The variables that all containers get with the claims.
    pytorch_fraction
        Memory fraction for PyTorch; None if PyTorch is not limited.
    """

    shared: dict[str, str]
    pytorch_fraction: float | None
    overridden: set[str] = field(default_factory=set)
    """Variables of the user that are replaced."""
    notices: list[str] = field(default_factory=list)

    def kept(self, container: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the variables of a container in its Pod."""
        users: list[dict[str, Any]] = container.get("env") or []
        own = self._allocator(container, users)
        kept = [entry for entry in users if self._keep(container, entry, own)]
        return [*kept, *({"name": name, "value": value} for name, value in own.items())]

    def _keep(self, container: dict[str, Any], entry: dict[str, Any], own: dict[str, str]) -> bool:
        name = entry["name"]
        ours = {**self.shared, **own}
        if name in ours:
            if not (self._is_same(entry, ours[name]) or self._extends(entry)):
                self.overridden.add(name)
            # The agent adds the options of the Pod's value to that of the claim.
            return name in {ALLOCATOR, OLD_ALLOCATOR} - own.keys()
        if name == SM_PARTITION:
            self.overridden.add(name)  # the claim sets it on a GPU with partitions
            return False
        if name in {MEMORY_REQUEST, MEMORY_LIMIT}:
            # NVIDIA's container toolkit would apply them, or fail on an older driver.
            self.notices.append(
                f"container {container['name']} sets {name}, which is removed: write "
                "spec.gpuMemory instead"
            )
            return False
        return True

    def _allocator(self, container: dict[str, Any], users: list[dict[str, Any]]) -> dict[str, str]:
        """Return the variables that limit PyTorch's allocator, unless the claim sets them.

        The claim sets one value for all containers. If their options differ, each gets its own.
        """
        if self.pytorch_fraction is None:
            return {}
        new, old = (literal(users, name) for name in (ALLOCATOR, OLD_ALLOCATOR))
        variables = allocator_variables(new, old, self.pytorch_fraction)
        if OLD_ALLOCATOR not in variables and any(e["name"] == OLD_ALLOCATOR for e in users):
            self.notices.append(
                f"container {container['name']} sets {OLD_ALLOCATOR}, so PyTorch's own "
                f"memory limit may not be set: write its options to {ALLOCATOR} (PyTorch over 2.9)"
            )
        return {} if ALLOCATOR in self.shared else variables

    def _is_same(self, entry: dict[str, Any], value: str) -> bool:
        return "valueFrom" not in entry and (entry.get("value") or "") == value

    def _extends(self, entry: dict[str, Any]) -> bool:
        """Return whether only an option is added to the user's value."""
        return (
            entry["name"] == ALLOCATOR
            and "valueFrom" not in entry
            and PYTORCH_FRACTION not in (entry.get("value") or "")
        )
