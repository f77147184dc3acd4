"""The operator's settings, from the environment and the command line."""

from dataclasses import dataclass
from pathlib import Path

from partita.constants import KUBELET_DIRECTORY
from partita.kube.operator_lease import OPERATOR_NAMESPACE

__all__ = ["OperatorSettings"]


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Settings of one operator process."""

    namespace: str = OPERATOR_NAMESPACE
    """Namespace of the operator and its Lease."""
    server_namespace: str = ""
    """Namespace of the server Pods; the operator's if empty."""
    identity: str = ""
    """Holder identity in the Lease; a container that restarts in the same Pod keeps it."""
    lease_duration: float = 12.0
    """Seconds after which another operator may take over if this one does not renew the Lease. With
    the time to detect that and to start, jobs are scheduled again after 15 s."""
    image: str = ""
    """Image of the server Pods; the operator's own if empty."""
    service_account: str = "partita-agent"
    """Service account of the server Pods."""
    server_priority_class: str = ""
    """PriorityClass of the server Pods; the cluster's default if empty."""
    kubelet_directory: str = KUBELET_DIRECTORY
    """kubelet's directory on the nodes of the GPUs."""
    health_port: int = 0
    """Port of /healthz and /readyz on all interfaces; 0 serves neither."""
    namespace_metrics: bool = False
    """Whether metrics of usage have a label with the namespace."""
    record: Path | None = None
    """Folder in which decisions are recorded for `partita replay`; None records nothing."""
    record_limit: int = 256 << 20
    """Maximum bytes of all recordings in that folder."""
