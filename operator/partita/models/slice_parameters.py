"""What was allocated to a claim, as the operator writes it to the claim for the node.

It is an opaque configuration in `status.allocation.devices.config` of a ResourceClaim, one for each
of its GPUs
(https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/). The API
server compares it with nothing. So the agent uses it only if it agrees with the ledger.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from partita.constants import GROUP, VERSION
from partita.models.base import Amount, Model, Percent, Word
from partita.models.job import Framework

__all__ = ["SliceParameters"]

_API_VERSION: Final = f"{GROUP}/{VERSION}"


class SliceParameters(Model):
    """The share of a GPU that a claim has."""

    api_version: str = _API_VERSION
    kind: Literal["SliceParameters"] = "SliceParameters"
    gpu_server: Word
    """The GPUServer whose ledger contains the allocation."""
    gpu: Word
    """UUID of its GPU, as NVML gives it."""
    memory: Amount
    """GPU memory (bytes, as a quantity)."""
    memory_limit: Amount | None = None
    """Most GPU memory while other jobs do not need it (bytes, as a quantity); unset is `memory`."""
    thread_percent: Percent = 100
    """Percent of the GPU's threads."""
    processes: Annotated[int, Field(ge=1)] = 1
    """Number of processes that use the GPU, in all containers together."""
    framework: Framework = Framework.NONE
    """The framework whose own memory limit is also set."""
    oversubscription: bool = False
    """Whether the framework may use unified memory, as the partition's `sharing` says."""
    yields: bool = False
    """Whether its kernels yield to those of co-located jobs."""
