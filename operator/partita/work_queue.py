"""What the loop has still to look at."""

import asyncio

from partita.models.profile import ApplicationKey

__all__ = ["WorkQueue"]


class WorkQueue:
    """What has changed since it was looked at last."""

    def __init__(self) -> None:
        self._jobs: set[str] = set()
        self._partitions: set[str] = set()
        self._glances: set[str] = set()
        self._freed: set[str] = set()
        self._applications: set[ApplicationKey] = set()
        self.short: dict[str, frozenset[str]] = {}
        """Nodes of whose own resources too little is free for some waiting job, by partition."""
        self.event = asyncio.Event()
        """Set while there is something."""

    def jobs(self, *uids: str) -> None:
        """Have these jobs looked at."""
        if uids:
            self._jobs.update(uids)
            self.event.set()

    def partitions(self, *names: str) -> None:
        """Have these partitions' GPUs and queues looked at."""
        if names:
            self._partitions.update(names)
            self.event.set()

    def glance(self, *names: str) -> None:
        """Have these partitions' numbers looked at; their queues are not concerned."""
        if names:
            self._glances.update(names)
            self.event.set()

    def freed(self, node: str) -> None:
        """Note that something of a node is free again; most often nobody waits for that."""
        waiting = [partition for partition, nodes in self.short.items() if node in nodes]
        if waiting:
            self._freed.update(waiting)
            self.event.set()

    def take_freed(self) -> set[str]:
        """Return the partitions that wait for what was freed, and start anew."""
        taken, self._freed = self._freed, set()
        self._settle()
        return taken

    def applications(self, *keys: ApplicationKey) -> None:
        """Note that more is known of these applications now, or less."""
        if keys:
            self._applications.update(keys)
            self.event.set()

    def take_applications(self) -> set[ApplicationKey]:
        """Return the applications whose history has changed, and start anew."""
        taken, self._applications = self._applications, set()
        self._settle()
        return taken

    def take_jobs(self) -> set[str]:
        """Return the UIDs of jobs to look at, and start anew."""
        taken, self._jobs = self._jobs, set()
        self._settle()
        return taken

    def take_partitions(self) -> tuple[set[str], set[str]]:
        """Return the partitions to decide, and those to glance at; start anew."""
        taken = self._partitions, self._glances
        self._partitions, self._glances = set(), set()
        self._settle()
        return taken

    def _settle(self) -> None:
        rest = self._jobs, self._partitions, self._glances, self._freed, self._applications
        if not any(rest):
            self.event.clear()
