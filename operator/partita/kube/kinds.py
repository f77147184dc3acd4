"""The resources of the API that Partita uses."""

from dataclasses import dataclass
from urllib.parse import quote

from partita.constants import GROUP, VERSION

__all__ = [
    "BUDGETS",
    "CLAIMS",
    "CLAIM_TEMPLATES",
    "CONFIG_MAPS",
    "CRDS",
    "DEVICE_CLASSES",
    "EVENTS",
    "JOBS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PARTITIONS",
    "PODS",
    "PROFILES",
    "RESOURCE_SLICES",
    "SERVERS",
    "Kind",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource of the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """`group/version`, or only the version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection or of one object."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace:
            parts.append(f"namespaces/{quote(namespace)}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PARTITIONS = Kind(GROUP, VERSION, "gpupartitions", "GPUPartition", namespaced=False)
SERVERS = Kind(GROUP, VERSION, "gpuservers", "GPUServer", namespaced=False)
JOBS = Kind(GROUP, VERSION, "sharedgpujobs", "SharedGPUJob", namespaced=True)
PROFILES = Kind(GROUP, VERSION, "applicationprofiles", "ApplicationProfile", namespaced=True)
PODS = Kind("", "v1", "pods", "Pod", namespaced=True)
NODES = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Kind("", "v1", "events", "Event", namespaced=True)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", namespaced=True)
CLAIMS = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
CLAIM_TEMPLATES = Kind(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
DEVICE_CLASSES = Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_SLICES = Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
CRDS = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
