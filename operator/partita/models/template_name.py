"""Names of the ResourceClaimTemplates that the operator creates. No I/O.

A Pod names such a template where the limits `partita.dev/gpu-memory` and `partita.dev/gpu-threads`
were replaced by a claim (`manifests/limits`), so the name says everything that it asks for.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from typing_extensions import override

from partita.models.quantities import MEBI

__all__ = ["FORM", "TemplateName"]

_PREFIX: Final = "partita-"
_UNITS: Final = {"mi": MEBI, "gi": MEBI << 10, "ti": MEBI << 20}
"""Units of an amount. Names of objects have no capital letters."""
FORM: Final = (
    r"partita-(?:(?P<partition>[a-z0-9]([-.a-z0-9]*[a-z0-9])?)-)??"
    r"(?P<memory>[1-9][0-9]{6,14}|[1-9][0-9]{0,8}(?P<unit>[mgt]i))"
    r"(?:-(?P<threads>[1-9][0-9]?|100))?"
)
"""A number without a unit is one of bytes. It has at least 7 digits, so that it is never taken for
a percentage, or for MiB."""


@dataclass(frozen=True, slots=True)
class TemplateName:
    """What a name of the form `partita-[<partition>-]<memory>[-<threads>]` stands for."""

    partition: str
    """The partition; empty if the Pod named none."""
    memory: int
    """GPU memory in bytes."""
    threads: int | None = None
    """Percent of the GPU's threads; None if the Pod named no number."""
    spelling: str = ""
    """The memory as it is written, such as `6gi`; empty for a number of bytes."""

    @override
    def __str__(self) -> str:
        memory = self.spelling or str(self.memory)
        parts = [self.partition, memory, str(self.threads) if self.threads else ""]
        return _PREFIX + "-".join(filter(None, parts))

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Read a name; None if it is not of this form."""
        found = re.fullmatch(FORM, name)
        if found is None:
            return None
        unit, amount = found["unit"] or "", found["memory"]
        memory = int(amount.removesuffix(unit)) * _UNITS.get(unit, 1)
        if memory < MEBI:
            return None
        threads = int(found["threads"]) if found["threads"] else None
        return cls(found["partition"] or "", memory, threads, amount if unit else "")

    @staticmethod
    def problem(name: str) -> str:
        """Return what to write instead of a name that looks like one of these and cannot be read.

        Empty for other names.
        """
        if not name.startswith(_PREFIX) or TemplateName.parse(name) is not None:
            return ""
        number = re.search(r"-([0-9]+)$", name)
        meant = f"{name}mi for MiB" if number else "partita-shared-6gi"
        return (
            f"the name {name} states no amount of GPU memory with which Partita would create a "
            "ResourceClaimTemplate: write partita-<partition>-<memory>, the memory with its unit "
            f"(mi, gi or ti), such as {meant}, or create a ResourceClaimTemplate of this name"
        )
