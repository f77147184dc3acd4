"""The jobs of each partition, so that nothing has to count them one by one."""

from partita.models import Phase, SharedGPUJob
from partita.store.index import Index

__all__ = ["JobIndex"]


class JobIndex:
    """UIDs of jobs, by partition."""

    def __init__(self) -> None:
        self.all = Index()
        self.suspended = Index()
        """Those whose status says so."""
        self.unfinished = Index()
        """Those that have neither finished nor are to be suspended."""

    def changed(self, uid: str, old: SharedGPUJob | None, new: SharedGPUJob | None) -> set[str]:
        """Replace a job by another version; return the partitions whose numbers have changed."""
        before, after = self._places(old), self._places(new)
        for index, partition in before - after:
            index.discard(partition, uid)
        for index, partition in after - before:
            index.add(partition, uid)
        return {partition for _, partition in before ^ after}

    def _places(self, job: SharedGPUJob | None) -> set[tuple[Index, str]]:
        if job is None:
            return set()
        indexes, phase = {self.all}, job.status.phase
        if phase is Phase.SUSPENDED:
            indexes.add(self.suspended)
        if not job.spec.suspend and (phase is None or not phase.finished):
            indexes.add(self.unfinished)
        return {(index, job.spec.partition) for index in indexes}
