"""Scheduling policies for shared GPUs: which waiting jobs start now, and where.

A policy is a class with a model of its parameters and one method. This example starts the largest
jobs first::

    from partita_policies import FreeCapacity, Parameters, Placement

    class LargestFirst:
        parameters = Parameters

        def __init__(self, parameters): ...

        def decide(self, snapshot):
            capacity, placements = FreeCapacity(snapshot.gpus), []
            for job in sorted(snapshot.jobs, key=lambda job: (-job.priority, -job.memory)):
                if gpus := capacity.first_fit(job):
                    capacity.take(job, gpus)
                    placements.append(Placement(job.id, gpus))
            return placements

Offer it from your own distribution (``pyproject.toml``)::

    [project.entry-points."partita.policies"]
    largest-first = "my_package:LargestFirst"

check it in your tests with ``check_policy(LargestFirst)``, install it beside the operator, and
write ``policy: {name: largest-first}`` in a GPUPartition. For parameters, derive a model from
`Parameters` (see `partita_policies.fifo`). This package does not depend on Kubernetes.
"""

from partita_policies.capacity import CapacityError, CapacityShortage, Choice, FreeCapacity, FreeGPU
from partita_policies.checks import (
    CheckReport,
    Complaint,
    PolicyCheckError,
    check_policy,
    complaints_about,
)
from partita_policies.errors import (
    PolicyError,
    PolicyImportError,
    PolicyParametersError,
    PolicyStartError,
    UnknownPolicyError,
)
from partita_policies.registry import (
    ENTRY_POINT_GROUP,
    PolicySource,
    available,
    create,
    load,
    parse_parameters,
)
from partita_policies.snapshot_json import SnapshotError, dump_snapshot, load_snapshot
from partita_policies.types import (
    GPU,
    SCHEMA_VERSION,
    CoRun,
    Job,
    Node,
    Objective,
    Parameters,
    Placement,
    Policy,
    Profile,
    RunningJob,
    Sharing,
    Snapshot,
    Step,
)

__all__ = [
    "ENTRY_POINT_GROUP",
    "GPU",
    "SCHEMA_VERSION",
    "CapacityError",
    "CapacityShortage",
    "CheckReport",
    "Choice",
    "CoRun",
    "Complaint",
    "FreeCapacity",
    "FreeGPU",
    "Job",
    "Node",
    "Objective",
    "Parameters",
    "Placement",
    "Policy",
    "PolicyCheckError",
    "PolicyError",
    "PolicyImportError",
    "PolicyParametersError",
    "PolicySource",
    "PolicyStartError",
    "Profile",
    "RunningJob",
    "Sharing",
    "Snapshot",
    "SnapshotError",
    "Step",
    "UnknownPolicyError",
    "available",
    "check_policy",
    "complaints_about",
    "create",
    "dump_snapshot",
    "load",
    "load_snapshot",
    "parse_parameters",
]
