"""The fields of ResourceClaims that are kept in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any, Self

from pydantic import ValidationError

from partita.constants import (
    ANNOTATION_ESTIMATED_START,
    ANNOTATION_MEMORY,
    ANNOTATION_POSITION,
    ANNOTATION_STATUS,
    ANNOTATION_THREADS,
    CAPACITY_MEMORY,
    CAPACITY_THREADS,
    DRIVER,
    GROUP,
    VERSION,
)
from partita.models import EstimatedStart
from partita.models.device_class import class_target
from partita.models.quantities import parse_gpu_memory, parse_memory, parse_time
from partita.models.slice_parameters import SliceParameters
from partita.pods.own_claims import is_own_claim

__all__ = ["ClaimAllocation", "ClaimView"]

Json = dict[str, Any]

_JOB = f"{GROUP}/{VERSION}", "SharedGPUJob"
_UNSUPPORTED = {
    "selectors": "remove selectors: the device class determines the GPUs",
    "tolerations": "remove tolerations: only Partita's operator allocates its devices",
    "adminAccess": "remove adminAccess: it is not supported",
}
_HAS_CONFIG = (
    "remove devices.config: Partita has no configuration there, and the settings of a Pod are its "
    "annotations"
)
"""The operator could not write such a claim: the API server compares the parameters byte by byte,
and a patch sorts their keys (seen on Kubernetes 1.36.3: `spec: field is immutable`)."""


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What `status.allocation` of a claim contains."""

    driver: str
    """The driver of its devices."""
    gpu_servers: tuple[str, ...]
    """Their pools: the GPUServers if the driver is Partita's."""
    slices: tuple[SliceParameters, ...] = ()
    """What Partita's operator has written of each; empty if it has not, or it cannot be read."""
    since: datetime | None = None
    """When it was allocated; None if that is not known."""

    @property
    def ours(self) -> bool:
        """Whether it is a device of Partita."""
        return self.driver == DRIVER


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A ResourceClaim one of whose requests names a device class of Partita."""

    uid: str
    name: str
    namespace: str
    version: int
    created: datetime
    deleting: bool
    device_class: str
    """The device class of Partita that it names."""
    request: str
    """Name of that request."""
    count: int = 1
    """On how many GPUs it wants a device."""
    memory: int | None = None
    """GPU memory in `capacity.requests` or its annotation (bytes); None if it has neither."""
    threads: int | None = None
    """Percent of the GPU's threads in `capacity.requests` or its annotation; None if it has
    neither."""
    problem: str = ""
    """What Partita cannot serve, and what to write instead; empty if nothing."""
    owner_pod: str = ""
    """Name of the Pod for which it was made from a template; empty otherwise."""
    owner_pod_uid: str = ""
    """UID of that Pod."""
    job: str = ""
    """Name of the SharedGPUJob for an attempt of which it was made; empty otherwise."""
    job_uid: str = ""
    """UID of that job."""
    allocation: ClaimAllocation | None = None
    """Its allocation; None while it has none."""
    reserved_for: tuple[str, ...] = ()
    """UIDs of the Pods, or other consumers, for which it is reserved."""
    finalizers: tuple[str, ...] = ()
    status: str = ""
    """Its annotation `partita.dev/status`: why it waits."""
    position: int | None = None
    """Its position in the queue, when the status was written."""
    expected: EstimatedStart | None = None
    """When it is expected to be allocated, by its annotation."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def user(self) -> str:
        """UID of its job, or else its own: of what waits for its allocation."""
        return self.job_uid or self.uid

    @property
    def may_be_placed(self) -> bool:
        """Whether it may get GPUs: it neither has an allocation nor is being deleted."""
        return not self.deleting and self.allocation is None

    @property
    def indexed(self) -> tuple[str | None, bool, bool]:
        """As of a job: its device class (None for the claim of a job), False, and if it waits."""
        key = None if self.job_uid else self.device_class
        return key, False, bool(self.status) and self.allocation is None

    @property
    def attempt(self) -> int:
        """The attempt of its job, from its name; 0 without a job."""
        number = self.name.removeprefix(f"{self.job}-").partition(".")[0] if self.job else ""
        return int(number) if number.isdecimal() else 0

    @classmethod
    def parse(cls, body: Json) -> Self | None:
        """Read a ResourceClaim; None if no request of it names a device class of Partita."""
        devices = body["spec"].get("devices") or {}
        requests = devices.get("requests") or []
        ours = [(one, exact) for one in requests for exact in _alternatives(one) if _is_ours(exact)]
        if not ours:
            return None
        meta, status = body["metadata"], body.get("status") or {}
        annotations = meta.get("annotations") or {}
        request, exact = ours[0]
        problem = _problem(requests, ours) or (_HAS_CONFIG if devices.get("config") else "")
        memory, threads = None, None
        try:
            memory, threads = _capacity(exact, annotations)
        except ValueError as error:
            problem = problem or f"request {request['name']}: {error}"
        owner: Json = next(
            (o for o in meta.get("ownerReferences") or () if o.get("controller")), {}
        )
        kind = owner.get("apiVersion"), owner.get("kind")
        pod = owner if kind == ("v1", "Pod") else {}
        # Only the operator may create a claim of such a name (policy `partita-own-claims`).
        job = owner if kind == _JOB and is_own_claim(meta["name"]) else {}
        return cls(
            uid=meta["uid"],
            name=meta["name"],
            namespace=intern(meta["namespace"]),
            version=int(meta["resourceVersion"]),
            created=parse_time(meta["creationTimestamp"]),
            deleting=bool(meta.get("deletionTimestamp")),
            device_class=exact["deviceClassName"],
            request=request["name"],
            count=exact.get("count", 1),
            memory=memory,
            threads=threads,
            problem=problem,
            owner_pod=pod.get("name", ""),
            owner_pod_uid=pod.get("uid", ""),
            job=intern(job.get("name", "")),
            job_uid=intern(job.get("uid", "")),
            allocation=_allocation(status.get("allocation")),
            reserved_for=tuple(one["uid"] for one in status.get("reservedFor") or ()),
            finalizers=tuple(meta.get("finalizers") or ()),
            status=annotations.get(ANNOTATION_STATUS, ""),
            position=_position(annotations.get(ANNOTATION_POSITION, "")),
            expected=_expected(annotations.get(ANNOTATION_ESTIMATED_START, "")),
        )


