"""Reads what `partita doctor` checks from the API server."""

from dataclasses import dataclass, field
from typing import Any, Final

from partita.constants import COMPONENT_SERVER, GROUP, LABEL_COMPONENT
from partita.kube.client import (
    CLAIMS,
    CRDS,
    DEVICE_CLASSES,
    LEASES,
    NAMESPACES,
    NODES,
    PARTITIONS,
    PODS,
    RESOURCE_SLICES,
    SERVERS,
    Kind,
    Kube,
)
from partita.kube.errors import ForbiddenError, NotFoundError
from partita.kube.operator_lease import read_operator_problem
from partita.kube.streams import stream
from partita.models.json_text import parse

__all__ = ["ClusterFacts", "is_server_pod", "read_facts"]

Json = dict[str, Any]

_DEADLINE: Final = 10.0
"""Seconds for the version. An assumption."""
RUNTIME_CLASSES: Final = Kind(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)
MUTATING_POLICIES: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicies",
    "MutatingAdmissionPolicy",
    namespaced=False,
)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the API server says of the cluster."""

    version: str
    """The API server's, such as `v1.36.3`."""
    nodes: list[Json]
    pods: list[Json]
    namespaces: dict[str, Json]
    crds: list[Json] = field(default_factory=list)
    """Those of Partita."""
    partitions: list[Json] = field(default_factory=list)
    servers: list[Json] = field(default_factory=list)
    runtime_classes: list[str] = field(default_factory=list)
    slices: list[Json] = field(default_factory=list)
    """Devices of dynamic resource allocation."""
    claims: list[Json] = field(default_factory=list)
    """Claims of such devices."""
    device_classes: list[str] | None = None
    """Names of all; None if the API server does not serve `resource.k8s.io/v1`."""
    mutating_policies: list[str] | None = None
    """Names of all MutatingAdmissionPolicies; None if the API server does not serve v1 of them."""
    operator_problem: str = ""
    """Why no operator runs; empty if one runs."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Why the objects of a kind could not be read, by plural."""

    @property
    def installed(self) -> bool:
        """Whether Partita is known to be installed; not all users may read its CRDs."""
        return bool(self.crds or self.partitions)

    def unread(self, *plurals: str) -> str:
        """Return which of these kinds could not be read; empty if all could."""
        hidden = [plural for plural in plurals if plural in self.unreadable]
        return f"you may not list {', '.join(hidden)}" if hidden else ""

    @property
    def image(self) -> str:
        """Partita's image in this cluster; empty if no server Pod runs it."""
        images = (p["spec"]["containers"][0]["image"] for p in self.pods if is_server_pod(p))
        return str(next(images, ""))

    def pods_on(self, node: Json) -> list[Json]:
        """Return the Pods of a node."""
        name = node["metadata"]["name"]
        return [pod for pod in self.pods if pod["spec"].get("nodeName") == name]


def is_server_pod(pod: Json) -> bool:
    """Return whether a Pod is one of Partita's server Pods."""
    return (pod["metadata"].get("labels") or {}).get(LABEL_COMPONENT) == COMPONENT_SERVER


async def read_facts(kube: Kube) -> ClusterFacts:
    """Read all that is checked; what may not be read is noted and not an error."""
    unreadable: dict[str, str] = {}

    async def served(kind: Kind) -> list[Json] | None:
        try:
            return (await kube.list(kind))[0]
        except NotFoundError:
            return None  # this API server does not serve the kind
        except ForbiddenError as error:
            unreadable[kind.plural] = error.message
            return []

    async def read(kind: Kind) -> list[Json]:
        return await served(kind) or []

    async def names(kind: Kind) -> list[str] | None:
        found = await served(kind)
        return None if found is None else [one["metadata"]["name"] for one in found]

    async def operator_problem() -> str:
        try:
            return await read_operator_problem(kube)
        except ForbiddenError as error:
            unreadable[LEASES.plural] = error.message
            return ""

    return ClusterFacts(
        version=await _version(kube),
        nodes=await read(NODES),
        pods=await read(PODS),
        namespaces={one["metadata"]["name"]: one for one in await read(NAMESPACES)},
        crds=[crd for crd in await read(CRDS) if crd["spec"]["group"] == GROUP],
        partitions=await read(PARTITIONS),
        servers=await read(SERVERS),
        runtime_classes=[one["metadata"]["name"] for one in await read(RUNTIME_CLASSES)],
        slices=await read(RESOURCE_SLICES),
        claims=await read(CLAIMS),
        device_classes=await names(DEVICE_CLASSES),
        mutating_policies=await names(MUTATING_POLICIES),
        operator_problem=await operator_problem(),
        unreadable=unreadable,
    )


async def _version(kube: Kube) -> str:
    async with stream(kube.api, "GET /version", "/version", {}, seconds=_DEADLINE) as content:
        return str(parse(await content.read()).get("gitVersion", ""))
