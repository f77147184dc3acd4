"""The claims that a simulated agent has prepared: what their containers get.

It checks a claim against the ledger and computes the variables as the agent of a node does
(`partita.agent.dra`), but writes no CDI files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from partita.agent.allocations import LedgerEntry
from partita.agent.dra.cdi import ClaimDevice
from partita.agent.dra.device import ClaimGPU, claim_device, probe_device
from partita.agent.errors import PrepareError
from partita.models import GPUServer
from partita.pods.probe_pod import probe_claim_name, probe_entry
from partita_testcluster.nodes.claims import SimulatedClaim
from partita_testcluster.nodes.node import SimulatedDevice
from partita_testcluster.nodes.simulated_pods import SimulatedPod
from partita_testcluster.nodes.simulated_support import SimulatedSupport

__all__ = ["PreparedSlice", "SimulatedClaims"]

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PreparedSlice:
    """The part of a GPU that a claim has."""

    gpu: SimulatedDevice
    entry: LedgerEntry
    """Its allocation."""
    device: ClaimDevice
    """What its containers get."""


class SimulatedClaims:
    """The prepared claims of one GPU.

    Parameters
    ----------
    gpu
        The GPU.
    """

    def __init__(self, gpu: SimulatedDevice) -> None:
        self._gpu = gpu
        self._devices: dict[str, ClaimDevice] = {}

    def prepare(
        self,
        claim: SimulatedClaim,
        pod: SimulatedPod,
        server: Body,
        support: SimulatedSupport | None,
    ) -> PreparedSlice:
        """Prepare a claim; one that is already prepared keeps its slot.

        Parameters
        ----------
        server
            The GPUServer as the API server has it.
        support
            What the GPU supports under MPS; None in other modes.

        Raises
        ------
        PrepareError
            The containers of the claim must not start; the message says why.
        """
        found = GPUServer.parse(server)
        gpu = self._claim_gpu(found, support)
        if claim.name == probe_claim_name(found.metadata.name):
            device = probe_device(gpu, claim.body, pod.body)
            made = probe_entry(found, claim.namespace, datetime.now(UTC))
            entry = LedgerEntry.of(claim.uid, made.model_copy(update={"pod_uid": device.pod}))
            return PreparedSlice(self._gpu, entry, device)
        entry = _entry(claim, pod, found)
        slot = self._slot(claim.uid, gpu) if gpu.has_slots else None
        device = claim_device(gpu, claim.body, entry, pod.body, slot=slot)
        self._devices[claim.uid] = device
        return PreparedSlice(self._gpu, entry, device)

    def unprepare(self, claim: str) -> None:
        """Forget a claim; no effect if it is not prepared."""
        self._devices.pop(claim, None)

    def _claim_gpu(self, server: GPUServer, support: SimulatedSupport | None) -> ClaimGPU:
        return ClaimGPU(
            server=server.metadata.name,
            uuid=self._gpu.uuid,
            memory=self._gpu.spec.gpu_memory,
            mode=server.spec.mode,
            slots=server.spec.max_jobs,
            driver_limits=support is not None and support.limits.enforcement == "Driver",
            mps=support.mps if support is not None else None,
        )

    def _slot(self, claim: str, gpu: ClaimGPU) -> int:
        known = self._devices.get(claim)
        if known is not None and known.slot is not None:
            return known.slot
        free = set(range(gpu.slots)) - {device.slot for device in self._devices.values()}
        if not free:
            raise PrepareError(f"all {gpu.slots} slots of GPUServer {gpu.server} are in use")
        return max(free)


def _entry(claim: SimulatedClaim, pod: SimulatedPod, server: GPUServer) -> LedgerEntry:
    """Return the ledger's entry of a claim and its Pod."""
    name = server.metadata.name
    allocation = server.status.allocations.get(claim.uid)
    if allocation is None:
        raise PrepareError(
            f"the ledger of GPUServer {name} does not contain it: only Partita's operator "
            "allocates its devices"
        )
    entry = LedgerEntry.of(claim.uid, allocation)
    if entry.releasing_since is not None:
        raise PrepareError(f"its Pod {entry.pod} is being ended")
    if pod.body["metadata"]["uid"] != entry.pod_uid:
        raise PrepareError(f"it is allocated for Pod {entry.pod}, and not for {pod.name}")
    return entry