def _position(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _expected(text: str) -> EstimatedStart | None:
    try:
        return EstimatedStart.model_validate_json(text) if text else None
    except ValidationError:
        return None


def _alternatives(request: Json) -> Iterator[Json]:
    """Return what a request asks for: one device exactly, or one of several."""
    if exact := request.get("exactly"):
        yield exact
    yield from request.get("firstAvailable") or ()


def _is_ours(exact: Json) -> bool:
    return class_target(exact.get("deviceClassName") or "") is not None


def _problem(requests: list[Json], ours: list[tuple[Json, Json]]) -> str:
    request, exact = ours[0]
    about = f"request {request['name']}"
    if len(requests) > 1:
        return (
            f"it has {len(requests)} requests: write a claim with one request for class "
            f"{exact['deviceClassName']}, and another claim for other devices"
        )
    if request.get("firstAvailable"):
        return f"{about} has firstAvailable: write exactly"
    if exact.get("allocationMode", "ExactCount") != "ExactCount":
        return f"{about} asks for all devices: write count with the number of GPUs instead"
    return next(
        (f"{about}: {said}" for field, said in _UNSUPPORTED.items() if exact.get(field)), ""
    )


def _capacity(exact: Json, annotations: Json) -> tuple[int | None, int | None]:
    """Return the requested memory in bytes, and threads in percent; None for what is not given.

    Before Kubernetes 1.36 the API server drops the capacity, but not the annotations, which a claim
    gets from its template (`spec.metadata`).

    Raises
    ------
    ValueError
        If an amount is invalid.
    """
    given = {CAPACITY_MEMORY: ANNOTATION_MEMORY, CAPACITY_THREADS: ANNOTATION_THREADS}
    asked = {name: annotations[key] for name, key in given.items() if key in annotations}
    asked |= (exact.get("capacity") or {}).get("requests") or {}
    memory, threads = None, None
    for name, quantity in asked.items():
        if name == CAPACITY_MEMORY:
            memory = parse_gpu_memory(quantity)
        elif name == CAPACITY_THREADS:
            threads = parse_memory(quantity)
        else:
            raise ValueError(f"capacity {name} does not exist: write memory or threads")
    if threads is not None and not 1 <= threads <= 100:
        raise ValueError(f"capacity threads is {threads}: write a percentage from 1 to 100")
    return memory, threads


def _allocation(allocation: Json | None) -> ClaimAllocation | None:
    if allocation is None:
        return None
    devices = allocation.get("devices") or {}
    results = devices.get("results") or [{}]
    driver, pools = results[0].get("driver", ""), tuple(one.get("pool", "") for one in results)
    opaque = (entry.get("opaque") or {} for entry in devices.get("config") or ())
    written = [one.get("parameters") for one in opaque if one.get("driver") == DRIVER]
    try:
        slices = tuple(map(SliceParameters.model_validate, written))
    except ValidationError:
        slices = ()
    since = allocation.get("allocationTimestamp")
    return ClaimAllocation(driver, pools, slices, parse_time(since) if since else None)
