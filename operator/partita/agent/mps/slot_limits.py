"""Sets the limits of a slot's MPS namespace before its containers start, and closes it afterwards.

A claim gets a slot when it is prepared (`partita.agent.dra.prepare`). Its CDI file contains the
slot, and the variables with the limits.

A client cannot raise the limits of its namespace, and a program that removes its variables keeps
them. A namespace whose claim has left the ledger is closed. After a restart of MPS, which loses all
limits, they are set again.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from partita.agent.allocations import AllocationReader, Key
from partita.agent.errors import MPSError
from partita.agent.mps.control import MPSControl
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.namespaces import CLOSED, NamespaceLimits, slot_namespace

__all__ = ["SlotLimits", "SlotOwner", "namespace_limits"]

_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_AMOUNT: Final = re.compile(r"0=(\d+)M")
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class SlotOwner:
    """The claim that has a slot."""

    key: Key
    """Key of its allocation in the ledger."""
    limits: NamespaceLimits


@dataclass(slots=True)
class SlotLimits:
    """The limits of the namespaces of one GPU.

    Parameters
    ----------
    ledger
        The allocations of the GPU.
    control
        Returns a client of the control daemon. Without protocol 3 nothing is done.
    count
        Number of slots.
    owners
        Returns the prepared claims that have a slot, by slot.
    """

    ledger: AllocationReader
    control: Callable[[], MPSControl]
    count: int
    owners: Callable[[], Mapping[int, SlotOwner]]
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while limits are set: whose a slot is must not change meanwhile."""
    _daemon: int = 0
    _applied: dict[int, NamespaceLimits] = field(default_factory=dict)
    """The limits that this agent has set. How the daemon prints limits is not documented, so those
    that an earlier agent has set are unknown."""
    _settled: object = None
    """State in which all namespaces were as they should be, but those with clients."""
    _waits_for: frozenset[int] = frozenset()
    """PIDs of these clients: the limits of their namespaces can be set when they have left."""
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    async def open(self, slot: int) -> None:
        """Set the limits of a slot before the containers of its owner start.

        Raises
        ------
        MPSError
            A client is still attached, or the control daemon does not answer.
        """
        control = self.control()
        if isinstance(control, MPSControlV3):
            async with self._lock:
                owner = self.owners().get(slot)
                if owner is not None and self._applied.get(slot) != owner.limits:
                    await self._apply(control, slot, owner.limits)

    async def _apply(self, control: MPSControlV3, slot: int, limits: NamespaceLimits) -> None:
        await control.limit(slot_namespace(slot), limits)
        self._applied[slot] = limits
        self._settled = None

    async def reconcile(self, daemon: int, clients: AbstractSet[int]) -> None:
        """Open the namespaces of claims in the ledger and close all others.

        A namespace that has a client cannot be changed before the client has left.

        Parameters
        ----------
        daemon
            Identifies the control daemon, which loses all limits when it exits.
        clients
            PIDs of all its clients.

        Raises
        ------
        MPSError
            The control daemon does not answer.
        """
        control = self.control()
        if isinstance(control, MPSControlV3):
            async with self._lock:
                await self._reconcile(control, daemon, clients)

    async def _reconcile(
        self, control: MPSControlV3, daemon: int, clients: AbstractSet[int]
    ) -> None:
        owners = self.owners()
        state = (daemon, frozenset(self.ledger.allocations), frozenset(owners.items()))
        if state == self._settled and self._waits_for <= clients:
            return
        if daemon != self._daemon:
            self._daemon = daemon
            self._applied.clear()
        limits = await control.limits()
        namespaces = [slot_namespace(slot) for slot in range(self.count)]
        if not limits.keys() >= {_DEFAULT, *namespaces}:
            return  # A daemon that starts adds them one after the other.
        wrong = {}
        for slot, namespace in enumerate(namespaces):
            is_open = limits[namespace] != limits[_DEFAULT]
            owner = owners.get(slot)
            if owner is None or owner.key not in self.ledger.allocations:
                wanted, known = CLOSED, None if is_open else CLOSED
            else:
                wanted, known = owner.limits, self._applied.get(slot) if is_open else None
            if wanted != known:
                wrong[slot] = wanted
        attached = await control.attached() if wrong else []
        busy = {pid: name for pid, name in attached if name in map(slot_namespace, wrong)}
        complete = True
        for slot, wanted in wrong.items():
            if slot_namespace(slot) in busy.values():
                continue
            try:
                await self._apply(control, slot, wanted)
            except MPSError as error:
                self._log.debug("limits not set", slot=slot, error=str(error))
                complete = False
        self._settled, self._waits_for = state if complete else None, frozenset(busy)


def namespace_limits(variables: Mapping[str, str]) -> NamespaceLimits | None:
    """Return the limits that variables of MPS state; None if they state none."""
    memory = _AMOUNT.fullmatch(variables.get(_MEMORY, ""))
    threads = variables.get(_THREADS, "")
    if memory is None or not threads.isdigit():
        return None
    return NamespaceLimits(int(memory[1]), int(threads))
