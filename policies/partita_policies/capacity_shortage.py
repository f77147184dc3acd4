"""Why a job cannot have a GPU."""

from enum import StrEnum

__all__ = ["CapacityError", "CapacityShortage"]


class CapacityError(ValueError):
    """A job was placed where it does not fit, or released without holding a GPU."""


class CapacityShortage(StrEnum):
    """Why a job cannot have a GPU, or a set of them."""

    UNKNOWN = "Unknown"
    """The GPU is not among those on which jobs can be placed."""
    COUNT = "Count"
    """The number of different GPUs is not the requested one."""
    NODE = "Node"
    """The GPUs are not all on one node."""
    ALLOCATED = "Allocated"
    """The job holds a GPU already."""
    ALONE = "Alone"
    """A job that must be alone is on the GPU, or this job must be alone and the GPU has jobs."""
    MEMORY = "Memory"
    """Not enough memory is free."""
    JOBS = "Jobs"
    """Too few of the GPU's `max_jobs` slots are free."""
    CLIENTS = "Clients"
    """Too few of the GPU's MPS clients are free."""
    PRODUCT = "Product"
    """The job may not use this GPU product."""
    NOT_ELIGIBLE = "NotEligible"
    """The job may not run on the GPU's node."""
    HOST = "Host"
    """Too little CPU, memory or ephemeral storage of the GPU's node is free."""
