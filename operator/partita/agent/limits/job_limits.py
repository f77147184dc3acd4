"""Reads back the driver's memory limits of the containers of jobs and claims, and what these use.

A container's limit is compared with the one that the CDI file of its claim asks for as long as it
runs. An older container toolkit ignores the request silently, and an administrator can
change a limit at any time. The limit of a claim changes with its allocation: then it is set for the
containers that run.
The driver's counter of a cgroup is more accurate than the sum over the processes that NVML lists:
it counts all of the container's memory, once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

import structlog

from partita.agent.allocations import (
    READ_WITHIN,
    AllocationReader,
    Key,
    LedgerEntry,
    read_pod,
)
from partita.agent.event_wait import ends_within
from partita.agent.gpu.nvml_memory_limits import MemoryLimits
from partita.agent.limits.cgroups import CgroupTree, names_below
from partita.kube.client import Kube
from partita.kube.errors import KubernetesError
from partita.kube.events import Events
from partita.models.gpu_server import LimitMismatch
from partita.models.quantities import MEBI
from partita.pods.containers import containers_of_claim
from partita.pods.environment import MEMORY_LIMIT, MEMORY_REQUEST

__all__ = ["JobLimits", "LimitedUse", "limits_of", "started_containers"]

_WRONG_READS: Final = 2
"""Consecutive reads of a wrong limit after which it is reported."""
_IDENTIFIED_WITHIN: Final = 15.0
"""Seconds for kubelet to report the container of a new cgroup. After that it counts as a cgroup
without a container of the Pod, as that of the Pod's sandbox."""


@dataclass(frozen=True, slots=True)
class LimitedUse:
    """The memory of an attempt whose containers the driver limits."""

    used: int
    """Bytes, as the driver counts them."""
    limit: int
    """Most bytes."""


@dataclass(slots=True)
class _Container:
    """A running container that should have limits."""

    allocation: LedgerEntry
    name: str
    expected: MemoryLimits
    found: MemoryLimits | None = None
    wrong_reads: int = 0
    correctable: bool = False
    """Whether a wrong limit is to be corrected before it counts as wrong."""

    @property
    def is_right(self) -> bool:
        """Whether the limits that were read are those that it should have."""
        return self.found == self.expected

    def add(self, found: MemoryLimits | None) -> bool:
        """Add what was read; return whether a wrong limit has become certain with it."""
        self.found = found
        if self.is_right:
            self.wrong_reads = 0
            return False
        self.wrong_reads = 1 if self.correctable else self.wrong_reads + 1
        return self.wrong_reads == _WRONG_READS

    def expect(self, expected: MemoryLimits) -> None:
        """Set the limits that it should have."""
        if expected != self.expected:
            self.expected, self.wrong_reads, self.correctable = expected, 0, True

    def mismatch(self) -> LimitMismatch | None:
        """Return the wrong limit; None if none is certain."""
        if self.wrong_reads < _WRONG_READS:
            return None
        found, expected = self.found, self.expected
        if found is None or not found.limited:
            return LimitMismatch(expected=expected.hard)
        if found.hard != expected.hard:
            return LimitMismatch(expected=expected.hard, found=found.hard)
        return LimitMismatch(expected=expected.soft, found=found.soft)


@dataclass(slots=True)
class _Pod:
    """The cgroups of one Pod."""

    seen: dict[str, float] = field(default_factory=dict)
    """The names of all cgroups, and when each was first seen."""
    containers: dict[Path, _Container] = field(default_factory=dict)
    """Running containers that should have limits."""
    read_at: float = -inf
    """When the Pod was read last."""


