"""How much longer jobs wait under one policy than under another, in the same futures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the cycles use no simulator
    from partita_policies.start_times.futures import Outlook

__all__ = ["WaitChange"]


@dataclass(slots=True)
class WaitChange:
    """A mean over the jobs about whose starts both policies say something."""

    jobs: int = 0
    """A job counts once in each pair of outlooks."""
    seconds: float = 0.0
    """Sum of the changes."""

    def add(self, before: "Outlook", after: "Outlook") -> None:
        """Compare the starts of one snapshot, under the policy that is and one that may be."""
        both = before.starts.keys() & after.starts.keys()
        self.jobs += len(both)
        self.seconds += sum(
            [after.starts[job_id].middle - before.starts[job_id].middle for job_id in both]
        )

    @property
    def mean(self) -> float:
        """Seconds by which a job starts later; 0 before the first."""
        return self.seconds / self.jobs if self.jobs else 0.0
