"""Prepares the claims of this GPU: checks them against the ledger and writes their CDI files.

The ledger says which Pod a claim has and how much it may use. The allocation in the claim is only a
copy of it, which is compared with the ledger as far as the node needs it. A claim that the ledger
does not contain is refused, and its file is removed. The claims of a job's attempt follow from the
job's allocation. The claim of the probe Pod is the only one without an allocation.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import structlog

from partita.agent.allocations import Key, LedgerEntry
from partita.agent.attribution.claim_sharers import ONE_POD
from partita.agent.dra.cdi import CDIFolder, ClaimDevice
from partita.agent.dra.device import ClaimGPU, ServesClaims, claim_device, probe_device
from partita.agent.errors import MPSError, PrepareError, TransientPrepareError
from partita.agent.event_wait import event_or_timeout
from partita.agent.health import Health
from partita.agent.mps.slot_limits import SlotOwner, namespace_limits
from partita.agent.running_jobs import RunningJobs
from partita.agent.settings import AgentSettings
from partita.agent.times import AgentTimes
from partita.constants import DRIVER
from partita.kube.client import CLAIMS, PODS, Kind, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.pods.probe_pod import probe_claim_name, probe_name

__all__ = ["PreparedClaims"]


Body = Mapping[str, Any]


@dataclass(slots=True)
class _Prepared:
    """A prepared claim."""

    device: ClaimDevice
    inputs: tuple[LedgerEntry, ClaimGPU] | None = None
    """What its file was made from; None if another agent has made it."""
    retry_at: float = 0.0
    """Seconds of a monotonic clock before which the file is not made again after an error."""


@dataclass
class PreparedClaims:
    """The prepared claims of one GPU.

    Parameters
    ----------
    kube
        The API server.
    settings
        The agent's settings.
    jobs
        The jobs of the GPU, and its allocations.
    health
        The state of the GPU.
    times
        How long it waits.
    """

    kube: Kube
    settings: AgentSettings
    jobs: RunningJobs
    health: Health
    times: AgentTimes
    served: ServesClaims | None = None
    """The GPU; None until it has been acquired."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when a version of the ledger was read."""
    _prepared: dict[str, _Prepared] = field(default_factory=dict)
    """By UID of the claim."""

    def __post_init__(self) -> None:
        self.server = self.settings.server
        self.folder = CDIFolder(self.settings.cdi)
        """The CDI files of the node."""
        self._log = structlog.get_logger(__name__).bind(server=self.server)

    def _gpu(self, *, probe: bool = False) -> ClaimGPU:
        """Return the GPU.

        Raises
        ------
        TransientPrepareError
            No container may start on it now.
        """
        gpu = self.served.claim_gpu(probe=probe) if self.served is not None else None
        if gpu is None:
            said = self.health.conditions()
            raise TransientPrepareError(
                f"GPUServer {self.server} accepts no containers now: {said.reason}: {said.message}"
            )
        return gpu

    @property
    def _devices(self) -> list[ClaimDevice]:
        return [one.device for one in self._prepared.values()]

    def variables(self) -> dict[Key, Mapping[str, str]]:
        """Return the variables of the containers of each prepared allocation."""
        return {device.key: device.variables for device in self._devices}

    def slot_owners(self) -> dict[int, SlotOwner]:
        """Return the claims that have a slot, by slot."""
        return {
            device.slot: SlotOwner(device.key, limits)
            for device in self._devices
            if device.slot is not None
            and (limits := namespace_limits(device.variables)) is not None
        }

    async def run(self) -> NoReturn:
        """Keep the files as the ledger and MPS require, until cancelled."""
        await self.jobs.ledger.loaded.wait()
        for device in self.folder.devices():
            if device.server == self.server:
                self._prepared.setdefault(device.claim, _Prepared(device))
        while True:
            await self._update()
            await event_or_timeout(self.changed, self.times.files_every)

    # Prepare and unprepare

    async def prepare(self, claim: Body) -> tuple[ClaimDevice, tuple[str, ...]]:
        """Prepare the device of a claim on this GPU; return it, and all its CDI devices.

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
        meta = claim["metadata"]
        probe = self.settings.namespace, probe_claim_name(self.server)
        if (meta["namespace"], meta["name"]) == probe:
            gpu, device = await self._prepare_probe(claim)
        else:
            gpu, device = await self._prepare(claim)
        self._log.info("claim prepared", claim=meta["name"], pod=device.pod, slot=device.slot)
        # NVIDIA's come last, because their NVIDIA_VISIBLE_DEVICES must replace that of the claim.
        return device, (device.id, *gpu.cdi)

    async def _prepare(self, claim: Body) -> tuple[ClaimGPU, ClaimDevice]:
        entry, uid = await self._entry(claim), claim["metadata"]["uid"]
        pod = await self._pod(entry)
        _check_reserved(claim, pod)
        gpu = self._gpu()
        device = self._device(entry, gpu, claim, pod)
        # From here on the claim has its slot, until it is unprepared or leaves the ledger.
        self._prepared[uid] = _Prepared(device, (entry, gpu))
        await self._open_slot(device)
        if uid not in self._prepared:
            raise PrepareError("it was unprepared meanwhile")
        self._write(device)
        return gpu, device

    async def _prepare_probe(self, claim: Body) -> tuple[ClaimGPU, ClaimDevice]:
        """Prepare the claim of the probe Pod, which is not in the ledger."""
        pod = await self._read_pod(probe_name(self.server), claim["metadata"]["namespace"])
        _check_reserved(claim, pod)
        gpu = self._gpu(probe=True)
        device = probe_device(gpu, claim, pod)
        self._write(device)
        return gpu, device

    def unprepare(self, claim: str) -> None:
        """Remove the file of a claim on this GPU; its slot is closed soon after.

        Raises
        ------
        PrepareError
            The file cannot be removed.
        """
        self.folder.remove(claim, self.server)
        if self._prepared.pop(claim, None) is not None:
            self._log.info("claim unprepared", uid=claim)

    async def _entry(self, claim: Body) -> LedgerEntry:
        """Return the ledger's entry of a claim; read the ledger if it is not known yet."""
        uid = claim["metadata"]["uid"]
        if self.jobs.ledger.claim(uid) is None:
            try:
                await self.jobs.read_ledger()
            except KubernetesError as error:
                raise TransientPrepareError(
                    f"GPUServer {self.server} cannot be read: {error}"
                ) from error
        entry = self.jobs.ledger.claim(uid)
        if entry is None:
            raise PrepareError(
                f"the ledger of GPUServer {self.server} does not contain it: only Partita's "
                "operator allocates its devices"
            )
        if entry.releasing_since is not None:
            raise PrepareError(f"its Pod {entry.pod} is being ended")
        return entry

    def _device(self, entry: LedgerEntry, gpu: ClaimGPU, claim: Body, pod: Body) -> ClaimDevice:
        """Return what the containers of a claim get now; a claim that has a slot keeps it."""
        uid = claim["metadata"]["uid"]
        self._check_alone(entry, pod)
        slot = None
        if gpu.has_slots:
            known = self._prepared.get(uid)
            slot = known.device.slot if known is not None else None
            slot = self._free_slot(gpu) if slot is None else slot
        return claim_device(gpu, claim, entry, pod, slot=slot)

    def _write(self, device: ClaimDevice) -> None:
        """Write the file of a claim unless it already is as it should be."""
        if self.folder.read(device.claim, device.server) != device:
            self.folder.write(device)

    async def _pod(self, entry: LedgerEntry) -> Body:
        """Return the Pod of an allocation."""
        pod = await self._read_pod(entry.pod, entry.namespace)
        if pod["metadata"]["uid"] != entry.pod_uid:
            raise PrepareError(f"it is allocated for another Pod with the name {entry.pod}")
        return pod

    async def _read_pod(self, name: str, namespace: str) -> Body:
        return await self.read(PODS, name, namespace, f"its Pod {name}", "does not exist")

    async def read(self, kind: Kind, name: str, namespace: str, what: str, gone: str) -> Body:
        """Read an object.

        Parameters
        ----------
        what, gone
            The message if it does not exist.

        Raises
        ------
        PrepareError
            It does not exist.
        TransientPrepareError
            It cannot be read now.
        """
        try:
            return await self.kube.get(kind, name, namespace)
        except NotFoundError:
            raise PrepareError(f"{what} {gone}") from None
        except KubernetesError as error:
            raise TransientPrepareError(f"{what} cannot be read: {error}") from error

    def _check_alone(self, entry: LedgerEntry, pod: Body) -> None:
        """Check that the Pod has no other slice: its containers can use only one.

        The claims of a job on several GPUs belong to one allocation.

        Raises
        ------
        PrepareError
            The Pod has another one.
        """
        uid = pod["metadata"]["uid"]
        if any(d.pod == uid and d.key != entry.key for d in self.folder.devices()):
            raise PrepareError(
                f"Pod {entry.pod} already has a slice of a GPU by another claim: write one claim "
                f"of {DRIVER} in a Pod"
            )

    # Slots

    def _free_slot(self, gpu: ClaimGPU) -> int:
        free = set(range(gpu.slots)) - {device.slot for device in self._devices}
        if not free:
            raise TransientPrepareError(
                f"all {gpu.slots} slots of GPUServer {self.server} are in use; raise "
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
        if self.served is None or device.slot is None:
            return
        try:
            await self.served.slot_limits.open(device.slot)
        except MPSError as error:
            raise TransientPrepareError(f"no limits for slot {device.slot}: {error}") from error

    # The ledger

    async def _update(self) -> None:
        """Remove the files of claims that have left the ledger, and rewrite those that changed.

        Their slots and the limits of running containers follow (`SlotLimits`, `JobLimits`).
        """
        now = time.monotonic()
        for uid, old in list(self._prepared.items()):
            if old.device.key in self.jobs.ledger.allocations or now < old.retry_at:
                continue
            try:
                self.unprepare(uid)
            except PrepareError as error:
                old.retry_at = now + self.times.file_retry
                self._log.warning("claim not unprepared", uid=uid, error=str(error))
        if not self._prepared:
            return
        try:
            gpu = self._gpu()
        except PrepareError:
            return
        for uid, old in list(self._prepared.items()):
            entry = self.jobs.ledger.allocations.get(old.device.key)
            if entry is None or old.inputs == (entry, gpu) or now < old.retry_at:
                continue
            name = entry.name
            try:
                claim = await self.kube.get(CLAIMS, name, entry.namespace)
                if claim["metadata"]["uid"] != uid:
                    continue  # it is gone, and soon its allocation is
                pod = await self._pod(entry)
                if uid not in self._prepared:
                    continue  # it was unprepared meanwhile
                device = self._device(entry, gpu, claim, pod)
                self._write(device)
                self._prepared[uid] = _Prepared(device, (entry, gpu))
                # Before the container starts again. What fails here is repeated by `SlotLimits`.
                with suppress(TransientPrepareError):
                    await self._open_slot(device)
            except (PrepareError, KubernetesError) as error:
                old.retry_at = now + self.times.file_retry
                self._log.warning("claim not updated", claim=name, error=str(error))


def _check_reserved(claim: Body, pod: Body) -> None:
    """Check that the Pod of the allocation, and no other, uses the claim.

    kubelet does not say which Pod it asks for, and asks only once for all Pods of a claim.

    Raises
    ------
    PrepareError
        Another Pod uses it.
    """
    pods = {one["uid"]: one["name"] for one in claim["status"].get("reservedFor") or ()}
    meta = pod["metadata"]
    if meta["uid"] not in pods:
        problem = f"it is allocated for Pod {meta['name']}, and not reserved for it"
    elif len(pods) > 1:
        problem = f"Pods {', '.join(sorted(pods.values()))} share it"
    else:
        return
    raise PrepareError(f"{problem}; {ONE_POD}")