@dataclass(slots=True)
class JobLimits:
    """The limits of the containers of all jobs on one GPU.

    Parameters
    ----------
    ledger
        The allocations of the GPU and their Pods.
    tree
        The node's cgroups.
    events
        Writes the Events about wrong limits.
    """

    kube: Kube
    ledger: AllocationReader
    tree: CgroupTree
    events: Events
    _pods: dict[Key, _Pod] = field(default_factory=dict)
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    @property
    def cgroups(self) -> tuple[Path, ...]:
        """The cgroups whose limits are to be read."""
        return tuple(path for pod in self._pods.values() for path in pod.containers)

    async def find(self, variables: Mapping[Key, Mapping[str, str]], now: float) -> None:
        """Find the containers of jobs that have started since the last call.

        Parameters
        ----------
        variables
            The variables of the containers of each prepared allocation.
        now
            Seconds of a monotonic clock.
        """
        allocations = dict(self.ledger.allocations)
        self._pods = {key: self._pods.get(key, _Pod()) for key in allocations}
        reads = []
        for key, allocation in allocations.items():
            expected = limits_of(variables.get(key, {}))
            if expected is None:
                continue
            if not allocation.job:
                # Its running containers get the claim's current limits.
                for container in self._pods[key].containers.values():
                    container.expect(expected)
            if self._has_new_cgroup(key, allocation.pod_uid, now):
                reads.append(self._identify(allocation, expected, now))
        # What is known is checked again although the API server does not answer.
        await ends_within(READ_WITHIN, asyncio.gather(*reads))

    def _has_new_cgroup(self, key: Key, uid: str, now: float) -> bool:
        pod, cgroup = self._pods[key], self.tree.pod(uid)
        if cgroup is None:
            return False
        pod.seen = {name: pod.seen.get(name, now) for name in names_below(cgroup)}
        return any(
            # Each Pod has a cgroup without a container, so the pauses between two reads double.
            2 * (pod.read_at - first) <= now - first < _IDENTIFIED_WITHIN
            and cgroup / name not in pod.containers
            for name, first in pod.seen.items()
        )

    async def _identify(self, allocation: LedgerEntry, expected: MemoryLimits, now: float) -> None:
        try:
            body = await read_pod(self.kube, allocation)
        except KubernetesError as error:
            self._log.info("Pod not read", pod=allocation.pod, error=str(error))
            return
        if body is None:
            return
        pod = self._pods[allocation.key]
        pod.read_at, found = now, pod.containers
        initial, main = containers_of_claim(body, allocation.name)
        started = started_containers(body)
        for name in [container["name"] for container in (*initial, *main)]:
            if name not in started:
                continue
            cgroup = self.tree.container(allocation.pod_uid, started[name])
            if cgroup is not None and cgroup not in found:
                # A claim may have had another limit when the container started.
                correctable = not allocation.job
                found[cgroup] = _Container(allocation, name, expected, correctable=correctable)

    def to_correct(self) -> dict[Path, MemoryLimits]:
        """Return the limits to set for containers of claims, each once."""
        found = {}
        for pod in self._pods.values():
            for cgroup, container in pod.containers.items():
                if container.correctable and container.wrong_reads:
                    container.correctable = False
                    found[cgroup] = container.expected
        return found

    def add(self, read: Mapping[Path, MemoryLimits | None]) -> None:
        """Add the limits that were read from the driver.

        Parameters
        ----------
        read
            The limits by cgroup; None if the driver has none for it.
        """
        for pod in self._pods.values():
            for cgroup in pod.containers.keys() & read.keys():
                found, container = read[cgroup], pod.containers[cgroup]
                if found is None and not cgroup.exists():
                    del pod.containers[cgroup]  # the container has ended
                elif container.add(found):
                    self._report(container)

    def _report(self, container: _Container) -> None:
        allocation, found = container.allocation, container.found
        has = f"a limit of {found}" if found is not None and found.limited else "no limit"
        message = (
            f"{allocation.run}: the driver has {has} for the GPU memory of container "
            f"{container.name}, which should have {container.expected}: check the container "
            "toolkit on the node"
        )
        self._log.warning("wrong memory limit", job=allocation.user, message=message)
        self.events.warn(allocation.subject, "WrongMemoryLimit", message)

    def mismatch(self, key: Key) -> LimitMismatch | None:
        """Return a wrong limit of an attempt; None if none is known."""
        pod = self._pods.get(key)
        found = [c.mismatch() for c in pod.containers.values()] if pod is not None else []
        return next((wrong for wrong in found if wrong is not None), None)

    @property
    def wrong(self) -> int:
        """Number of attempts with a wrong limit."""
        return sum(self.mismatch(key) is not None for key in self._pods)

    def used(self) -> dict[Key, LimitedUse]:
        """Return the use of each attempt whose limits were read and are right."""
        return {
            key: LimitedUse(
                sum(c.found.used for c in pod.containers.values() if c.found is not None),
                sum(c.expected.hard for c in pod.containers.values()),
            )
            for key, pod in self._pods.items()
            if pod.containers and all(c.is_right for c in pod.containers.values())
        }


def limits_of(variables: Mapping[str, str]) -> MemoryLimits | None:
    """Return the limits that the variables of a claim state; None if they state none.

    The container toolkit sets them from these variables (`partita.pods.environment`). They are in
    the CDI file of the claim, which only the agent writes.
    """
    limit, request = variables.get(MEMORY_LIMIT, ""), variables.get(MEMORY_REQUEST, "")
    if not (limit.isdecimal() and request.isdecimal()):
        return None
    return MemoryLimits(int(request) * MEBI, int(limit) * MEBI)


def started_containers(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the ID of each running container of a Pod by its name, without the runtime's prefix.

    Parameters
    ----------
    pod
        The Pod as the API server returns it.
    """
    status = pod.get("status") or {}
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return {
        s["name"]: s["containerID"].rpartition("/")[2]
        for s in statuses
        if "running" in (s.get("state") or {}) and s.get("containerID")
    }
