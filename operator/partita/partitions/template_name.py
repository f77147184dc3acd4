"""Names of the ResourceClaimTemplates that the operator creates. No I/O.

A Pod names such a template where the limits `partita.dev/gpu-memory` and `partita.dev/gpu-threads`
were replaced by a claim (`manifests/limits`), so the name says everything that it asks for.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from typing_extensions import override

__all__ = ["TemplateName"]

_PREFIX: Final = "partita-"
_LEAST_MEMORY: Final = 1 << 20
"""Least memory in a name (bytes). So an amount of memory is never taken for a percentage."""
_FORM: Final = re.compile(
    r"partita-(?:(?P<partition>[a-z0-9]([-.a-z0-9]*[a-z0-9])?)-)??"
    r"(?P<memory>[1-9][0-9]{6,14})(?:-(?P<threads>[1-9][0-9]?|100))?"
)


@dataclass(frozen=True, slots=True)
class TemplateName:
    """What a name of the form `partita-[<partition>-]<bytes>[-<threads>]` stands for."""

    partition: str
    """The partition; empty if the Pod named none."""
    memory: int
    """GPU memory in bytes."""
    threads: int | None = None
    """Percent of the GPU's threads; None if the Pod named no number."""

    @override
    def __str__(self) -> str:
        parts = [self.partition, str(self.memory), str(self.threads) if self.threads else ""]
        return _PREFIX + "-".join(filter(None, parts))

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Read a name; None if it is not of this form."""
        found = _FORM.fullmatch(name)
        if found is None or int(found["memory"]) < _LEAST_MEMORY:
            return None
        threads = int(found["threads"]) if found["threads"] else None
        return cls(found["partition"] or "", int(found["memory"]), threads)
