"""The custom resources as pydantic models, from which their CRDs are generated."""

from partita.models.base import Condition, Model, ObjectMeta, Resource, set_condition
from partita.models.gpu_server import Allocation, GPUServer
from partita.models.job import (
    Assignment,
    Attempt,
    Framework,
    Outcome,
    Phase,
    SharedGPUJob,
    SharedGPUJobStatus,
)
from partita.models.partition import GPUPartition
from partita.models.partition_status import GPUPartitionStatus
from partita.models.profile import ApplicationProfile
from partita.models.selector import LabelSelector
from partita.models.sharing import SharingMode

__all__ = [
    "Allocation",
    "ApplicationProfile",
    "Assignment",
    "Attempt",
    "Condition",
    "Framework",
    "GPUPartition",
    "GPUPartitionStatus",
    "GPUServer",
    "LabelSelector",
    "Model",
    "ObjectMeta",
    "Outcome",
    "Phase",
    "Resource",
    "SharedGPUJob",
    "SharedGPUJobStatus",
    "SharingMode",
    "set_condition",
]
