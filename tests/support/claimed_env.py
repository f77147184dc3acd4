"""The variables that the agent gives a job's Pod with its claims."""

from __future__ import annotations

from partita.agent.allocations import LedgerEntry
from partita.agent.dra.device import ClaimGPU, claim_device, claim_slices
from partita.agent.mps.exchange import MPSReport
from partita.models import GPUServer, SharingMode
from partita.models.slice_parameters import SliceParameters
from partita.pods.own_claims import own_claim
from support.record import Body, Record

__all__ = ["claimed_env", "parameters_of"]


def parameters_of(record: Record, pod: Body) -> list[tuple[Body, SliceParameters]]:
    """Return what was allocated to a job's Pod of each GPU, with the claim."""
    versions = record.versions("resourceclaims", own_claim(pod), pod["metadata"]["namespace"])
    claim = next((v for v in versions if v.get("status", {}).get("allocation")), None)
    return [] if claim is None else [(claim, one) for one in claim_slices(claim)]


def claimed_env(record: Record, pod: Body) -> dict[str, str]:
    """Return the variables of the first container of a job's Pod, with those of its claims."""
    plain = {e["name"]: e.get("value", "") for e in pod["spec"]["containers"][0].get("env", ())}
    return plain | {
        name: value
        for claim, parameters in parameters_of(record, pod)
        for name, value in _variables(record, pod, claim, parameters).items()
    }


def _variables(
    record: Record, pod: Body, claim: Body, parameters: SliceParameters
) -> dict[str, str]:
    allocated_at = int(claim["metadata"]["resourceVersion"])
    server = GPUServer.parse(
        next(
            body
            for body in reversed(record.versions("gpuservers", parameters.gpu_server))
            if int(body["metadata"]["resourceVersion"]) <= allocated_at
        )
    )
    meta, status = pod["metadata"], server.status
    mps = None
    if server.spec.mode is SharingMode.MPS:
        partitions = tuple(f"partition-{number}" for number in range(status.sm_partitions or 0))
        mps = MPSReport(daemon=1, protocol=status.protocol or 2, sm_partitions=partitions)
    gpu = ClaimGPU(
        server=parameters.gpu_server,
        uuid=parameters.gpu,
        memory=status.memory,
        mode=server.spec.mode,
        slots=server.spec.max_jobs,
        driver_limits=status.enforcement == "Driver",
        mps=mps,
    )
    made = claim["metadata"]
    entry = LedgerEntry(
        uid=made["uid"], namespace=made["namespace"], name=made["name"], pod=meta["name"],
        pod_uid=meta["uid"], memory=parameters.memory, memory_limit=parameters.memory_limit,
        clients=parameters.processes, thread_percent=parameters.thread_percent,
        since=made["creationTimestamp"],
    )  # fmt: skip
    slot = 0 if gpu.has_slots else None
    return dict(claim_device(gpu, claim, entry, pod, slot=slot).variables)
