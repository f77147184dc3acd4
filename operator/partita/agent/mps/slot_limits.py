"""Sets the limits of a slot's MPS namespace before its container starts, and closes it afterwards.

A container of a job has a device of the device plugin, and kubelet calls PreStartContainer with it.
kubelet's PodResources API says which Pod has it, the ledger says whether the Pod has an allocation,
and the variables of the container contain the limits, which the operator derives from the
allocation. A claim gets a slot when it is prepared (`partita.agent.dra.prepare`), and its CDI file
contains the slot and the limits. The plugin never prefers such a slot for a container of a job.

A client cannot raise the limits of its namespace, and a program that removes its variables keeps
them. A namespace whose job or claim has left the ledger is closed. After a restart of MPS, which
loses all limits, they are set again.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from partita.agent.allocations import AllocationReader, Key, LedgerEntry, allocated_pod
from partita.agent.errors import KubeletError, MPSError, SlotError
from partita.agent.kubelet.pod_devices import DeviceHolder, device_holders
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.namespaces import CLOSED, NamespaceLimits, slot_namespace
from partita.kube.client import PODS, Kube
from partita.kube.errors import KubernetesError
from partita.pods.user_namespaces import may_be_root

__all__ = ["SlotLimits", "SlotOwner", "container_limits", "namespace_limits", "slot_of"]

_PREPARE_WITHIN: Final = 20.0
"""Seconds to prepare a slot. kubelet waits 30 s for PreStartContainer
(k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go)."""
_RETRY: Final = 0.5
"""Seconds before a failed step is repeated: the client of the slot's previous job is still
detaching, or kubelet or the API server does not answer."""
_PREFERRED_FOR: Final = 10.0
"""Seconds after which kubelet reports a device that it was told to prefer, if it gave it out. An
assumption: it asks while it admits a Pod."""
_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_AMOUNT: Final = re.compile(r"0=(\d+)M")
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class SlotOwner:
    """The job or the claim that has a slot."""

    key: Key
    limits: NamespaceLimits


class SlotLimits:
    """The limits of the namespaces of one GPU.

    Parameters
    ----------
    kube
        The API server.
    ledger
        The allocations of the GPU.
    read_ledger
        Reads the ledger again.
    control
        Returns a client of the control daemon; None if it does not have protocol 3.
    pod_resources
        Socket of kubelet's PodResources API.
    resource
        Name of the slots' extended resource.
    count
        Number of slots.
    probe
        Namespace and name of the probe Pod, which has a slot without an allocation.
    claims
        Returns the prepared claims that have a slot, by slot.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        ledger: AllocationReader,
        read_ledger: Callable[[], Awaitable[None]],
        control: Callable[[], MPSControlV3 | None],
        pod_resources: Path,
        resource: str,
        count: int,
        probe: tuple[str, str],
        claims: Callable[[], Mapping[int, SlotOwner]],
    ) -> None:
        self._kube = kube
        self._ledger = ledger
        self._read_ledger = read_ledger
        self._control = control
        self._pod_resources = pod_resources
        self._resource = resource
        self._count = count
        self._probe = probe
        self._claims = claims
        self._jobs: dict[int, SlotOwner] = {}
        self._lock = asyncio.Lock()
        """Held while limits are set: whose a slot is must not change meanwhile."""
        self._preferred: dict[int, float] = {}
        """Time at which kubelet was told to prefer a slot."""
        self._daemon = 0
        self._applied: dict[int, NamespaceLimits] = {}
        """The limits of open namespaces. How the daemon prints limits is not documented."""
        self._settled: object = None
        """State in which all namespaces were as they should be."""
        self._log = structlog.get_logger(__name__).bind(resource=resource)

    async def prepare(self, device: str) -> None:
        """Set the limits of a slot for the container that is about to start.

        Raises
        ------
        SlotError
            The container must not start; the message says why.
        """
        slot = slot_of(device)
        if slot in self._claims():
            raise SlotError(f"slot {device} belongs to a claim: delete the Pod to try it again")
        control = self._control()
        if control is not None:
            await self._repeat(slot, partial(self._prepare, control, device, slot))

    async def open(self, slot: int, owner: SlotOwner) -> None:
        """Set the limits of a slot for the containers of a claim.

        Raises
        ------
        MPSError
            A client is still attached, or the control daemon does not answer.
        """
        control = self._control()
        if control is not None and self._applied.get(slot) != owner.limits:
            async with self._lock:
                await self._apply(control, slot, owner.limits)

    async def _repeat(self, slot: int, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step that sets the limits of a slot until it succeeds, for a limited time."""
        problem = ""
        try:
            async with asyncio.timeout(_PREPARE_WITHIN):
                while True:
                    try:
                        async with self._lock:
                            await step()
                    except (KubeletError, KubernetesError, MPSError) as error:
                        problem = str(error)
                        await asyncio.sleep(_RETRY)
                    else:
                        return
        except TimeoutError:
            raise SlotError(f"no limits for slot {slot}: {problem}") from None

    async def _apply(self, control: MPSControlV3, slot: int, limits: NamespaceLimits) -> None:
        await control.limit(slot_namespace(slot), limits)
        self._applied[slot] = limits
        self._settled = None

    async def taken(self) -> set[int]:
        """Return the slots that kubelet has given to containers, or is about to give to one.

        Raises
        ------
        KubeletError
            kubelet does not answer.
        """
        now = time.monotonic()
        recent = {slot for slot, at in self._preferred.items() if now - at < _PREFERRED_FOR}
        return recent | {
            slot_of(d) for d in await device_holders(self._pod_resources, self._resource)
        }

    def prefer(self, available: Sequence[str], required: Sequence[str], count: int) -> list[str]:
        """Return the devices that kubelet should give to a container: none that a claim has.

        Parameters
        ----------
        available
            IDs of the devices that kubelet may give out.
        required
            Those of them that the container must get.
        count
            Number of devices that the container gets.
        """
        claims = self._claims()
        free = [d for d in available if d not in required and slot_of(d) not in claims]
        chosen = [*required, *sorted(free, key=slot_of)][:count]
        now = time.monotonic()
        self._preferred.update((slot_of(device), now) for device in chosen)
        return chosen

    async def _prepare(self, control: MPSControlV3, device: str, slot: int) -> None:
        holders = await device_holders(self._pod_resources, self._resource)
        if device not in holders:
            raise KubeletError(f"kubelet reports no container with {device}")
        holder = holders[device]
        if (holder.namespace, holder.pod) == self._probe:
            return
        await self._read_ledger()
        owner = await self._owner(holder)
        if owner is None:
            raise SlotError(
                f"Pod {holder.namespace}/{holder.pod} has no allocation on this GPU: request GPUs "
                "by a SharedGPUJob"
            )
        await self._apply(control, slot, owner.limits)
        self._jobs[slot] = owner
        self._log.info("slot prepared", slot=slot, pod=holder.pod, limits=owner.limits)

    async def reconcile(self, daemon: int) -> None:
        """Open the namespaces of jobs and claims in the ledger and close all others.

        A namespace that has a client cannot be changed. It is tried again by the next call.

        Parameters
        ----------
        daemon
            Identifies the control daemon, which loses all limits when it exits.

        Raises
        ------
        MPSError
            The control daemon does not answer.
        """
        control = self._control()
        if control is not None:
            async with self._lock:
                await self._reconcile(control, daemon)

    async def _reconcile(self, control: MPSControlV3, daemon: int) -> None:
        claims = self._claims()
        state = (daemon, frozenset(self._ledger.allocations), frozenset(claims.items()))
        if state == self._settled:
            return
        if daemon != self._daemon:
            self._daemon = daemon
            self._applied.clear()
        limits = await control.limits()
        complete = True
        for slot in range(self._count):
            is_open = limits.get(slot_namespace(slot)) != limits.get(_DEFAULT)
            owner = claims.get(slot)
            complete &= await self._reconcile_slot(control, slot, owner, is_open=is_open)
        self._settled = state if complete else None

    async def _reconcile_slot(
        self, control: MPSControlV3, slot: int, owner: SlotOwner | None, *, is_open: bool
    ) -> bool:
        try:
            if owner is None:
                owner = self._jobs.get(slot) or (await self._found(slot) if is_open else None)
                self._jobs.pop(slot, None)
                if owner is not None and owner.key in self._ledger.allocations:
                    self._jobs[slot] = owner
            if owner is None or owner.key not in self._ledger.allocations:
                if is_open:
                    await self._apply(control, slot, CLOSED)
            elif not is_open or self._applied.setdefault(slot, owner.limits) != owner.limits:
                # An open namespace has the limits that its owner had when an agent opened it.
                await self._apply(control, slot, owner.limits)
        except (KubeletError, KubernetesError, SlotError, MPSError) as error:
            self._log.debug("limits not set", slot=slot, error=str(error))
            return False
        return True

    async def _found(self, slot: int) -> SlotOwner | None:
        """Find the job of a slot that an earlier agent has prepared."""
        for device, holder in (await device_holders(self._pod_resources, self._resource)).items():
            if slot_of(device) == slot:
                return await self._owner(holder)
        return None

    async def _owner(self, holder: DeviceHolder) -> SlotOwner | None:
        """Return the job of a container; None if its Pod has no allocation.

        Raises
        ------
        SlotError
            The container may run as root, or has no limits.
        """
        allocation = self._allocation(holder)
        if allocation is None:
            return None
        body = await self._kube.get(PODS, holder.pod, holder.namespace)
        if allocated_pod(body, allocation) is None:
            return None
        if root := may_be_root(body["spec"]):
            raise SlotError(
                f"{', '.join(root)} may run as root, and could change the limits of MPS: set "
                "runAsNonRoot: true and allowPrivilegeEscalation: false, or hostUsers: false"
            )
        limits = container_limits(body["spec"], holder.container)
        if limits is None:
            raise SlotError(f"container {holder.container} has no {_MEMORY} and {_THREADS}")
        return SlotOwner(allocation.key, limits)

    def _allocation(self, holder: DeviceHolder) -> LedgerEntry | None:
        return next(
            (
                allocation
                for allocation in self._ledger.allocations.values()
                if (allocation.namespace, allocation.pod) == (holder.namespace, holder.pod)
            ),
            None,
        )


def slot_of(device: str) -> int:
    """Return the slot of a device ID (`partita.agent.kubelet.device_plugin.Slots`)."""
    return int(device.rpartition("-")[2])


def container_limits(spec: Mapping[str, Any], name: str) -> NamespaceLimits | None:
    """Return the limits that the variables of a container state; None if they state none."""
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            if container.get("name") == name:
                env = {e["name"]: e.get("value") or "" for e in container.get("env") or ()}
                return namespace_limits(env)
    return None


def namespace_limits(variables: Mapping[str, str]) -> NamespaceLimits | None:
    """Return the limits that variables of MPS state; None if they state none."""
    memory = _AMOUNT.fullmatch(variables.get(_MEMORY, ""))
    threads = variables.get(_THREADS, "")
    if memory is None or not threads.isdigit():
        return None
    return NamespaceLimits(int(memory[1]), int(threads))
