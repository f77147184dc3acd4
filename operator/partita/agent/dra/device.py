"""What the containers of a claim get, from the ledger, the GPU and the Pod."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from partita.agent.allocations import LedgerEntry
from partita.agent.dra.cdi import ClaimDevice
from partita.agent.errors import PrepareError
from partita.agent.mps.exchange import MPSReport
from partita.agent.mps.namespaces import namespace_directory, slot_namespace
from partita.agent.mps.slot_limits import SlotLimits
from partita.constants import DEVICE, DRIVER
from partita.models import SharingMode
from partita.models.errors import describe
from partita.models.slice_parameters import SliceParameters
from partita.pods.allocation import JobAllocation
from partita.pods.containers import concurrent_containers, containers_of_claim
from partita.pods.environment import SM_PARTITION, VISIBLE, environment, shared_variables
from partita.pods.mps_directories import pipe_directory
from partita.pods.probe_pod import probe_variables
from partita.pods.user_namespaces import may_be_root

__all__ = [
    "ClaimGPU",
    "ServesClaims",
    "allocated_devices",
    "claim_device",
    "claim_slices",
    "probe_device",
]

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimGPU:
    """The GPU, as far as the devices of its claims depend on it."""

    server: str
    """The GPUServer."""
    uuid: str
    memory: int
    """Bytes."""
    mode: SharingMode
    slots: int
    """Number of slots."""
    cdi: tuple[str, ...] = ()
    """CDI devices with the device files of the GPU; empty if the container runtime adds these
    because of NVIDIA_VISIBLE_DEVICES."""
    driver_limits: bool = False
    """Whether the driver limits the memory of containers."""
    mps: MPSReport | None = None
    """What the MPS container has started; None in modes without MPS."""

    @property
    def has_slots(self) -> bool:
        """Whether a claim needs a slot."""
        return self.mps is not None and (self.mps.protocol == 3 or bool(self.mps.sm_partitions))


class ServesClaims(Protocol):
    """The GPU that the agent has acquired, as the claims on it see it."""

    slot_limits: SlotLimits

    def claim_gpu(self, *, probe: bool = False) -> ClaimGPU | None:
        """Return the GPU as the devices of claims need it; None if no container may start on it.

        Parameters
        ----------
        probe
            Whether it is for the probe Pod, which shows what can limit jobs.
        """


def probe_device(gpu: ClaimGPU, claim: Body, pod: Body) -> ClaimDevice:
    """Return what the container of the probe Pod gets: the GPU, and limits of the driver.

    Parameters
    ----------
    claim, pod
        The probe Pod and its claim, as the API server returns them.
    """
    uid, pod_uid = claim["metadata"]["uid"], pod["metadata"]["uid"]
    return ClaimDevice(
        claim=uid,
        server=gpu.server,
        key=(uid, pod_uid),
        variables=probe_variables(gpu.uuid, gpu.memory),
    )


def claim_device(
    gpu: ClaimGPU,
    claim: Body,
    entry: LedgerEntry,
    pod: Body,
    *,
    slot: int | None,
) -> ClaimDevice:
    """Return what the containers of a claim get by its device on a GPU.

    Parameters
    ----------
    claim
        The claim as the API server returns it. The amounts in it are those of the ledger.
    entry
        Its allocation in the ledger.
    pod
        Its Pod, as the API server returns it.
    slot
        Slot of the claim; None if it needs none.

    Raises
    ------
    PrepareError
        The claim has another GPU, or a container may run as root and could change the limits of
        MPS.
    """
    slices = claim_slices(claim)
    ours = next((one for one in slices if one.gpu_server == gpu.server), slices[0])
    if (ours.gpu_server, ours.gpu) != (gpu.server, gpu.uuid):
        raise PrepareError(
            f"its allocation is for GPU {ours.gpu} of GPUServer {ours.gpu_server}, and not for "
            f"{gpu.uuid} of {gpu.server}"
        )
    mps = gpu.mps
    if mps is not None and mps.protocol == 3 and (root := may_be_root(pod["spec"])):
        raise PrepareError(
            f"{', '.join(root)} may run as root, and could change the limits of MPS: set "
            "runAsNonRoot: true and allowPrivilegeEscalation: false, or hostUsers: false"
        )
    initial, main = containers_of_claim(pod, claim["metadata"]["name"])
    partitions = mps.sm_partitions if mps is not None else ()
    allocation = JobAllocation(
        uuids=(gpu.uuid,),
        memory=entry.memory,
        memory_limit=entry.ceiling if gpu.driver_limits else None,
        total_memory=gpu.memory,
        mode=gpu.mode,
        # The SM partition of the slot limits the threads; percentages do not apply there.
        thread_percent=100 if partitions else entry.thread_percent,
        driver_limits=gpu.driver_limits,
        oversubscription=ours.oversubscription,
        yields=ours.yields or (pod["spec"].get("priority") or 0) < 0,
    )
    env = environment(
        ours.framework,
        allocation,
        processes=entry.clients,
        containers=max(1, concurrent_containers(initial, main)),
    )
    variables = shared_variables(env, [*initial, *main])
    variables[VISIBLE] = ",".join(one.gpu for one in slices)
    mounts: dict[str, str] = {}
    if gpu.mode is SharingMode.MPS:
        inside = host = pipe_directory(gpu.uuid)
        if slot is not None and mps is not None and mps.protocol == 3:
            host = str(namespace_directory(Path(host), slot_namespace(slot)))
        mounts[inside] = host
    if partitions and slot is not None:
        variables[SM_PARTITION] = partitions[slot]
    return ClaimDevice(
        claim=claim["metadata"]["uid"],
        server=gpu.server,
        key=entry.key,
        slot=slot,
        variables=variables,
        mounts=mounts,
    )


def allocated_devices(claim: Body) -> dict[str, Body]:
    """Return the devices of Partita that are allocated to a claim, by GPUServer.

    Raises
    ------
    PrepareError
        It has none, or others than one on each of some GPUs.
    """
    results = list(_of_driver(_devices(claim).get("results")))
    found = {str(one.get("pool")): one for one in results if one.get("device") == DEVICE}
    if not found or len(found) < len(results):
        raise PrepareError(
            f"its allocation has {len(results)} devices of {DRIVER}: a claim has one on each of "
            f"its GPUs, named {DEVICE}, which Partita's operator allocates"
        )
    return found


def claim_slices(claim: Body) -> tuple[SliceParameters, ...]:
    """Return what a claim gets of each of its GPUs, by its allocation.

    Raises
    ------
    PrepareError
        It does not say that for each GPU, or what it says is invalid.
    """
    devices = allocated_devices(claim)
    opaque = [entry.get("opaque") or {} for entry in _devices(claim).get("config") or ()]
    found = [entry.get("parameters") for entry in _of_driver(opaque)]
    try:
        slices = tuple(map(SliceParameters.model_validate, found))
    except ValidationError as error:
        raise PrepareError(
            f"the parameters in its allocation are invalid: {describe(error)}"
        ) from error
    if [one.gpu_server for one in slices] != list(devices):
        raise PrepareError(
            f"its allocation has {len(found)} parameters of {DRIVER} instead of those of its "
            f"{len(devices)} devices, which Partita's operator writes"
        )
    return slices


def _devices(claim: Body) -> Body:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return allocation.get("devices") or {}


def _of_driver(entries: Any) -> Iterator[Body]:
    return (entry for entry in entries or () if entry.get("driver") == DRIVER)
