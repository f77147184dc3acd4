"""The settings of the agent, which the server Pod passes to it."""

from dataclasses import dataclass, field
from pathlib import Path

from partita.agent.limits.cgroups import CGROUPS
from partita.agent.paths import Paths
from partita.constants import KUBELET_DIRECTORY
from partita.models import SharingMode
from partita.pods.allocation import DeviceInjection

__all__ = ["AgentSettings"]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of the agent (`partita.pods.server_pod`)."""

    server: str
    """The GPUServer, whose server Pod has its name."""
    mode: SharingMode
    """How jobs share the GPU."""
    node: str
    """The node."""
    namespace: str
    """Namespace of the server Pod."""
    pod_uid: str = ""
    """UID of the server Pod; empty outside Pods."""
    injection: DeviceInjection = "Auto"
    """How the GPU's device files are mounted into the jobs."""
    metrics_port: int = 0
    """TCP port of its metrics; 0 serves none."""
    paths: Paths = field(default_factory=lambda: Paths(""))
    """The files shared with the MPS container."""
    kubelet: Path = Path(KUBELET_DIRECTORY)
    """kubelet's directory."""
    cdi: Path = Path("/var/run/cdi")
    """Directory of the CDI files that the container runtime reads.

    The one for files that are generated at run time
    (https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md, "CDI JSON
    Specification"); containerd reads it unless `cdi_spec_dirs` is changed."""
    proc: Path = Path("/proc")
    """The node's processes."""
    cgroups: Path = CGROUPS
    """The node's cgroups."""

    @property
    def pod_resources(self) -> Path:
        """Socket on which kubelet reports the devices of Pods.

        See https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/,
        "Monitoring device plugin resources".
        """
        return self.kubelet / "pod-resources" / "kubelet.sock"
