"""The custom resources as pydantic models, from which their CRDs are generated."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partita.models.base import ObjectMeta, Resource
    from partita.models.conditions import Condition, set_condition
    from partita.models.gpu_server import Allocation, GPUServer
    from partita.models.job import (
        Assignment,
        Attempt,
        EstimatedStart,
        Framework,
        Outcome,
        Phase,
        SharedGPUJob,
        SharedGPUJobStatus,
    )
    from partita.models.partition import GPUPartition
    from partita.models.partition_status import GPUPartitionStatus
    from partita.models.profile import ApplicationProfile
    from partita.models.sharing import SharingMode
else:
    _MODULES = ("base", "conditions", "job", "gpu_server", "partition", "profile")

    def __getattr__(name: str) -> Any:
        """Import a name when it is used: a command that lists jobs needs the job's models alone."""
        for module in _MODULES:
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                return found[name]
        raise AttributeError(f"module {__name__} has no attribute {name}")


__all__ = [
    "Allocation",
    "ApplicationProfile",
    "Assignment",
    "Attempt",
    "Condition",
    "EstimatedStart",
    "Framework",
    "GPUPartition",
    "GPUPartitionStatus",
    "GPUServer",
    "ObjectMeta",
    "Outcome",
    "Phase",
    "Resource",
    "SharedGPUJob",
    "SharedGPUJobStatus",
    "SharingMode",
    "set_condition",
]
