"""The `status.allocation` of a ResourceClaim."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from partita.constants import CAPACITY_MEMORY, CAPACITY_THREADS, DEVICE, DRIVER
from partita.models import Allocation, GPUServer
from partita.models.quantities import format_memory
from partita.models.slice_parameters import SliceParameters

__all__ = ["claim_allocation", "slice_parameters"]


def slice_parameters(entry: Allocation, server: GPUServer, **settings: Any) -> SliceParameters:
    """Return what the node must know of an allocation.

    Parameters
    ----------
    entry
        The entry in the ledger.
    server
        The GPUServer of this ledger.
    settings
        What is not in the ledger.
    """
    return SliceParameters(
        gpu_server=server.metadata.name,
        gpu=server.status.uuid,
        memory=entry.memory,
        memory_limit=entry.memory_limit,
        thread_percent=entry.thread_percent,
        processes=entry.clients,
        **settings,
    )


def claim_allocation(
    uid: str, request: str, slices: Sequence[SliceParameters], node: str, now: datetime
) -> dict[str, Any]:
    """Return the allocation of a claim: a device on each of its GPUs, all on one node.

    A share ID and the consumed capacity are kept from Kubernetes 1.36 on. Without a time of the
    allocation, kube-scheduler would add it, which the API server rejects.

    Parameters
    ----------
    uid
        UID of the claim.
    request
        Name of its request.
    slices
        What it gets of each GPU, in name order of the GPUServers.
    node
        The node of the GPUs.
    """
    on_node = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "allocationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "devices": {
            "results": [
                {
                    "request": request,
                    "driver": DRIVER,
                    "pool": one.gpu_server,
                    "device": DEVICE,
                    "shareID": uid,
                    "consumedCapacity": {
                        CAPACITY_MEMORY: format_memory(one.memory),
                        CAPACITY_THREADS: str(one.thread_percent),
                    },
                }
                for one in slices
            ],
            "config": [
                {
                    "source": "FromClaim",
                    "requests": [request],
                    "opaque": {"driver": DRIVER, "parameters": one.dump()},
                }
                for one in slices
            ],
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
    }
