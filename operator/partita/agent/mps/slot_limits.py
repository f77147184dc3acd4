"""Sets the limits of a slot's MPS namespace before its container starts, and closes it afterwards.

kubelet calls PreStartContainer of the device plugin with the devices of a container. kubelet's
PodResources API says which Pod has them, the ledger says whether the Pod has an allocation, and the
variables of the container contain the limits, which the operator derives from the allocation. A
client cannot raise the limits of its namespace, and a program that removes its variables keeps
them.

A namespace whose job has left the ledger is closed. After a restart of MPS, which loses all limits,
they are set again.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from partita.agent.allocations import AllocationReader, AttemptAllocation, Key, allocated_pod
from partita.agent.errors import KubeletError, MPSError, SlotError
from partita.agent.kubelet.pod_devices import DeviceHolder, device_holders
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.namespaces import CLOSED, NamespaceLimits, slot_namespace
from partita.kube.client import PODS, Kube
from partita.kube.errors import KubernetesError
from partita.pods.user_namespaces import may_be_root

__all__ = ["SlotLimits", "container_limits", "slot_of"]

_PREPARE_WITHIN: Final = 20.0
"""Seconds to prepare a slot. kubelet waits 30 s for PreStartContainer
(k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go)."""
_RETRY: Final = 0.5
"""Seconds before a failed step is repeated: the client of the slot's previous job is still
detaching, or kubelet or the API server does not answer."""
_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_AMOUNT: Final = re.compile(r"0=(\d+)M")
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class _Claim:
    """The job that has a slot."""

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
    ) -> None:
        self._kube = kube
        self._ledger = ledger
        self._read_ledger = read_ledger
        self._control = control
        self._pod_resources = pod_resources
        self._resource = resource
        self._count = count
        self._probe = probe
        self._claims: dict[int, _Claim] = {}
        self._preparing: set[int] = set()
        self._prepared = 0
        """Number of slots that were prepared."""
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
        control = self._control()
        if control is None:
            return
        slot = slot_of(device)
        self._preparing.add(slot)
        problem = ""
        try:
            async with asyncio.timeout(_PREPARE_WITHIN):
                while True:
                    try:
                        await self._prepare(control, device, slot)
                    except (KubeletError, KubernetesError, MPSError) as error:
                        problem = str(error)
                        await asyncio.sleep(_RETRY)
                    else:
                        return
        except TimeoutError:
            raise SlotError(f"no limits for slot {device}: {problem}") from None
        finally:
            self._preparing.discard(slot)

    async def _prepare(self, control: MPSControlV3, device: str, slot: int) -> None:
        holders = await device_holders(self._pod_resources, self._resource)
        if device not in holders:
            raise KubeletError(f"kubelet reports no container with {device}")
        holder = holders[device]
        if (holder.namespace, holder.pod) == self._probe:
            return
        await self._read_ledger()
        claim = await self._claim(holder)
        if claim is None:
            raise SlotError(
                f"Pod {holder.namespace}/{holder.pod} has no allocation on this GPU: request GPUs "
                "by a SharedGPUJob"
            )
        await control.limit(slot_namespace(slot), claim.limits)
        self._claims[slot] = claim
        self._prepared += 1
        self._log.info("slot prepared", slot=slot, pod=holder.pod, limits=claim.limits)

    async def reconcile(self, daemon: int) -> None:
        """Open the namespaces of jobs in the ledger and close all others.

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
        state = (daemon, self._prepared, frozenset(self._ledger.allocations))
        if control is None or state == self._settled:
            return
        limits = await control.limits()
        complete = True
        for slot in range(self._count):
            is_open = limits.get(slot_namespace(slot)) != limits.get(_DEFAULT)
            if slot not in self._preparing:
                complete &= await self._reconcile_slot(control, slot, is_open=is_open)
        self._settled = state if complete else None

    async def _reconcile_slot(self, control: MPSControlV3, slot: int, *, is_open: bool) -> bool:
        try:
            claim = self._claims.get(slot) or (await self._found(slot) if is_open else None)
            if claim is not None and claim.key in self._ledger.allocations:
                self._claims[slot] = claim
                wanted = claim.limits
            else:
                self._claims.pop(slot, None)
                wanted = CLOSED
            if is_open == (wanted == CLOSED):
                await control.limit(slot_namespace(slot), wanted)
        except (KubeletError, KubernetesError, SlotError, MPSError) as error:
            self._log.debug("limits not set", slot=slot, error=str(error))
            return False
        return True

    async def _found(self, slot: int) -> _Claim | None:
        """Find the job of a slot that an earlier agent has prepared."""
        for device, holder in (await device_holders(self._pod_resources, self._resource)).items():
            if slot_of(device) == slot:
                return await self._claim(holder)
        return None

    async def _claim(self, holder: DeviceHolder) -> _Claim | None:
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
        return _Claim(allocation.key, limits)

    def _allocation(self, holder: DeviceHolder) -> AttemptAllocation | None:
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
                memory = _AMOUNT.fullmatch(env.get(_MEMORY, ""))
                threads = env.get(_THREADS, "")
                if memory is not None and threads.isdigit():
                    return NamespaceLimits(int(memory[1]), int(threads))
    return None
