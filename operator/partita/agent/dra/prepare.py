"""Prepares the claims of this GPU: checks them against the ledger and writes their CDI files.

The ledger says which Pod a claim has and how much it may use. The allocation in the claim is only a
copy of it, which is compared with the ledger as far as the node needs it. A claim that the ledger
does not contain is refused, and its file is removed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

import structlog

from partita.agent.allocations import AllocationReader, LedgerEntry
from partita.agent.dra.allocation import slice_parameters
from partita.agent.dra.cdi import CDIFolder, ClaimDevice
from partita.agent.dra.device import ClaimGPU, claim_device
from partita.agent.errors import (
    KubeletError,
    MPSError,
    PrepareError,
    SetupError,
    TransientPrepareError,
)
from partita.agent.event_wait import event_or_timeout
from partita.agent.mps.slot_limits import SlotLimits, SlotOwner, namespace_limits
from partita.constants import DRIVER
from partita.kube.client import CLAIMS, PODS, Kube
from partita.kube.errors import KubernetesError, NotFoundError

__all__ = ["PreparedClaims"]

UPDATE_EVERY: Final = 1.0
"""Seconds between two checks whether the files of claims are as they should be."""
_RETRY: Final = 5.0
"""Seconds before a file that could not be changed is tried again."""

Body = Mapping[str, Any]


class PreparedClaims:
    """The prepared claims of one GPU.

    Parameters
    ----------
    kube
        The API server.
    server
        The GPUServer.
    ledger
        Its allocations.
    read_ledger
        Reads the ledger again.
    folder
        The CDI files of the node.
    gpu
        Returns the GPU. It raises PrepareError if no container may start on it now.
    slots
        Returns the slots of the GPU, if it has been acquired.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        server: str,
        ledger: AllocationReader,
        read_ledger: Callable[[], Awaitable[None]],
        folder: CDIFolder,
        gpu: Callable[[], ClaimGPU],
        slots: Callable[[], SlotLimits | None],
    ) -> None:
        self._kube = kube
        self._server = server
        self._ledger = ledger
        self._read_ledger = read_ledger
        self._folder = folder
        self._gpu = gpu
        self._slots = slots
        self._devices: dict[str, ClaimDevice] = {}
        self._inputs: dict[str, object] = {}
        """What each file was made from."""
        self._preparing: set[str] = set()
        """Claims that kubelet waits for: their files are not written before their slot is open."""
        self._retry_at: dict[str, float] = {}
        self._lock = asyncio.Lock()
        """Held while a slot is chosen."""
        self.changed = asyncio.Event()
        """Is set when a version of the ledger was read."""
        self._log = structlog.get_logger(__name__).bind(server=server)

    def variables(self, claim: str) -> Mapping[str, str] | None:
        """Return the variables of the containers of a claim; None if it is not prepared."""
        device = self._devices.get(claim)
        return device.variables if device is not None else None

    def slot_owners(self) -> dict[int, SlotOwner]:
        """Return the claims that have a slot, by slot."""
        return {
            device.slot: SlotOwner((device.claim, device.pod), limits)
            for device in self._devices.values()
            if device.slot is not None
            and (limits := namespace_limits(device.variables)) is not None
        }

    async def run(self) -> NoReturn:
        """Keep the files as the ledger and MPS require, until cancelled."""
        await self._ledger.loaded.wait()
        for device in self._folder.devices():
            if device.server == self._server:
                self._devices.setdefault(device.claim, device)
        while True:
            await self._update()
            await event_or_timeout(self.changed, UPDATE_EVERY)

    # Prepare and unprepare

    async def prepare(self, claim: Body) -> tuple[ClaimDevice, tuple[str, ...]]:
        """Prepare a claim whose device is on this GPU; return its device and all its CDI devices.

        A claim that is already prepared keeps its slot.

        Parameters
        ----------
        claim
            The ResourceClaim as the API server returns it.

        Raises
        ------
        PrepareError
            The containers of the claim must not start; the message says why.
        TransientPrepareError
            They cannot start now.
        """
        entry = await self._entry(claim)
        _check_reserved(entry, claim)
        gpu = self._gpu()
        known = self._devices.get(entry.uid)
        async with self._lock:
            device = await self._device(entry, gpu, claim)
            self._devices[entry.uid] = device
        prepared = False
        self._preparing.add(entry.uid)
        try:
            await self._open_slot(device)
            if self._devices.get(entry.uid) is not device:
                raise PrepareError("it was unprepared meanwhile")
            self._write(device)
            prepared = True
        finally:
            self._preparing.discard(entry.uid)
            if not prepared and self._devices.get(entry.uid) is device:
                self._forget(entry.uid, known)
        self._inputs[entry.uid] = (entry, gpu)
        self._log.info("claim prepared", claim=entry.name, pod=entry.pod, slot=device.slot)
        # NVIDIA's come last, because their NVIDIA_VISIBLE_DEVICES must replace that of the claim.
        return device, (device.id, *gpu.cdi)

    def _forget(self, claim: str, known: ClaimDevice | None) -> None:
        """Undo that a claim got a slot: a claim that was prepared before keeps what it had."""
        if known is None:
            del self._devices[claim]
        else:
            self._devices[claim] = known

    def unprepare(self, claim: str) -> None:
        """Remove the file of a claim; its slot is closed soon after."""
        self._folder.remove(claim)
        self._inputs.pop(claim, None)
        self._retry_at.pop(claim, None)
        if self._devices.pop(claim, None) is not None:
            self._log.info("claim unprepared", uid=claim)

    async def _entry(self, claim: Body) -> LedgerEntry:
        """Return the ledger's entry of a claim; read the ledger if it is not known yet."""
        meta = claim["metadata"]
        if self._ledger.claim(meta["uid"]) is None:
            try:
                await self._read_ledger()
            except KubernetesError as error:
                raise TransientPrepareError(
                    f"GPUServer {self._server} cannot be read: {error}"
                ) from error
        entry = self._ledger.claim(meta["uid"])
        if entry is None or (entry.namespace, entry.name) != (meta["namespace"], meta["name"]):
            raise PrepareError(
                f"the ledger of GPUServer {self._server} does not contain it: only Partita's "
                "operator allocates its devices"
            )
        if entry.release is not None:
            raise PrepareError(f"its Pod {entry.pod} is being ended")
        return entry

    async def _device(self, entry: LedgerEntry, gpu: ClaimGPU, claim: Body) -> ClaimDevice:
        """Return what the containers of a claim get now; a claim that has a slot keeps it."""
        parameters = slice_parameters(claim)
        if (parameters.gpu_server, parameters.gpu) != (self._server, gpu.uuid):
            raise PrepareError(
                f"its allocation is for GPU {parameters.gpu} of GPUServer "
                f"{parameters.gpu_server}, and not for {gpu.uuid} of {self._server}"
            )
        pod = await self._pod(entry)
        self._check_alone(entry)
        known = self._devices.get(entry.uid) or self._own(entry.uid)
        slot = None
        if gpu.has_slots:
            slot = known.slot if known is not None else None
            slot = await self._free_slot(gpu) if slot is None else slot
        return claim_device(gpu, entry, pod, parameters, slot)

    def _write(self, device: ClaimDevice) -> None:
        """Write the file of a claim unless it already is as it should be."""
        if self._folder.read(device.claim) != device:
            try:
                self._folder.write(device)
            except SetupError as error:
                raise PrepareError(str(error)) from error

    async def _pod(self, entry: LedgerEntry) -> Body:
        try:
            pod = await self._kube.get(PODS, entry.claim_pod, entry.namespace)
        except NotFoundError:
            raise PrepareError(f"its Pod {entry.pod} does not exist") from None
        except KubernetesError as error:
            raise TransientPrepareError(f"its Pod {entry.pod} cannot be read: {error}") from error
        if pod["metadata"]["uid"] != entry.claim_pod_uid:
            raise PrepareError(f"it is allocated for another Pod with the name {entry.pod}")
        return pod

    def _check_alone(self, entry: LedgerEntry) -> None:
        """Check that the Pod has no slice yet: its containers can use only one GPU.

        Raises
        ------
        PrepareError
            The Pod has another one.
        """
        if any(
            d.pod == entry.claim_pod_uid and d.claim != entry.uid for d in self._folder.devices()
        ):
            raise PrepareError(
                f"Pod {entry.pod} already has a slice of a GPU by another claim: write one claim "
                f"of {DRIVER} in a Pod"
            )

    def _own(self, claim: str) -> ClaimDevice | None:
        """Return the device that an earlier agent of this GPUServer has written."""
        device = self._folder.read(claim)
        return device if device is not None and device.server == self._server else None

    # Slots

    async def _free_slot(self, gpu: ClaimGPU) -> int:
        slots = self._slots()
        taken = {device.slot for device in self._devices.values()}
        if slots is not None:
            try:
                taken |= await slots.taken()
            except KubeletError as error:
                raise TransientPrepareError(
                    f"kubelet does not say which slots are free: {error}"
                ) from error
        free = set(range(gpu.slots)) - taken
        if not free:
            raise TransientPrepareError(
                f"all {gpu.slots} slots of GPUServer {self._server} are in use; raise "
                "sharing.maxJobsPerGPU of the partition"
            )
        return max(free)

    async def _open_slot(self, device: ClaimDevice) -> None:
        """Set the limits of a claim's slot.

        Raises
        ------
        TransientPrepareError
            A client is still attached, or the control daemon does not answer.
        """
        slots, limits = self._slots(), namespace_limits(device.variables)
        if slots is None or limits is None or device.slot is None:
            return
        try:
            await slots.open(device.slot, SlotOwner((device.claim, device.pod), limits))
        except MPSError as error:
            raise TransientPrepareError(f"no limits for slot {device.slot}: {error}") from error

    # The ledger

    async def _update(self) -> None:
        """Remove the files of claims that have left the ledger, and rewrite those that changed.

        Their slots and the limits of running containers follow (`SlotLimits`, `JobLimits`).
        """
        for uid in [uid for uid in self._devices if self._ledger.claim(uid) is None]:
            self.unprepare(uid)
        if not self._devices:
            return
        try:
            gpu = self._gpu()
        except PrepareError:
            return
        now = time.monotonic()
        for uid in self._devices.keys() - self._preparing:
            entry = self._ledger.claim(uid)
            if entry is None or self._inputs.get(uid) == (entry, gpu):
                continue
            if now < self._retry_at.get(uid, now):
                continue
            try:
                claim = await self._kube.get(CLAIMS, entry.name, entry.namespace)
                if claim["metadata"]["uid"] != uid:
                    continue  # it is gone, and soon its allocation is
                async with self._lock:
                    device = await self._device(entry, gpu, claim)
                    # It may have been unprepared meanwhile, or kubelet asks for it again.
                    if uid in self._devices and uid not in self._preparing:
                        self._write(device)
                        self._devices[uid], self._inputs[uid] = device, (entry, gpu)
                # Before the container starts again. What fails here is repeated by `SlotLimits`.
                with suppress(TransientPrepareError):
                    await self._open_slot(device)
            except (PrepareError, KubernetesError) as error:
                self._retry_at[uid] = now + _RETRY
                self._log.warning("claim not updated", claim=entry.name, error=str(error))


def _check_reserved(entry: LedgerEntry, claim: Body) -> None:
    """Check that the Pod of the ledger, and no other, uses the claim.

    kubelet does not say which Pod it asks for, and asks only once for all Pods of a claim.

    Raises
    ------
    PrepareError
        Another Pod uses it.
    """
    pods = {one["uid"]: one["name"] for one in claim["status"].get("reservedFor") or ()}
    if entry.claim_pod_uid not in pods:
        problem = f"it is allocated for Pod {entry.pod}, and not reserved for it"
    elif len(pods) > 1:
        problem = f"Pods {', '.join(sorted(pods.values()))} share it"
    else:
        return
    raise PrepareError(
        f"{problem}; a claim is for one Pod: write resourceClaimTemplateName instead of "
        "resourceClaimName, then each Pod gets a claim of its own"
    )
