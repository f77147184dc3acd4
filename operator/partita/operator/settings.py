"""The operator's settings: what the environment and the command line say."""

from dataclasses import dataclass
from pathlib import Path

from partita.kube.operator_lease import OPERATOR_NAMESPACE

__all__ = ["OperatorSettings"]


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How one operator process runs."""

    namespace: str = OPERATOR_NAMESPACE
    """Namespace of the operator and its Lease."""
    server_namespace: str = ""
    """Namespace of the server Pods; the operator's where it is empty."""
    identity: str = ""
    """Who we are in the Lease; a container that restarts in the same Pod keeps its name."""
    lease_duration: float = 12.0
    """Seconds after which another operator may take over from one that is silent: with what it
    takes to see that, and to begin, somebody works again after 15 s."""
    image: str = ""
    """Image of the server Pods; that of the operator's own Pod where it is empty."""
    service_account: str = "partita-agent"
    """Service account of the server Pods."""
    server_priority_class: str = ""
    """PriorityClass of the server Pods; the cluster's default where it is empty."""
    health_port: int = 0
    """Port of /healthz and /readyz on all interfaces; 0 serves none."""
    record: Path | None = None
    """Folder in which decisions are recorded for `partita replay`; None records none."""
    record_limit: int = 256 << 20
    """Bytes of all recordings in that folder."""
