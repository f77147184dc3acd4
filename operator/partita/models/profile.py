"""ApplicationProfile: what an application used in the past.

The attributes are those of the DqnGPU study (Oh, 2019), Table 2.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Final

from pydantic import Field

from partita.models.base import (
    Amount,
    Count,
    Duration,
    Model,
    Ordinal,
    Resource,
    Time,
    Total,
    Word,
    at_most,
)

__all__ = [
    "ApplicationKey",
    "ApplicationProfile",
    "ApplicationProfileSpec",
    "Environment",
    "Measurement",
    "Neighbours",
    "ProfileStep",
    "SharedRun",
    "application_hash",
    "application_name",
    "preferred",
    "profile_name",
]

ApplicationKey = tuple[str, str]
"""Namespace and name of an application."""
Share = Annotated[float, Field(ge=0, le=100)]
Part = Annotated[float, Field(ge=0, le=1)]
Hash = Annotated[str, Field(max_length=16, pattern="^[0-9a-f]{16}$")]
_NAME: Final = 63
_HASH: Final = 8
_KEY: Final = 16


class ProfileStep(Model):
    """What the application used during one of the profile's equal time steps."""

    gpu_utilization: Share | None = None
    """GPU utilisation, percent; unset where the GPU cannot tell."""
    gpu_memory: Amount = 0
    """GPU memory in use (bytes, as a quantity)."""
    sm_occupancy: Share | None = None
    """SM occupancy, percent; unset where the GPU cannot tell."""
    pcie_throughput: Amount | None = None
    """PCIe throughput (bytes per second, as a quantity); unset where the GPU cannot tell."""
    memory_utilization: Share | None = None
    """Share of the time in which the GPU's memory is read or written, percent; unset where the GPU
    cannot tell."""


class Environment(Model):
    """Where it was measured."""

    node: Word = ""
    """The node."""
    product: Word = ""
    """The GPU's product."""
    architecture: Word = ""
    """The GPU's architecture."""
    memory: Amount = 0
    """The GPU's memory (bytes, as a quantity)."""
    sm_count: Count = 0
    """Streaming multiprocessors."""
    pcie_bandwidth: Amount = 0
    """PCIe bandwidth (bytes per second, as a quantity)."""


class Neighbours(Model):
    """Jobs that used the GPU at the same time for a part of a run."""

    part: Part
    """Part of the run, 0 to 1."""
    applications: Annotated[tuple[Hash, ...], Field(max_length=16)] = ()
    """Hashes of the jobs' namespaces and applications; a hash occurs once for each job."""


class SharedRun(Model):
    """A run during which other jobs used the GPU under MPS."""

    duration: Duration
    """Length of the run."""
    pod_uid: Annotated[str, Field(alias="podUID", max_length=64)] = ""
    """UID of its Pod, which names it in the attempts of a job."""
    beside: Annotated[tuple[Neighbours, ...], Field(max_length=8)]
    """The jobs beside it, the longest part first. In the rest of the run it was alone, or other
    jobs were beside it."""
    alone: Part = 0
    """Part of the run, 0 to 1, in which no other job used the GPU."""


class Measurement(Model):
    """The profile on one GPU product."""

    environment: Environment = Environment.model_construct()
    """Where it was measured."""
    duration: Duration
    """Length of a run; of the undisturbed ones, if there are any."""
    runs: Ordinal = 1
    """Runs that went into it."""
    steps: Annotated[tuple[ProfileStep, ...], Field(min_length=1, max_length=256)]
    """Use over equal time steps of the run."""
    undisturbed: Count = 0
    """Runs of these without another job on the GPU. If there are any, the duration and the use of
    everything but memory are theirs alone."""
    shared_runs: Annotated[tuple[SharedRun, ...], Field(max_length=12)] = ()
    """The newest runs beside other jobs. They correct the prediction of how much the other jobs
    slow this application down."""

    @property
    def peak_memory(self) -> int:
        """The largest memory of any step, bytes."""
        return max(step.gpu_memory for step in self.steps)


class ApplicationProfileSpec(Model):
    """What is known of the application."""

    application: Annotated[str, Field(min_length=1, max_length=63)]
    """Its name, as in a SharedGPUJob's `spec.application`."""
    type: Annotated[str, Field(max_length=63)] = ""
    """What kind it is, such as HPC or ML."""
    input_size: Total | None = None
    """Size of its input (bytes, as a quantity)."""
    input_parameters: Annotated[
        dict[str, Annotated[str, Field(json_schema_extra=at_most(maxLength=4096))]],
        Field(max_length=64),
    ] = Field(default_factory=dict)
    """Parameters of its input."""
    measurements: Annotated[tuple[Measurement, ...], Field(max_length=32)] = ()
    """The profile, one for each GPU product."""
    last_run: Time | None = None
    """When Partita last added to it. It is deleted 90 days later, or before if the namespace has
    more than 1,000, unless a job or Pod of the application exists. Unset: Partita has added
    nothing, and never deletes it."""
    refused: Amount | None = None
    """Largest GPU memory with which a Pod with a claim ran out of memory (bytes, as a quantity).
    Its next Pods get more, as `outOfMemory` of the partition says. Unset: none did."""

    @property
    def runs(self) -> int:
        """Runs that went into it, on all products."""
        return sum(m.runs for m in self.measurements)

    def measurement(self, product: str = "") -> Measurement | None:
        """Return what was measured on this product, else what rests on the most runs."""
        same = [m for m in self.measurements if product and m.environment.product == product]
        return max(same or self.measurements, key=lambda m: m.runs, default=None)


class ApplicationProfile(Resource):
    """What an application used in the past, per time step. Written by Partita."""

    spec: ApplicationProfileSpec
    """What is known of the application."""


def preferred(profiles: Iterable[ApplicationProfile]) -> ApplicationProfile | None:
    """Choose among the profiles of one application in one namespace; None of none.

    That with the most runs counts, and of several the first by name: whoever reads or adds to the
    history finds the same one.
    """
    return min(profiles, key=lambda p: (-p.spec.runs, p.metadata.name), default=None)


@lru_cache(maxsize=1024)
def application_hash(namespace: str, application: str) -> str:
    """Return what names an application in the profiles of other namespaces.

    Whoever may not read a namespace must not read its applications' names in another one.
    """
    return hashlib.sha256(f"{namespace}/{application}".encode()).hexdigest()[:_KEY]


def application_name(text: str) -> str:
    """Return a text as the name of an application: what is too long ends with a hash.

    So two users whose names differ only at the end have two histories.
    """
    return text if len(text) <= _NAME else _with_hash(text, text)


def profile_name(application: str) -> str:
    """Return the name of the profile's object: the application's name, made valid.

    A changed name gets a hash, so that two applications have different names.
    """
    name = re.sub(r"[^a-z0-9-]+", "-", application.lower()).strip("-")
    if name == application and len(name) <= _NAME:
        return name
    return _with_hash(name, application).lstrip("-")


def _with_hash(name: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_HASH]
    return f"{name[: _NAME - _HASH - 1].strip('-')}-{digest}"
